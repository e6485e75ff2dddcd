//! The chains of one table, read once and indexed, so that a walk looks only at rules that can match.

use std::{collections::BTreeMap, net::IpAddr, ops::Range};

use super::{
    matches::{Match, Side, Test},
    parse,
    path::Hook,
    rules::{Indexed, Part},
};
use crate::save::Table;

/// A table.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// As a [`crate::Site`] names it: `nat`, `ip kube-proxy`.
    pub(super) table: String,
    pub(super) chains: Vec<Chain>,
    pub(super) bases: Vec<Base>,
}

/// Where a table begins at a hook.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) hook: Hook,
    pub(super) priority: i32,
    pub(super) kind: Kind,
    /// Its number.
    pub(super) chain: usize,
}

/// What a base chain is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Filter,
    /// Only for packets that begin a connection.
    Nat,
    /// What is made on the node is routed again after it, if it was changed (iptables' mangle, nft's `route`).
    Route,
}

/// A chain.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) name: String,
    /// Whether what no rule decides is dropped.
    pub(super) drops: bool,
    pub(super) rules: Vec<Indexed>,
    runs: Vec<Run>,
}

/// Rules in a row that each ask for one destination.
#[derive(Debug, Clone)]
struct Run {
    rules: Range<usize>,
    /// Their numbers, in order.
    by_destination: BTreeMap<IpAddr, Vec<usize>>,
}

/// From how many rules on an index is worth its while.
const LONG: usize = 8;

impl Program {
    /// Reads a table of iptables.
    pub(super) fn of_table(name: &str, table: &Table) -> Self {
        let numbers: BTreeMap<String, usize> = table.chains.keys().cloned().zip(0..).collect();
        let mut program = Self {
            table: name.to_owned(),
            chains: Vec::new(),
            bases: Vec::new(),
        };
        for ((chain_name, chain), number) in table.chains.iter().zip(0..) {
            let rules = chain.rules.iter().map(|it| parse::rule(it, &numbers));
            let drops = chain.policy.as_deref() == Some("DROP");
            let indexed = Chain::new(chain_name.clone(), drops, rules.collect());
            program.chains.push(indexed);
            let hook = chain.policy.as_ref().and_then(|_| Hook::parse(chain_name));
            program
                .bases
                .extend(hook.map(|hook| Base::of_iptables(name, hook, number)));
        }
        program
    }
}

impl Base {
    /// Where the tables of iptables are called (Linux 6.18, `uapi/linux/netfilter_ipv4.h`).
    fn of_iptables(table: &str, hook: Hook, chain: usize) -> Self {
        let source = matches!(hook, Hook::Input | Hook::Postrouting);
        let (priority, kind) = match table {
            "raw" => (-300, Kind::Filter),
            "mangle" => (-150, Kind::Route),
            "nat" if source => (100, Kind::Nat),
            "nat" => (-100, Kind::Nat),
            "security" => (50, Kind::Filter),
            _ => (0, Kind::Filter),
        };
        Self {
            hook,
            priority,
            kind,
            chain,
        }
    }
}

impl Chain {
    pub(super) fn new(name: String, drops: bool, rules: Vec<Indexed>) -> Self {
        let runs = runs(&rules);
        Self {
            name,
            drops,
            rules,
            runs,
        }
    }

    /// The first rule from `from` on that may match a packet to this destination.
    pub(super) fn next(&self, from: usize, destination: IpAddr) -> Option<usize> {
        let mut at = from;
        for run in &self.runs {
            if run.rules.contains(&at) {
                let numbers = run.by_destination.get(&destination);
                let mut numbers = numbers.into_iter().flatten();
                match numbers.find(|number| **number >= at) {
                    Some(number) => return Some(*number),
                    None => at = run.rules.end,
                }
            }
        }
        (at < self.rules.len()).then_some(at)
    }
}

/// Finds the runs that are long enough.
fn runs(rules: &[Indexed]) -> Vec<Run> {
    let destinations: Vec<Option<IpAddr>> = rules.iter().map(destination).collect();
    let mut runs = Vec::new();
    let mut at = 0;
    while at < rules.len() {
        let rest = destinations.iter().skip(at);
        let length = rest.take_while(|it| it.is_some()).count();
        if length >= LONG {
            let mut run = Run {
                rules: at..at + length,
                by_destination: BTreeMap::new(),
            };
            for (number, destination) in destinations.iter().enumerate().skip(at).take(length) {
                if let Some(destination) = destination {
                    run.by_destination
                        .entry(*destination)
                        .or_default()
                        .push(number);
                }
            }
            runs.push(run);
        }
        at += length.max(1);
    }
    runs
}

/// The one destination that a rule asks for before it does anything.
fn destination(rule: &Indexed) -> Option<IpAddr> {
    let conditions = rule.parts.iter().map_while(|part| match part {
        Part::If(condition) => Some(condition),
        Part::Do(_) => None,
    });
    let mut hosts = conditions.filter_map(|condition| match condition {
        Match {
            not: false,
            test: Test::Address(Side::Dst, net),
        } if net.prefix_len() == net.max_prefix_len() => Some(net.addr()),
        _ => None,
    });
    hosts.next()
}
