//! Lines as Felix logs them: the message, then its fields by name (libcalico-go, logutils.go).
//! File and line are those of v3.28.1 whatever the version; nothing should match on line numbers.

use std::{fmt::Write, time::Duration};

use crate::step::{LogLine, Severity};

/// A log line under construction.
#[derive(Debug)]
pub(super) struct Line {
    severity: Severity,
    site: &'static str,
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Line {
    pub(super) fn new(severity: Severity, site: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity,
            site,
            message: message.into(),
            fields: Vec::new(),
        }
    }

    pub(super) fn info(site: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Info, site, message)
    }

    pub(super) fn warning(site: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, site, message)
    }

    /// A field that is an error or prints itself.
    pub(super) fn with(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }

    /// A string field.
    pub(super) fn text(self, name: &'static str, value: &str) -> Self {
        let quoted = quote(value);
        self.with(name, quoted)
    }

    /// A field that is a list of strings.
    pub(super) fn list<'a>(
        self,
        name: &'static str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let quoted: Vec<String> = values.into_iter().map(quote).collect();
        self.with(name, format!("[]string{{{}}}", quoted.join(", ")))
    }

    pub(super) fn build(mut self) -> LogLine {
        self.fields.sort();
        let mut text = self.message;
        for (name, value) in &self.fields {
            write!(text, " {name}={value}").expect("a String takes everything");
        }
        LogLine {
            severity: self.severity,
            site: self.site,
            text,
        }
    }
}

/// Go's `%#v` of a string.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => {
                write!(quoted, "\\x{:02x}", u32::from(c)).expect("a String takes everything");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Go's `time.Duration.String`, to the microsecond.
pub(super) fn go_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if time < Duration::from_millis(1) {
        return format!("{}µs", time.as_micros());
    }
    if time < Duration::from_secs(1) {
        return format!("{}ms", seconds * 1000.0);
    }
    let (minutes, hours) = (time.as_secs() / 60, time.as_secs() / 3600);
    let rest = Duration::from_secs(minutes * 60);
    let seconds = time.saturating_sub(rest).as_secs_f64();
    match (hours, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_sorted_and_as_go_prints_them() {
        let line = Line::info("felix/table.go 957", "Found it.")
            .text("table", "nat")
            .with("ipVersion", "0x4")
            .list("actualRuleIDs", ["", "OLD INSERT RULE"])
            .text("rule", "-A X -m comment --comment \"a b\"\n");
        assert_eq!(
            line.build().text,
            r#"Found it. actualRuleIDs=[]string{"", "OLD INSERT RULE"} ipVersion=0x4 rule="-A X -m comment --comment \"a b\"\n" table="nat""#
        );
    }

    #[test]
    fn durations_read_like_go() {
        let go = |ms| go_duration(Duration::from_millis(ms));
        assert_eq!(
            [go(1500), go(250), go(62_000), go(3_600_000)],
            ["1.5s", "250ms", "1m2s", "1h0m0s"]
        );
    }
}
