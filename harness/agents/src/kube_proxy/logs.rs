//! What kube-proxy says.
//!
//! Three layouts: formatted text (1.20), key and value (from 1.24), and the same from a logger that
//! puts `ipFamily` first (from 1.31). Line numbers are those of real logs and sources (1.20.2; 1.25, 1.28, 1.32.2
//! and 1.33 from issues 121362, 130170 and 138073); where none was seen, the distance of a seen
//! neighbour in another release was kept.

mod conntrack;
mod nftables;
mod services;

use std::{net::IpAddr, time::Duration};

use super::{
    Event,
    config::{Config, Family, Mode},
    input::Input,
    iptables::Failure,
    jumps::Jump,
    klog::{self, Value},
    profile::{LogStyle, Profile, Version},
};
use crate::step::{Io, Severity};

/// Writes the lines of one proxier.
#[derive(Debug, Clone)]
pub(crate) struct Logs {
    io: Io<Event>,
    style: LogStyle,
    mode: Mode,
    family: &'static str,
    verbosity: u8,
    version: Version,
    full_sync: bool,
    sites: &'static Sites,
}

/// Where each line is written from.
#[derive(Debug)]
struct Sites {
    liberal: &'static str,
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
}

macro_rules! sites {
    ($liberal:literal $not_ready:literal $complete:literal $syncing:literal $failed:literal $chain:literal $jump:literal
     $save:literal $reloading:literal $restore:literal $conntrack:literal) => {
        Sites {
            liberal: concat!("proxier.go:", $liberal),
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
        }
    };
}

static V1_20: Sites = sites!(255 817 825 861 866 874 882 915 1590 1595 1640);
static V1_26: Sites = sites!(255 809 820 853 858 866 874 897 1464 1481 1534);
static V1_27: Sites = sites!(255 788 804 810 815 845 854 1440 1529 1546 1585);
static V1_31: Sites = sites!(255 806 822 828 833 863 872 1458 1547 1564 1603);
static V1_33: Sites = sites!(255 790 809 815 820 852 861 1447 1536 1553 1592);

/// See [`nftables`]; lines that only iptables mode writes have no number.
static NFTABLES: Sites = sites!(0 1174 1193 1199 1143 0 0 1217 1840 1788 1862);

/// The monitor's lines, which stayed where they are in 1.20.2.
mod canary {
    pub(super) const SETUP: &str = "iptables.go:564";
    pub(super) const CHECK: &str = "iptables.go:576";
    pub(super) const DELETED: &str = "iptables.go:579";
    pub(super) const INCONSISTENT: &str = "iptables.go:592";
    pub(super) const RELOADING: &str = "iptables.go:605";
}

fn sites(version: &Version) -> &'static Sites {
    match (version.profile(), version.log_style()) {
        (Profile::V1_20, _) => &V1_20,
        (Profile::V1_26, _) => &V1_26,
        (Profile::V1_27, LogStyle::Contextual) => &V1_31,
        (Profile::V1_27, _) => &V1_27,
        (Profile::V1_33 | Profile::V1_34, _) => &V1_33,
    }
}

impl Logs {
    pub(crate) fn new(io: Io<Event>, config: &Config) -> Self {
        let version = &config.version;
        Self {
            io,
            style: version.log_style(),
            mode: config.mode,
            family: config.family.as_str(),
            verbosity: config.verbosity,
            version: version.clone(),
            full_sync: version.logs_full_sync(),
            sites: match config.mode {
                Mode::Iptables => sites(version),
                Mode::Nftables => &NFTABLES,
            },
        }
    }

    /// At the start, when the INVALID rule is left out for good.
    pub(crate) fn liberal(&self) {
        let text = "nf_conntrack_tcp_be_liberal set, not installing DROP rules for INVALID packets";
        self.info(0, self.sites.liberal, text, &[]);
    }

    /// At the start, when the kernel has no `nfnetlink_acct`.
    pub(crate) fn no_nfacct(&self) {
        let text = "Failed to create nfacct runner, nfacct based metrics won't be available";
        let error = "nfacct sub-system not available";
        self.error("proxier.go:283", text, error, &[]);
    }

    /// A counter could not be made: rules do without.
    pub(crate) fn counter_failed(&self, name: &str, error: &str) {
        let text = "Failed to create nfacct counter; the corresponding metric will not be updated";
        let pairs = [("counter", Value::Text(name))];
        self.error("proxier.go:878", text, error, &pairs);
    }

    /// A sync before the API was read.
    pub(crate) fn not_ready(&self) {
        let text = format!(
            "Not syncing {} until Services and Endpoints have been received from master",
            self.mode.as_str()
        );
        self.info(2, self.sites.not_ready, &text, &[]);
    }

    /// A sync begins.
    pub(crate) fn syncing(&self, full: bool) {
        let full = [("fullSync", Value::Bare(full.to_string()))];
        let pairs: &[_] = if self.full_sync { &full } else { &[] };
        let text = format!("Syncing {} rules", self.mode.as_str());
        self.info(2, self.sites.syncing, &text, pairs);
    }

