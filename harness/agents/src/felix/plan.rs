//! Writing a table: the input of `iptables-restore` that mends what is dirty (table.go, `applyUpdates`).
//!
//! In this order, in one transaction: own chains that come or go are created empty, which severs the
//! references between those that go; own chains get their rules, on legacy as deltas, on nft from scratch;
//! Felix's and old rules in other chains are deleted by value and put back where they belong; chains
//! are deleted. On nft the last step is a transaction of its own, because a chain must be without
//! references when the transaction begins. Among chains the order is Go's map order: any.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Backend, InsertMode, load::foreign, patterns::Id, rule::Chain, table::Table};

/// A write and what will be known once it succeeded.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The input of `iptables-restore`; empty when there is nothing to do.
    pub(super) input: String,
    /// The rules of the written chains afterwards; nothing for a deleted chain.
    written: BTreeMap<String, Option<Vec<Id>>>,
}

impl Table {
    /// The next write. It changes nothing yet: the write may fail.
    pub(super) fn plan(&self, order: &mut ChaCha8Rng) -> Plan {
        let mut own: Vec<&str> = self.dirty_own.iter().map(String::as_str).collect();
        let mut others: Vec<&str> = self.dirty_foreign.iter().map(String::as_str).collect();
        own.shuffle(order);
        others.shuffle(order);
        if self.backend == Backend::Nft {
            own.retain(|chain| !self.is_right(chain));
        }
        let mut input = Input::new(self.name);
        let mut written = BTreeMap::new();
        for &chain in own.iter().filter(|chain| self.starts_empty(chain)) {
            input.forward(chain);
        }
        for (chain, desired) in own
            .iter()
            .filter_map(|chain| Some((*chain, self.desired(chain)?)))
        {
            self.write_own(chain, desired, &mut input);
            written.insert(chain.to_owned(), Some(ours(desired)));
        }
        for chain in others {
            if let Some(ids) = self.write_foreign(chain, &mut input) {
                written.insert(chain.to_owned(), Some(ids));
            }
        }
        let gone = || own.iter().filter(|chain| self.desired(chain).is_none());
        if self.backend == Backend::Nft {
            input.next_transaction();
            gone().for_each(|chain| input.forward(chain));
        }
        for &chain in gone() {
            input.line(&format!("--delete-chain {chain}"));
            written.insert(chain.to_owned(), None);
        }
        Plan {
            input: input.finish(),
            written,
        }
    }

    /// The write succeeded, or there was nothing to write.
    pub(super) fn commit(&mut self, plan: Plan) {
        for (chain, ids) in plan.written {
            match ids {
                Some(ids) => drop(self.seen.insert(chain, ids)),
                None => drop(self.seen.remove(&chain)),
            }
        }
        self.dirty_own.clear();
        self.dirty_foreign.clear();
    }

    /// Whether the chain has rules and they are the desired ones.
    fn is_right(&self, chain: &str) -> bool {
        let seen = self.seen.get(chain).filter(|ids| !ids.is_empty());
        seen.is_some_and(|seen| {
            self.desired(chain)
                .is_some_and(|desired| *seen == ours(desired))
        })
    }

    /// Whether the write creates or flushes the chain first.
    fn starts_empty(&self, chain: &str) -> bool {
        let legacy_delta = self.backend == Backend::Legacy
            && self.desired(chain).is_some()
            && self.seen.contains_key(chain);
        !legacy_delta
    }

    fn write_own(&self, chain: &str, desired: &Chain, input: &mut Input) {
        let before = match self.backend {
            Backend::Legacy => self.seen.get(chain).map_or(&[][..], Vec::as_slice),
            Backend::Nft => &[],
        };
        for (index, id) in desired.ids.iter().enumerate() {
            match before.get(index) {
                Some(Id::Ours(old)) if old == id => {}
                Some(_) => input.line(&desired.line(index, &format!("-R {chain} {}", index + 1))),
                None => input.line(&desired.line(index, &format!("-A {chain}"))),
            }
        }
        for _ in desired.ids.len()..before.len() {
            input.line(&format!("-D {chain} {}", desired.ids.len() + 1));
        }
    }

    /// Removes Felix's and old rules by value, so that whatever others do meanwhile, no rule of theirs
    /// is hit; then puts Felix's rules back. Nothing when the chain is as it shall be.
    fn write_foreign(&self, chain: &str, input: &mut Input) -> Option<Vec<Id>> {
        let before = self.seen.get(chain).map_or(&[][..], Vec::as_slice);
        let expected = self.expected(chain, foreign(before));
        if before == expected {
            return None;
        }
        let texts = self.texts.get(chain).map_or(&[][..], Vec::as_slice);
        for text in texts.iter().flatten() {
            input.line(&text.replacen("-A", "-D", 1));
        }
        if let Some(rules) = self.inserts.get(chain) {
            let indices = 0..rules.rules.len();
            match self.insert_mode {
                InsertMode::Insert => {
                    // Each goes to the top, so the last one goes first.
                    indices
                        .rev()
                        .for_each(|index| input.line(&rules.line(index, &format!("-I {chain}"))));
                }
                InsertMode::Append => {
                    indices
                        .for_each(|index| input.line(&rules.line(index, &format!("-A {chain}"))));
                }
            }
        }
        if let Some(rules) = self.appends.get(chain) {
            (0..rules.rules.len())
                .for_each(|index| input.line(&rules.line(index, &format!("-A {chain}"))));
        }
        Some(expected)
    }
}

fn ours(chain: &Chain) -> Vec<Id> {
    chain.ids.iter().cloned().map(Id::Ours).collect()
}

/// The input of `iptables-restore`. A transaction without lines leaves no trace.
pub(super) struct Input {
    table: &'static str,
    text: String,
    open: bool,
}

impl Input {
    pub(super) fn new(table: &'static str) -> Self {
        Self {
            table,
            text: String::new(),
            open: false,
        }
    }

    /// Creates the chain, or flushes it.
    fn forward(&mut self, chain: &str) {
        self.line(&format!(":{chain} - -"));
    }

    pub(super) fn line(&mut self, line: &str) {
        if !self.open {
            self.open = true;
            self.text.extend(["*", self.table, "\n"]);
        }
        self.text.extend([line, "\n"]);
    }

    fn next_transaction(&mut self) {
        if std::mem::take(&mut self.open) {
            self.text.push_str("COMMIT\n");
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.next_transaction();
        self.text
    }
}
