//! What kube-proxy says, in klog's layouts.
//!
//! Three layouts: formatted text (1.20), key and value (from 1.24), and the same from a logger that
//! puts `ipFamily` first (from 1.31). A value of several lines is written between `<` and ` >`, each
//! line behind a tab. Line numbers are those of real logs and sources (1.20.2; 1.25, 1.28, 1.32.2
//! and 1.33 from issues 121362, 130170 and 138073); where none was seen, the distance of a seen
//! neighbour in another release was kept.

use std::time::Duration;

use super::{
    Event,
    config::Config,
    input::Input,
    iptables::Failure,
    jumps::Jump,
    profile::{LogStyle, Profile, Version},
};
use crate::step::{Io, Severity};

/// Writes the lines of one proxier.
#[derive(Debug, Clone)]
pub(crate) struct Logs {
    io: Io<Event>,
    style: LogStyle,
    family: &'static str,
    verbosity: u8,
    full_sync: bool,
    sites: &'static Sites,
}

/// Where each line is written from.
#[derive(Debug)]
struct Sites {
    not_ready: &'static str,
    complete: &'static str,
    syncing: &'static str,
    failed: &'static str,
    chain: &'static str,
    jump: &'static str,
    save: &'static str,
    reloading: &'static str,
    restore: &'static str,
    conntrack: &'static str,
    canary: &'static str,
}

macro_rules! sites {
    ($not_ready:literal $complete:literal $syncing:literal $failed:literal $chain:literal $jump:literal
     $save:literal $reloading:literal $restore:literal $conntrack:literal $canary:literal) => {
        Sites {
            not_ready: concat!("proxier.go:", $not_ready),
            complete: concat!("proxier.go:", $complete),
            syncing: concat!("proxier.go:", $syncing),
            failed: concat!("proxier.go:", $failed),
            chain: concat!("proxier.go:", $chain),
            jump: concat!("proxier.go:", $jump),
            save: concat!("proxier.go:", $save),
            reloading: concat!("proxier.go:", $reloading),
            restore: concat!("proxier.go:", $restore),
            conntrack: concat!("proxier.go:", $conntrack),
            canary: concat!("iptables.go:", $canary),
        }
    };
}

static V1_20: Sites = sites!(811 820 860 866 872 882 901 1590 1595 1630 587);
static V1_26: Sites = sites!(809 820 853 858 866 874 897 1464 1481 1534 587);
static V1_27: Sites = sites!(788 804 810 815 845 854 1440 1529 1546 1585 587);
static V1_31: Sites = sites!(806 822 828 833 863 872 1458 1547 1564 1603 587);
static V1_33: Sites = sites!(790 809 815 820 852 861 1447 1536 1553 1592 587);

fn sites(version: &Version) -> &'static Sites {
    match (version.profile(), version.log_style()) {
        (Profile::V1_20, _) => &V1_20,
        (Profile::V1_26, _) => &V1_26,
        (Profile::V1_27, LogStyle::Contextual) => &V1_31,
        (Profile::V1_27, _) => &V1_27,
        (Profile::V1_33 | Profile::V1_34, _) => &V1_33,
    }
}

/// A value of a structured line.
enum Value<'a> {
    Text(&'a str),
    /// Numbers, truths and lists are not quoted.
    Bare(String),
}

impl Logs {
    pub(crate) fn new(io: Io<Event>, config: &Config) -> Self {
        let version = &config.version;
        Self {
            io,
            style: version.log_style(),
            family: config.family.as_str(),
            verbosity: config.verbosity,
            full_sync: version.logs_full_sync(),
            sites: sites(version),
        }
    }

    /// A sync before the API was read.
    pub(crate) fn not_ready(&self) {
        let text =
            "Not syncing iptables until Services and Endpoints have been received from master";
        self.info(2, self.sites.not_ready, text, &[]);
    }

    /// A sync begins.
    pub(crate) fn syncing(&self, full: bool) {
        let full = [("fullSync", Value::Bare(full.to_string()))];
        let pairs: &[_] = if self.full_sync { &full } else { &[] };
        self.info(2, self.sites.syncing, "Syncing iptables rules", pairs);
    }

    /// The input is ready. 1.20 says nothing at this level.
    pub(crate) fn reloading(&self, services: usize, endpoints: usize, input: &Input) {
        if self.style == LogStyle::Plain {
            return;
        }
        let pairs = [
            ("numServices", services),
            ("numEndpoints", endpoints),
            ("numFilterChains", input.filter_chains.count()),
            ("numFilterRules", input.filter_rules.count()),
            ("numNATChains", input.nat_chains.count()),
            ("numNATRules", input.nat_rules.count()),
        ]
        .map(|(key, number)| (key, Value::Bare(number.to_string())));
        let text = "Reloading service iptables data";
        self.info(2, self.sites.reloading, text, &pairs);
    }

