//! Reading a table: what is there, and what of it is not as Felix left it (table.go,
//! `loadDataplaneState`). What is unexpected becomes dirty; the next write mends it.

use std::collections::BTreeMap;

use super::{log::Line, patterns::Id, table::Table};
use crate::step::Severity;

/// Every chain's rules: whose they are.
type Ids = BTreeMap<String, Vec<Id>>;
/// The text of Felix's and old rules in chains that are not Felix's; nothing for foreign rules.
type Texts = BTreeMap<String, Vec<Option<String>>>;

/// The table holds rules that `iptables-save` cannot print.
#[derive(Debug)]
pub(super) struct Incompatible;

impl Incompatible {
    pub(super) const TEXT: &'static str =
        "iptables-save failed because there are incompatible nft rules in the table";
}

impl Table {
    /// Takes the text of `iptables-save -t TABLE`.
    pub(super) fn load(&mut self, save: &str) -> Result<(), Incompatible> {
        let (read, texts) = self.read(save)?;
        let known = std::mem::take(&mut self.seen);
        self.check_known(&known, &read);
        self.check_new(&known, &read);
        self.seen = read;
        self.texts = texts;
        self.in_sync = true;
        Ok(())
    }

    /// The rules of one chain of a save, without taking the save for the table's state.
    pub(super) fn ids_in(&mut self, save: &str, chain: &str) -> Vec<Id> {
        let read = self.read(save).map(|(mut ids, _)| ids.remove(chain));
        read.ok().flatten().unwrap_or_default()
    }

    /// Every chain's ids; and for chains that are not Felix's but hold rules of it, the rules' text.
    fn read(&mut self, save: &str) -> Result<(Ids, Texts), Incompatible> {
        let (mut ids, mut texts) = (Ids::new(), Texts::new());
        for line in save.lines() {
            if line.starts_with("# Table ") && line.contains(" is incompatible, use 'nft' tool.") {
                let message = "iptables-save failed because there are incompatible nft rules in the table.  \
                               Remove the nft rules to continue.";
                let line = Line::new(Severity::Error, "felix/table.go 912", message);
                self.log.push(self.about_this(line));
                return Err(Incompatible);
            }
            if let Some(chain) = line.strip_prefix(':').and_then(first_word) {
                ids.insert(chain.to_owned(), Vec::new());
                continue;
            }
            let Some(chain) = line.strip_prefix("-A ").and_then(first_word) else {
                continue;
            };
            let id = self.patterns.id(line);
            if id == Id::Old {
                let message =
                    "Found inserted rule from previous Felix version, marking for cleanup.";
                let line = Line::info("felix/table.go 957", message).text("rule", line);
                self.log
                    .push(self.about_this(line.text("chainName", chain)));
            }
            if !self.patterns.is_own(chain) {
                let text = (id != Id::Foreign).then(|| line.to_owned());
                texts.entry(chain.to_owned()).or_default().push(text);
            }
            ids.entry(chain.to_owned()).or_default().push(id);
        }
        texts.retain(|_, rules| rules.iter().any(Option::is_some));
        Ok((ids, texts))
    }

    fn is_dirty(&self, chain: &str) -> bool {
        self.dirty_own.contains(chain) || self.dirty_foreign.contains(chain)
    }

    /// Compares the chains that Felix remembers.
    fn check_known(&mut self, known: &Ids, read: &Ids) {
        for (chain, expected) in known {
            if self.is_dirty(chain) {
                continue;
            }
            let actual = read.get(chain);
            if self.patterns.is_own(chain) {
                if actual != Some(expected) {
                    let message = "Detected out-of-sync Calico chain, marking for resync";
                    let line =
                        Line::warning("felix/table.go 704", message).text("chainName", chain);
                    self.log.push(self.about_this(line));
                    self.dirty_own.insert(chain.clone());
                }
                continue;
            }
            let actual = actual.map_or(&[][..], Vec::as_slice);
            let hooked = self.inserts.contains_key(chain) || self.appends.contains_key(chain);
            let expected = self.expected(chain, foreign(actual));
            if actual == expected {
                continue;
            }
            let line = if hooked {
                Line::warning(
                    "felix/table.go 698",
                    "Detected out-of-sync inserts, marking for resync",
                )
                .list("expectedRuleIDs", expected.iter().map(Id::as_str))
            } else {
                Line::warning(
                    "felix/table.go 681",
                    "Chain had unexpected inserts, marking for resync",
                )
            };
            let line = line
                .list("actualRuleIDs", actual.iter().map(Id::as_str))
                .text("chainName", chain);
            self.log.push(self.about_this(line));
            self.dirty_foreign.insert(chain.clone());
        }
    }

    /// Looks through the chains that Felix did not know.
    fn check_new(&mut self, known: &Ids, read: &Ids) {
        for (chain, ids) in read {
            if self.is_dirty(chain) || known.contains_key(chain) {
                continue;
            }
            if self.patterns.is_own(chain) {
                let line = Line::info(
                    "felix/table.go 739",
                    "Found unexpected chain, marking for cleanup",
                );
                self.log
                    .push(self.about_this(line.text("chainName", chain)));
                self.dirty_own.insert(chain.clone());
            } else if ids.iter().any(|id| *id != Id::Foreign) {
                let line = Line::info(
                    "felix/table.go 731",
                    "Found unexpected insert, marking for cleanup",
                );
                self.log
                    .push(self.about_this(line.text("chainName", chain)));
                self.dirty_foreign.insert(chain.clone());
            }
        }
    }
}

/// How many of the rules are nobody's.
pub(super) fn foreign(ids: &[Id]) -> usize {
    ids.iter().filter(|id| **id == Id::Foreign).count()
}

fn first_word(text: &str) -> Option<&str> {
    text.split_whitespace().next()
}
