//! What a command of a thousand lines comes to.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_netfilter::{Change, ChangeKind, Owner};

use crate::{
    deeds::{Deed, Deeds, InTable, Named, Verb},
    edits::{BUILT_IN, Effect},
};

/// What happened to a chain in the course of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Deleted,
    Emptied,
    Written,
    Extended,
}

/// Chains and jumps of one table.
#[derive(Debug, Default)]
struct Touched<'a> {
    chains: Vec<&'a str>,
    /// From which chain to which.
    jumps: Vec<(&'a str, &'a str)>,
}

/// The outcome of a command: its last word on each chain, and the jumps it added to or deleted from
/// chains that it left alone otherwise.
#[derive(Debug, Default)]
pub struct Outcome<'a> {
    chains: BTreeMap<(&'a str, &'a str), Fate>,
    jumps: Vec<(Effect, &'a str, &'a str, &'a str)>,
}

impl<'a> Outcome<'a> {
    /// The outcome of changes made one after the other.
    pub fn of(changes: impl IntoIterator<Item = &'a Change>) -> Self {
        let mut outcome = Self::default();
        for change in changes {
            outcome.take(change);
        }
        outcome
    }

    fn take(&mut self, change: &'a Change) {
        let key = (change.table.as_str(), change.chain.as_str());
        let built_in = BUILT_IN.contains(&key.1);
        let before = self.chains.get(&key).copied();
        let fate = match &change.kind {
            ChangeKind::ChainDeleted | ChangeKind::ChainRenamed { .. } => Some(Fate::Deleted),
            ChangeKind::ChainDeclared if built_in => None,
            ChangeKind::TableReplaced
            | ChangeKind::ChainDeclared
            | ChangeKind::ChainCreated
            | ChangeKind::ChainFlushed => Some(Fate::Emptied),
            ChangeKind::RuleAdded { target, .. } | ChangeKind::RuleReplaced { target, .. } => {
                if before.is_none_or(|fate| fate == Fate::Extended) {
                    self.jump(Effect::Restored, change, target.as_deref());
                }
                match before {
                    Some(Fate::Emptied | Fate::Written) => Some(Fate::Written),
                    _ => Some(Fate::Extended),
                }
            }
            ChangeKind::RuleDeleted { target, .. } => {
                self.jump(Effect::Removed, change, target.as_deref());
                before.or(Some(Fate::Extended))
            }
            ChangeKind::RuleDeletedAt { .. } => before.or(Some(Fate::Extended)),
            ChangeKind::PolicySet { .. } | ChangeKind::RulesReordered => before,
        };
        if let Some(fate) = fate {
            self.chains.insert(key, fate);
        }
    }

    /// A rule of Felix is replaced by deleting and inserting it: only the last word on a jump counts.
    fn jump(&mut self, effect: Effect, change: &'a Change, target: Option<&'a str>) {
        if let Some(target) = target {
            let (table, chain) = (change.table.as_str(), change.chain.as_str());
            self.jumps
                .retain(|&(_, t, c, j)| (t, c, j) != (table, chain, target));
            self.jumps.push((effect, table, chain, target));
        }
    }

    /// Whether it took away what belongs to somebody else than `who`.
    pub fn cuts_others(&self, who: &str) -> bool {
        let other = |chain: &str| {
            let owner = Owner::of_chain(chain);
            owner != Owner::Other && owner.to_string() != who
        };
        let chain = |(&(_, chain), &fate): (&(&str, &str), &Fate)| {
            fate <= Fate::Emptied && (chain.is_empty() || other(chain))
        };
        let jump = |&(effect, _, _, target): &(Effect, &str, &str, &str)| {
            effect == Effect::Removed && other(target)
        };
        self.chains.iter().any(chain) || self.jumps.iter().any(jump)
    }

    /// All that was done. `None` when nothing was changed.
    pub fn deeds(&self) -> Option<Deeds> {
        // A chain that a sync declares and leaves without rules is part of what it writes.
        let writes = self.chains.values().any(|&fate| fate == Fate::Written);
        let (emptied, wrote): (&[Fate], &[Fate]) = if writes {
            (&[], &[Fate::Emptied, Fate::Written])
        } else {
            (&[Fate::Emptied], &[])
        };
        let deleted = Some(Effect::Removed);
        let parts = [
            self.by_table(Verb::Deleted, &[Fate::Deleted], deleted),
            self.by_table(Verb::Emptied, emptied, None),
            self.by_table(Verb::Wrote, wrote, None),
            // Rules added to chains that stay: only jumps are worth a word.
            self.by_table(Verb::Added, &[], Some(Effect::Restored)),
        ];
        let mut deeds: Vec<Deed> = parts.into_iter().flatten().collect();
        if deeds.is_empty() && !self.chains.is_empty() {
            let chains = self.chains.len();
            deeds.push(Deed::ChangedRules { chains });
        }
        (!deeds.is_empty()).then_some(Deeds(deeds))
    }