    /// A sync is over, well or not.
    pub(crate) fn complete(&self, took: Duration) {
        let took = go_duration(took);
        if self.style == LogStyle::Plain {
            let text = format!("syncProxyRules took {took}");
            self.plain(2, Severity::Info, self.sites.complete, text);
        } else {
            let pairs = [("elapsed", Value::Text(&took))];
            self.info(2, self.sites.complete, "SyncProxyRules complete", &pairs);
        }
    }

    /// A sync failed.
    pub(crate) fn sync_failed(&self, retry: Duration) {
        let retry = go_duration(retry);
        if self.style == LogStyle::Plain {
            let text = format!("Sync failed; retrying in {retry}");
            self.plain(0, Severity::Info, self.sites.failed, text);
        } else {
            let pairs = [("retryingTime", Value::Text(&retry))];
            self.info(0, self.sites.failed, "Sync failed", &pairs);
        }
    }

    /// iptables-restore refused the input.
    pub(crate) fn restore_failed(&self, failure: &Failure, input: &str) {
        let site = self.sites.restore;
        let text = "Failed to execute iptables-restore";
        if self.style == LogStyle::Plain {
            let (status, output) = (failure.status(), failure.output());
            let text = format!("{text}: {status} ({output})");
            self.plain(0, Severity::Error, site, text);
        } else if let Some((command, line)) = input_error(failure.output()) {
            let error = format!("{command}: input error on line {line}: ");
            let rules = around(input, line, self.style);
            self.error(site, text, &error, &[("rules", Value::Bare(rules))]);
        } else {
            self.error(site, text, &failure.to_string(), &[]);
        }
    }

    /// iptables-save failed: stale chains stay.
    pub(crate) fn save_failed(&self, failure: &Failure, all_rules: bool) {
        let text = if all_rules {
            "Failed to execute iptables-save, syncing all rules"
        } else {
            "Failed to execute iptables-save: stale chains will not be deleted"
        };
        self.error(self.sites.save, text, &failure.status(), &[]);
    }

    /// A chain could not be made.
    pub(crate) fn chain_failed(&self, table: &str, chain: &str, error: &str) {
        if self.style == LogStyle::Plain {
            let text = format!("Failed to ensure that {table} chain {chain} exists: {error}");
            self.plain(0, Severity::Error, self.sites.chain, text);
        } else {
            let pairs = [("table", Value::Text(table)), ("chain", Value::Text(chain))];
            self.error(
                self.sites.chain,
                "Failed to ensure chain exists",
                error,
                &pairs,
            );
        }
    }

    /// A jump could not be made.
    pub(crate) fn jump_failed(&self, jump: &Jump, error: &str) {
        let Jump {
            table, from, to, ..
        } = *jump;
        if self.style == LogStyle::Plain {
            let text = format!("Failed to ensure that {table} chain {from} jumps to {to}: {error}");
            self.plain(0, Severity::Error, self.sites.jump, text);
        } else {
            let pairs = [("table", table), ("srcChain", from), ("dstChain", to)]
                .map(|(key, text)| (key, Value::Text(text)));
            self.error(
                self.sites.jump,
                "Failed to ensure chain jumps",
                error,
                &pairs,
            );
        }
    }

    /// Stale UDP flows could not be deleted.
    pub(crate) fn conntrack_failed(&self, what: &str, failure: &Failure) {
        let output = failure.output();
        let status = failure.status();
        let error = format!("conntrack command returned: {output:?}, error message: {status}");
        let text = format!("Failed to delete stale {what} connections");
        self.error(self.sites.conntrack, &text, &error, &[]);
    }

    /// The canary could not be made.
    pub(crate) fn canary_setup_failed(&self, table: &str, chain: &str, error: &str) {
        self.canary_failed("Could not set up iptables canary", table, chain, error);
    }

    /// Whether the canary is alive could not be told.
    pub(crate) fn canary_check_failed(&self, table: &str, chain: &str, failure: &Failure) {
        let error = format!("error listing chain {chain:?} in table {table:?}: {failure}");
        self.canary_failed("Could not check for iptables canary", table, chain, &error);
    }

    fn canary_failed(&self, text: &str, table: &str, chain: &str, error: &str) {
        let site = self.sites.canary;
        if self.style == LogStyle::Plain {
            let text = format!("{text} {table}/{chain}: {error}");
            self.plain(0, Severity::Warning, site, text);
        } else {
            let pairs = [("table", Value::Text(table)), ("chain", Value::Text(chain))];
            self.bare().error(site, text, error, &pairs);
        }
    }

    /// The canary is dead.
    pub(crate) fn canary_deleted(&self, table: &str, chain: &str) {
        let site = self.sites.canary;
        if self.style == LogStyle::Plain {
            let text = format!("iptables canary {table}/{chain} deleted");
            self.plain(2, Severity::Info, site, text);
        } else {
            let pairs = [("table", Value::Text(table)), ("chain", Value::Text(chain))];
            self.bare().info(2, site, "IPTables canary deleted", &pairs);
        }
    }