    /// The input is ready.
    pub(crate) fn reloading(&self, services: usize, endpoints: usize, input: &Input) {
        if !self.version.counts_what_it_writes() {
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

    /// An address of the loopback takes no node ports (1.27 and later).
    pub(crate) fn localhost_not_supported(&self, ip: IpAddr, family: Family) {
        let text = match family {
            Family::Ipv4 => {
                "--nodeport-addresses includes localhost but --iptables-localhost-nodeports=false was passed"
            }
            Family::Ipv6 => {
                "--nodeport-addresses includes localhost but localhost NodePorts are not supported on IPv6"
            }
        };
        self.address_refused(self.sites.save, text, ip);
    }

    fn address_refused(&self, site: &'static str, text: &str, ip: IpAddr) {
        let mut line = format!("{text:?}");
        self.append(&mut line, &[("address", Value::Text(&ip.to_string()))]);
        self.io.log(Severity::Error, site, line);
    }

    /// A sync is over, well or not.
    pub(crate) fn complete(&self, took: Duration) {
        let took = klog::go_duration(took);
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
        let retry = klog::go_duration(retry);
        if self.style == LogStyle::Plain {
            let text = format!("Sync failed; retrying in {retry}");
            self.plain(0, Severity::Info, self.sites.failed, text);
        } else {
            let pairs = [("retryingTime", Value::Text(&retry))];
            self.info(0, self.sites.failed, "Sync failed", &pairs);
        }
    }

    /// iptables-restore refused the input. The line that it names is looked for from 1.24 on and never found: the
    /// pattern is held against the end of the text, behind which there is a line break (iptables.go, 1.24 to 1.36;
    /// seen in 1.28.15 and 1.36.1).
    pub(crate) fn restore_failed(&self, failure: &Failure) {
        let site = self.sites.restore;
        let text = "Failed to execute iptables-restore";
        if self.style == LogStyle::Plain {
            let (status, output) = (failure.status(), failure.output());
            let text = format!("{text}: {status} ({output})");
            self.plain(0, Severity::Error, site, text);
            let text = "Closing local ports after iptables-restore failure".to_owned();
            self.plain(2, Severity::Info, "proxier.go:1598", text);
        } else if self.version.brackets_restore_errors() {
            let error = format!("{} ({})", failure.status(), failure.output());
            self.error(site, text, &error, &[]);
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

    /// The canary could not be made.
    pub(crate) fn canary_setup_failed(&self, table: &str, chain: &str, error: &str) {
        let text = "Could not set up iptables canary";
        self.canary_failed(canary::SETUP, text, table, chain, error);
    }

    /// Whether the canary is alive could not be told.
    pub(crate) fn canary_check_failed(&self, table: &str, chain: &str, failure: &Failure) {
        let error = format!("error listing chain {chain:?} in table {table:?}: {failure}");
        let text = "Could not check for iptables canary";
        self.canary_failed(canary::CHECK, text, table, chain, &error);
    }

    fn canary_failed(&self, site: &'static str, text: &str, table: &str, chain: &str, error: &str) {
        if self.version.monitors_in_plain_text() {
            let text = format!("{text} {table}/{chain}: {error}");
            self.plain(0, Severity::Warning, site, text);
        } else {
            let pairs = [("table", Value::Text(table)), ("chain", Value::Text(chain))];
            self.monitor().error(site, text, error, &pairs);
        }
    }

    /// The canary is dead.
    pub(crate) fn canary_deleted(&self, table: &str, chain: &str) {
        let site = canary::DELETED;
        if self.version.monitors_in_plain_text() {
            let text = format!("iptables canary {table}/{chain} deleted");
            self.plain(2, Severity::Info, site, text);
        } else {
            let pairs = [("table", Value::Text(table)), ("chain", Value::Text(chain))];
            self.monitor()
                .info(2, site, "IPTables canary deleted", &pairs);
        }
    }

    /// Only some canaries died.
    pub(crate) fn canary_inconsistent(&self) {
        let site = canary::INCONSISTENT;
        if self.version.monitors_in_plain_text() {
            let text = "Inconsistent iptables state detected.".to_owned();
            self.plain(0, Severity::Warning, site, text);
        } else {
            let text = "Inconsistent iptables state detected";
            self.monitor().info(0, site, text, &[]);
        }
    }

    /// A forced sync follows.
    pub(crate) fn canary_reloading(&self) {
        let text = "Reloading after iptables flush";
        self.monitor().info(2, canary::RELOADING, text, &[]);
    }

    /// As the monitor writes: iptables.go has no logger of its own.
    fn monitor(&self) -> Self {
        if self.version.monitors_in_plain_text() {
            return Self {
                style: LogStyle::Plain,
                ..self.clone()
            };
        }
        self.bare()
    }

    /// The same without the family.
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
            klog::append(&mut line, "err", error);
            self.append(&mut line, pairs);
            line
        };
        self.io.log(Severity::Error, site, line);
    }

    fn append(&self, line: &mut String, pairs: &[(&str, Value<'_>)]) {
        if self.style == LogStyle::Contextual {
            klog::append(line, "ipFamily", self.family);
        }
        for (key, value) in pairs {
            match value {
                Value::Text(text) => klog::append(line, key, text),
                Value::Bare(text) => line.extend([" ", key, "=", text]),
            }
        }
    }
}