    /// As [`Outcome::deeds`], but only what was taken away.
    pub fn cuts(&self) -> Option<Deeds> {
        let deleted = self.by_table(Verb::Deleted, &[Fate::Deleted], Some(Effect::Removed));
        let emptied = self.by_table(Verb::Emptied, &[Fate::Emptied], None);
        let deeds: Vec<Deed> = deleted.into_iter().chain(emptied).collect();
        (!deeds.is_empty()).then_some(Deeds(deeds))
    }

    /// Tables from which something was taken away, nat first.
    pub fn cut_tables(&self) -> Vec<&'a str> {
        let chains = self
            .chains
            .iter()
            .filter(|(_, fate)| **fate <= Fate::Emptied);
        let jumps = self.jumps.iter().filter(|jump| jump.0 == Effect::Removed);
        let tables = chains.map(|((table, _), _)| *table);
        let tables: BTreeSet<(bool, &str)> =
            tables.chain(jumps.map(|jump| jump.1)).map(order).collect();
        tables.into_iter().map(|(_, table)| table).collect()
    }

    fn by_table(&self, verb: Verb, fates: &[Fate], effect: Option<Effect>) -> Option<Deed> {
        let mut tables: BTreeMap<(bool, &str), Touched<'_>> = BTreeMap::new();
        for (&(table, chain), _) in self.chains.iter().filter(|(_, fate)| fates.contains(fate)) {
            tables.entry(order(table)).or_default().chains.push(chain);
        }
        for &(_, table, chain, target) in self.jumps.iter().filter(|jump| Some(jump.0) == effect) {
            let touched = tables.entry(order(table)).or_default();
            touched.jumps.push((chain, target));
        }
        let alone = tables.len() == 1;
        let in_table = |((other, table), touched): ((bool, &str), Touched<'_>)| {
            // A change without a chain is one of the whole table.
            let whole = touched.chains.contains(&"");
            let nameless = whole || verb == Verb::Wrote || (other && !alone);
            let (named, more) = if nameless {
                (Vec::new(), false)
            } else {
                touched.named()
            };
            InTable {
                table: table.to_owned(),
                whole,
                chains: touched.chains.len(),
                jumps: touched.jumps.len(),
                named,
                more,
            }
        };
        let tables: Vec<InTable> = tables.into_iter().map(in_table).collect();
        (!tables.is_empty()).then_some(Deed::Done { verb, tables })
    }
}

/// nat first: that is where services live.
fn order(table: &str) -> (bool, &str) {
    (table != "nat", table)
}

impl Touched<'_> {
    /// Chains of one service or endpoint each are counted by kind, everything else is named: jumps from
    /// built-in chains first, then services. Whether that is not all comes beside it.
    fn named(&self) -> (Vec<Named>, bool) {
        const NAMED: usize = 5;
        let jump = |&(chain, target): &(&str, &str)| {
            let place = BUILT_IN.iter().position(|name| *name == chain)?;
            let (chain, target) = (chain.to_owned(), target.to_owned());
            Some((place, Named::Jump { chain, target }))
        };
        let mut jumps: Vec<(usize, Named)> = self.jumps.iter().filter_map(jump).collect();
        jumps.sort_by_key(|(place, _)| *place);
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for chain in &self.chains {
            kinds.entry(kind(chain)).or_default().push(chain);
        }
        let mut kinds: Vec<(&str, Vec<&str>)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(kind, _)| *kind != "KUBE-SVC-");
        let chains = kinds.into_iter().map(|(kind, chains)| match chains[..] {
            [one] => Named::Chain(one.to_owned()),
            _ => Named::Chains {
                prefix: kind.to_owned(),
                count: chains.len(),
            },
        });
        let mut names: Vec<Named> = jumps.into_iter().map(|(_, jump)| jump).collect();
        names.extend(chains);
        let more = names.len() > NAMED;
        names.truncate(NAMED);
        (names, more)
    }
}

/// `KUBE-SVC-` of `KUBE-SVC-IU46S4VZFN77LK6S`; any other name is its own kind.
fn kind(chain: &str) -> &str {
    match chain.rsplit_once('-') {
        Some((kind, hash)) if hash.len() == 16 => chain.get(..=kind.len()).unwrap_or(chain),
        _ => chain,
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_netfilter::changes;

    use super::*;

    #[test]
    fn a_jump_is_named_when_it_stands_in_a_built_in_chain_and_not_in_one_that_begins_like_it() {
        let input =
            "*filter\n-D INPUT_direct -j KUBE-FIREWALL\n-D OUTPUT -j KUBE-FIREWALL\nCOMMIT\n";
        let changes = changes(&["iptables-restore", "--noflush"], input).unwrap();
        let deeds = Outcome::of(&changes).deeds().unwrap();
        let told = "deleted 2 jumps in filter (OUTPUT → KUBE-FIREWALL)";
        assert_eq!(deeds.to_string(), told);
        assert_eq!(Outcome::of(&changes).cuts(), Some(deeds));
    }
}
