//! How klog writes the values of a line.

use std::time::Duration;

/// A value of a structured line.
pub(crate) enum Value<'a> {
    Text(&'a str),
    /// Numbers, truths and lists are not quoted.
    Bare(String),
}

/// Several lines are written as they are, behind tabs; a line break at the end adds no line.
pub(crate) fn append(line: &mut String, key: &str, text: &str) {
    if !text.contains('\n') {
        line.extend([" ", key, "=", &format!("{text:?}")]);
        return;
    }
    line.extend([" ", key, "=<\n"]);
    for part in text.lines() {
        line.extend(["\t", part, "\n"]);
    }
    line.push_str(" >");
}

/// As Go's `time.Duration` prints itself.
pub(crate) fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (unit, size) = match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let minutes = nanos / 60_000_000_000;
    let rest = nanos % 60_000_000_000;
    let (whole, part) = (rest / size, rest % size);
    let digits = size.ilog10() as usize;
    let fraction = format!(".{part:0digits$}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    let hours = match minutes / 60 {
        0 => String::new(),
        hours => format!("{hours}h"),
    };
    let minutes = match minutes {
        0 => String::new(),
        minutes => format!("{}m", minutes % 60),
    };
    format!("{hours}{minutes}{whole}{fraction}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (512, "512ns"),
            (1_500, "1.5µs"),
            (8_063_544, "8.063544ms"),
            (69_273_194, "69.273194ms"),
            (2_837_692_607, "2.837692607s"),
            (30_000_000_000, "30s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (5_430_500_000_000, "1h30m30.5s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
