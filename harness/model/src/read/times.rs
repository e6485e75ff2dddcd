//! Times as scenarios write them.

use std::time::Duration;

/// A time as scenarios write it: numbers with units, one after the other, as Go writes and reads them.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    // Microseconds are the finest that anything here measures.
    let micros = Duration::try_from_secs_f64(seconds)
        .ok()?
        .as_nanos()
        .div_ceil(1000);
    (!text.is_empty()).then_some(Duration::from_micros(u64::try_from(micros).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_go_reads_them() {
        let times = [
            ("5ms", Some(5_000)),
            ("1m30s", Some(90_000_000)),
            ("1.5s", Some(1_500_000)),
            ("100us", Some(100)),
            ("0s", Some(0)),
            ("5", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("1s2", None),
            ("1 s", None),
            ("9999999999999999999999h", None),
        ];
        for (text, micros) in times {
            assert_eq!(
                parse_duration(text),
                micros.map(Duration::from_micros),
                "{text}"
            );
        }
    }
}
