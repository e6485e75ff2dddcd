//! Where rules, elements and counters are read.

use chainbreak_model::case::{Counter, ElementQuery, Family, IpFamily, RuleBackend, RuleQuery};

use super::tables;
use crate::cluster::FelixProgram;

/// What one command shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A table through one of iptables' backends, with its counters.
    Save {
        program: &'static str,
        table: String,
    },
    /// A table of nftables.
    Nft { family: Family, table: String },
    /// What a command of these words lists, of whatever table.
    All(&'static str),
    /// What this Felix says that its eBPF programs have counted.
    BpfCounters(FelixProgram),
    /// `conntrack -S`.
    Conntrack,
    /// `/proc/net/snmp` and its kin.
    Snmp,
}

impl Source {
    pub(crate) fn of_rule(rule: &RuleQuery) -> Self {
        let table = rule.table.clone();
        let program = match (rule.family, rule.backend) {
            (family, Some(RuleBackend::Nftables)) => return Self::nft(family, table),
            (Family::Ip6, None) => "ip6tables-save",
            (Family::Ip6, Some(RuleBackend::Legacy)) => "ip6tables-legacy-save",
            (Family::Ip6, Some(RuleBackend::Nft)) => "ip6tables-nft-save",
            // The reader knows that only nftables has tables for both.
            (Family::Ip | Family::Inet, None) => "iptables-save",
            (Family::Ip | Family::Inet, Some(RuleBackend::Legacy)) => "iptables-legacy-save",
            (Family::Ip | Family::Inet, Some(RuleBackend::Nft)) => "iptables-nft-save",
        };
        Self::Save { program, table }
    }

    pub(crate) fn of_element(element: &ElementQuery) -> Self {
        Self::nft(element.family, element.table.clone())
    }

    pub(crate) fn of_counter(counter: &Counter) -> Self {
        match counter {
            Counter::Conntrack(_) => Self::Conntrack,
            Counter::Snmp(_) => Self::Snmp,
            Counter::Rule(rule) => Self::of_rule(rule),
        }
    }

    fn nft(family: Family, table: String) -> Self {
        Self::Nft { family, table }
    }

    /// The table, where it is one.
    pub(crate) fn table(&self) -> Option<&str> {
        match self {
            Self::Save { table, .. } | Self::Nft { table, .. } => Some(table),
            Self::All(_) | Self::BpfCounters(_) | Self::Conntrack | Self::Snmp => None,
        }
    }

    /// What shows it where it is.
    pub(crate) fn listing(&self) -> Vec<String> {
        self.argv(true)
    }

    /// What shows it. `was_there` when an earlier look has found something.
    pub(super) fn argv(&self, was_there: bool) -> Vec<String> {
        match self {
            Self::Save { program, table } if was_there => tables::save(program, table),
            Self::Save { program, table } => tables::save_if_there(program, table),
            Self::Nft { family, table } => {
                words(["nft", "list", "table", &family.to_string(), table])
            }
            Self::All(listing) => words(listing.split(' ')),
            Self::BpfCounters(felix) => felix.dump("counters", IpFamily::V4),
            Self::Conntrack => words(["conntrack", "-S"]),
            Self::Snmp => {
                // Without IPv6 there is no snmp6.
                let all =
                    "cat /proc/net/snmp /proc/net/netstat; cat /proc/net/snmp6 2>/dev/null || true";
                words(["sh", "-c", all])
            }
        }
    }

    /// What that printed or how it failed: nft does where there is no such table, which is an answer.
    pub(super) fn shown(&self, ran: Result<String, String>) -> Result<String, String> {
        match (self, ran) {
            (Self::Nft { .. }, Err(why)) if why.contains("Error: No such file or directory") => {
                Ok(String::new())
            }
            (_, ran) => ran,
        }
    }
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}
