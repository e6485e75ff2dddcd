//! The headers in front of a log entry, so that one pattern matches a model's log and a real one's.

use jiff::{Timestamp, tz::TimeZone};

use crate::step::{LogLine, Severity};

/// klog's header (kube-proxy): `E0610 07:32:16.910840       1 proxier.go:1564] …`.
pub fn klog(line: &LogLine, now: Timestamp) -> String {
    let letter = match line.severity {
        Severity::Info => 'I',
        Severity::Warning => 'W',
        Severity::Error => 'E',
        Severity::Fatal => 'F',
    };
    let time = now
        .to_zoned(TimeZone::UTC)
        .strftime("%m%d %H:%M:%S.%6f")
        .to_string();
    format!("{letter}{time} {:>7} {}] {}", 1, line.site, line.text)
}

/// Felix's header (calico 3.28, libcalico-go logutils): `2025-06-10 07:32:16.910 [INFO][53] felix/table.go 698: …`.
pub fn felix(line: &LogLine, now: Timestamp, pid: u32) -> String {
    let level = match line.severity {
        Severity::Info => "INFO",
        Severity::Warning => "WARNING",
        Severity::Error => "ERROR",
        Severity::Fatal => "PANIC",
    };
    let time = now
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%d %H:%M:%S.%3f")
        .to_string();
    format!("{time} [{level}][{pid}] {}: {}", line.site, line.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_look_as_the_real_programs_print_them() {
        let now: Timestamp = "2025-06-10T07:32:16.910840Z".parse().unwrap();
        let line = |severity, site| LogLine {
            severity,
            site,
            text: "text".to_owned(),
        };
        let klog = klog(&line(Severity::Error, "proxier.go:1564"), now);
        assert_eq!(klog, "E0610 07:32:16.910840       1 proxier.go:1564] text");
        let felix = felix(&line(Severity::Warning, "felix/table.go 698"), now, 53);
        assert_eq!(
            felix,
            "2025-06-10 07:32:16.910 [WARNING][53] felix/table.go 698: text"
        );
    }
}
