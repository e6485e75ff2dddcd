//! A world: the rules of a node, its settings, and packets.

use std::fmt::Write as _;

use chainbreak_netfilter::{Family, walk::Packet};

use crate::{front::Front, places::Place};

/// A rule: its table, its chain, its text.
pub(crate) type Line = (&'static str, String, String);

/// A world: rules, settings and packets.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) family: Family,
    pub(crate) backend: &'static str,
    pub(crate) rules: Vec<Line>,
    pub(crate) drops: Vec<(&'static str, &'static str)>,
    pub(crate) rp_filter: [u32; 2],
    pub(crate) packets: Vec<Sent>,
}

/// A packet and who sends it. With `answers` it is turned round when the earlier packet of that number arrived, and
/// goes as that one arrived.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) from: Place,
    pub(crate) packet: Packet,
    pub(crate) answers: Option<usize>,
}

/// Tables and the chains that the kernel enters.
pub(crate) const TABLES: [(&str, &[&str]); 4] = [
    ("raw", &["PREROUTING", "OUTPUT"]),
    (
        "mangle",
        &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
    ),
    ("nat", &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]),
    ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
];

/// What a user's chain may be called from: NAT of destinations and of sources are for different hooks.
pub(crate) const SIDES: [&str; 2] = ["PRE", "POST"];

impl World {
    /// Without any rules.
    pub(crate) fn empty() -> Self {
        Self {
            family: Family::V4,
            backend: "legacy",
            rules: Vec::new(),
            drops: Vec::new(),
            rp_filter: [0, 0],
            packets: Vec::new(),
        }
    }

    /// What its rules are loaded with.
    pub(crate) fn front(&self) -> Front {
        Front {
            family: self.family,
            backend: self.backend,
        }
    }

    /// The input of iptables-restore. Every policy is in it: iptables-legacy-restore keeps those that no line names.
    pub(crate) fn restore(&self) -> String {
        let mut input = String::new();
        for (table, hooks) in TABLES {
            writeln!(input, "*{table}").unwrap();
            for hook in hooks {
                let drops = self.drops.contains(&(table, hook));
                let policy = if drops { "DROP" } else { "ACCEPT" };
                writeln!(input, ":{hook} {policy} [0:0]").unwrap();
            }
            for side in SIDES {
                (1..4).for_each(|depth| writeln!(input, ":{side}-{depth} - [0:0]").unwrap());
            }
            for (_, chain, rule) in self.rules.iter().filter(|(of, ..)| *of == table) {
                writeln!(input, "-A {chain} {rule}").unwrap();
            }
            input.push_str("COMMIT\n");
        }
        input
    }
}
