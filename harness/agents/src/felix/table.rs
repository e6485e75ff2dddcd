//! What Felix wants in one table, and what it believes is there (`felix/iptables/table.go`).
//!
//! A chain is wanted only while it can be reached by reference from a kernel chain. Reading is in
//! `load`, writing in `plan`; nothing here touches the kernel.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Backend, Family, InsertMode,
    log::Line,
    patterns::{Id, Patterns},
    renderer::Layout,
    rule::Chain,
};

/// One table of one family.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) family: Family,
    pub(super) backend: Backend,
    pub(super) patterns: Patterns,
    pub(super) insert_mode: InsertMode,
    /// Every chain Felix could program, wanted or not.
    pub(super) chains: BTreeMap<String, Chain>,
    /// Kernel chains with the rules Felix puts in front, or at the end in append mode.
    pub(super) inserts: BTreeMap<String, Chain>,
    /// Kernel chains with the rules Felix puts at the end in either mode.
    pub(super) appends: BTreeMap<String, Chain>,
    wanted: BTreeSet<String>,
    /// Felix's chains that must be looked at in the next write.
    pub(super) dirty_own: BTreeSet<String>,
    /// Other chains in which Felix's or old rules must be looked at in the next write.
    pub(super) dirty_foreign: BTreeSet<String>,
    /// The rules of every chain, as last read or written.
    pub(super) seen: BTreeMap<String, Vec<Id>>,
    /// The text of Felix's and old rules in other chains, as last read; nothing for foreign rules.
    pub(super) texts: BTreeMap<String, Vec<Option<String>>>,
    /// Whether `seen` is believed. Without that, the next apply reads the table first.
    pub(super) in_sync: bool,
    /// Why the table was read last, for the log.
    pub(super) reason: &'static str,
    /// Lines to log.
    pub(super) log: Vec<Line>,
}

impl Table {
    /// A table of which nothing is known. Its kernel chains are dirty, so that the first write
    /// removes what an earlier life put there.
    pub(super) fn new(
        name: &'static str,
        family: Family,
        backend: Backend,
        insert_mode: InsertMode,
        cleans_kube_proxy: bool,
    ) -> Self {
        let patterns = Patterns::new(name, cleans_kube_proxy);
        let line = Line::info(
            "felix/table.go 344",
            "Calculated old-insert detection regex.",
        )
        .text("pattern", patterns.old_insert());
        Self {
            name,
            family,
            backend,
            patterns,
            insert_mode,
            chains: BTreeMap::new(),
            inserts: BTreeMap::new(),
            appends: BTreeMap::new(),
            wanted: BTreeSet::new(),
            dirty_own: BTreeSet::new(),
            dirty_foreign: kernel_chains(name)
                .iter()
                .map(|&chain| chain.to_owned())
                .collect(),
            seen: BTreeMap::new(),
            texts: BTreeMap::new(),
            in_sync: false,
            reason: "",
            log: vec![line],
        }
    }

    /// Takes a whole rule set: new contents of chains, and no chains but those. What is already as
    /// given stays clean.
    pub(super) fn set(&mut self, layout: Layout) {
        let by_name = |chains: Vec<Chain>| -> BTreeMap<String, Chain> {
            chains
                .into_iter()
                .map(|chain| (chain.name.clone(), chain))
                .collect()
        };
        let (inserts, appends) = (by_name(layout.inserts), by_name(layout.appends));
        if inserts != self.inserts || appends != self.appends {
            let hooked = inserts.keys().chain(appends.keys());
            self.dirty_foreign.extend(hooked.cloned());
            self.invalidate("insertion");
            (self.inserts, self.appends) = (inserts, appends);
        }
        let chains = by_name(layout.chains);
        let differs = |name: &&String| chains.get(*name) != self.chains.get(*name);
        let touched: BTreeSet<String> = (chains.keys().chain(self.chains.keys()))
            .filter(differs)
            .filter(|name| self.wanted.contains(*name))
            .cloned()
            .collect();
        self.chains = chains;
        if !touched.is_empty() {
            self.dirty_own.extend(touched);
            // Others may have clobbered the table since it was read: read before each write.
            self.invalidate("chain update");
        }
        self.follow_references();
    }

    /// Marks chains that came into reach or fell out of it.
    fn follow_references(&mut self) {
        let roots = self.inserts.values().chain(self.appends.values());
        let mut open: Vec<&Chain> = roots.collect();
        let mut wanted = BTreeSet::new();
        while let Some(chain) = open.pop() {
            for target in chain.rules.iter().filter_map(|rule| rule.refers_to()) {
                if wanted.insert(target.to_owned()) {
                    open.extend(self.chains.get(target));
                }
            }
        }
        let line = |site, message: &str, chain: &String| {
            Line::info(site, message)
                .text("chainName", chain)
                .with("ipVersion", self.family.hex())
                .text("table", self.name)
        };
        for chain in wanted.difference(&self.wanted) {
            let message = "Chain became referenced, marking it for programming";
            self.log.push(line("felix/table.go 611", message, chain));
        }
        for chain in self.wanted.difference(&wanted) {
            let message = "Chain no longer referenced, marking it for removal";
            self.log.push(line("felix/table.go 627", message, chain));
        }
        self.dirty_own
            .extend(wanted.symmetric_difference(&self.wanted).cloned());
        self.wanted = wanted;
    }

    /// The chain as it shall be, unless it shall not be.
    pub(super) fn desired(&self, name: &str) -> Option<&Chain> {
        self.chains.get(name).filter(|_| self.wanted.contains(name))
    }

    /// What a chain that Felix puts rules into must hold, given how many foreign rules it has.
    pub(super) fn expected(&self, chain: &str, foreign: usize) -> Vec<Id> {
        let ids = |rules: Option<&Chain>| -> Vec<Id> {
            rules.map_or_else(Vec::new, |chain| {
                chain.ids.iter().cloned().map(Id::Ours).collect()
            })
        };
        let mut expected = vec![Id::Foreign; foreign];
        let at = match self.insert_mode {
            InsertMode::Insert => 0,
            InsertMode::Append => foreign,
        };
        expected.splice(at..at, ids(self.inserts.get(chain)));
        expected.extend(ids(self.appends.get(chain)));
        expected
    }

    /// Makes the next apply read the table first.
    pub(super) fn invalidate(&mut self, reason: &'static str) {
        if self.in_sync {
            self.in_sync = false;
            self.reason = reason;
        }
    }

    /// Adds the fields that most of the table's lines have.
    pub(super) fn about_this(&self, line: Line) -> Line {
        line.with("ipVersion", self.family.hex())
            .text("table", self.name)
    }
}

fn kernel_chains(table: &str) -> &'static [&'static str] {
    match table {
        "filter" => &["INPUT", "FORWARD", "OUTPUT"],
        "nat" => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
        "mangle" => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        _ => &["PREROUTING", "OUTPUT"],
    }
}