    /// Only some canaries died.
    pub(crate) fn canary_inconsistent(&self) {
        let site = self.sites.canary;
        if self.style == LogStyle::Plain {
            let text = "Inconsistent iptables state detected.".to_owned();
            self.plain(0, Severity::Warning, site, text);
        } else {
            let text = "Inconsistent iptables state detected";
            self.bare().info(0, site, text, &[]);
        }
    }

    /// A forced sync follows.
    pub(crate) fn canary_reloading(&self) {
        let text = "Reloading after iptables flush";
        self.bare().info(2, self.sites.canary, text, &[]);
    }

    /// The same without the family: iptables.go has no logger of its own.
    fn bare(&self) -> Self {
        let style = match self.style {
            LogStyle::Contextual => LogStyle::Structured,
            style => style,
        };
        Self {
            style,
            ..self.clone()
        }
    }

    fn plain(&self, level: u8, severity: Severity, site: &'static str, text: String) {
        if level <= self.verbosity {
            self.io.log(severity, site, text);
        }
    }

    fn info(&self, level: u8, site: &'static str, text: &str, pairs: &[(&str, Value<'_>)]) {
        let mut line = match self.style {
            LogStyle::Plain => text.to_owned(),
            LogStyle::Structured | LogStyle::Contextual => format!("{text:?}"),
        };
        self.append(&mut line, pairs);
        self.plain(level, Severity::Info, site, line);
    }

    fn error(&self, site: &'static str, text: &str, error: &str, pairs: &[(&str, Value<'_>)]) {
        let line = if self.style == LogStyle::Plain {
            format!("{text}: {error}")
        } else {
            let mut line = format!("{text:?}");
            append_text(&mut line, "err", error);
            self.append(&mut line, pairs);
            line
        };
        self.io.log(Severity::Error, site, line);
    }

    fn append(&self, line: &mut String, pairs: &[(&str, Value<'_>)]) {
        if self.style == LogStyle::Contextual {
            append_text(line, "ipFamily", self.family);
        }
        for (key, value) in pairs {
            match value {
                Value::Text(text) => append_text(line, key, text),
                Value::Bare(text) => line.extend([" ", key, "=", text]),
            }
        }
    }
}

/// Several lines are written as they are, behind tabs; a line break at the end adds no line.
fn append_text(line: &mut String, key: &str, text: &str) {
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

/// `cmd: line N failed`, and nothing else, names a line of the input.
fn input_error(output: &str) -> Option<(&str, usize)> {
    let (command, rest) = output.split_once(':')?;
    if rest.contains(':') {
        return None;
    }
    let number = rest.split_once("line ")?.1.strip_suffix(" failed\n")?;
    Some((command, number.parse().ok()?))
}

/// The named line with three before and after it.
fn around(input: &str, line: usize, style: LogStyle) -> String {
    let numbered = input.lines().enumerate().map(|(at, text)| (at + 1, text));
    let shown: Vec<String> = numbered
        .filter(|(at, _)| at.abs_diff(line) <= 3)
        .map(|(at, text)| match style {
            LogStyle::Contextual => format!("{{\"Line\":{at},\"Data\":{text:?}}}"),
            LogStyle::Plain | LogStyle::Structured => format!("{{Line:{at} Data:{text}}}"),
        })
        .collect();
    let between = if style == LogStyle::Contextual {
        ","
    } else {
        " "
    };
    format!("[{}]", shown.join(between))
}

/// As Go's `time.Duration` prints itself.
fn go_duration(duration: Duration) -> String {
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

    #[test]
    fn only_a_bare_line_number_is_an_input_error() {
        assert_eq!(
            input_error("iptables-restore: line 7 failed\n"),
            Some(("iptables-restore", 7))
        );
        let missing = "iptables-restore v1.8.9 (legacy): Couldn't load target `KUBE-SVC-A':No such \
                       file or directory\n\nError occurred at line: 22\n";
        assert_eq!(input_error(missing), None);
    }

    #[test]
    fn the_lines_around_an_input_error_are_shown() {
        let input = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        assert_eq!(
            around(input, 2, LogStyle::Structured),
            "[{Line:1 Data:1} {Line:2 Data:2} {Line:3 Data:3} {Line:4 Data:4} {Line:5 Data:5}]"
        );
        assert_eq!(
            around(input, 9, LogStyle::Contextual),
            "[{\"Line\":6,\"Data\":\"6\"},{\"Line\":7,\"Data\":\"7\"},{\"Line\":8,\"Data\":\"8\"},\
             {\"Line\":9,\"Data\":\"9\"}]"
        );
    }
}
