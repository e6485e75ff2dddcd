//! In few words, what a command of a thousand lines comes to.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_netfilter::{Change, ChangeKind, Owner};

use crate::{
    edits::{BUILT_IN, Effect},
    text::count,
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
type Named<'a> = (Vec<&'a str>, Vec<String>);

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

    /// In few words: `deleted 9 chains and 2 jumps in nat (KUBE-SERVICES, KUBE-SVC-… ×3, …)`. `None` when
    /// nothing was changed.
    pub fn words(&self) -> Option<String> {
        // A chain that a sync declares and leaves without rules is part of what it writes.
        let writes = self.chains.values().any(|&fate| fate == Fate::Written);
        let emptied = if writes { "wrote" } else { "emptied" };
        let fates = [
            (Fate::Deleted, "deleted"),
            (Fate::Emptied, emptied),
            (Fate::Written, "wrote"),
        ];
        let mut parts = Vec::new();
        for verb in ["deleted", "emptied", "wrote"] {
            let fates: Vec<Fate> = fates
                .iter()
                .filter(|(_, v)| *v == verb)
                .map(|&(fate, _)| fate)
                .collect();
            let jumps = (verb == "deleted").then_some(Effect::Removed);
            parts.extend(self.by_table(verb, &fates, jumps));
        }
        // Rules added to chains that stay: only jumps are worth a word.
        parts.extend(self.by_table("added", &[], Some(Effect::Restored)));
        if parts.is_empty() && !self.chains.is_empty() {
            parts.push(format!(
                "changed rules of {}",
                count(self.chains.len(), "chain")
            ));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// As [`Outcome::words`], but only what was taken away.
    pub fn cut_words(&self) -> Option<String> {
        let deleted = self.by_table("deleted", &[Fate::Deleted], Some(Effect::Removed));
        let emptied = self.by_table("emptied", &[Fate::Emptied], None);
        let parts: Vec<String> = deleted.into_iter().chain(emptied).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
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

    fn by_table(&self, verb: &str, fates: &[Fate], effect: Option<Effect>) -> Option<String> {
        let mut tables: BTreeMap<(bool, &str), Named<'_>> = BTreeMap::new();
        for (&(table, chain), _) in self.chains.iter().filter(|(_, fate)| fates.contains(fate)) {
            tables.entry(order(table)).or_default().0.push(chain);
        }
        for &(_, table, chain, target) in self.jumps.iter().filter(|jump| Some(jump.0) == effect) {
            tables
                .entry(order(table))
                .or_default()
                .1
                .push(format!("{chain} → {target}"));
        }
        let alone = tables.len() == 1;
        let part = |((other, table), (chains, jumps)): ((bool, &str), Named<'_>)| {
            let counted = [(chains.len(), "chain"), (jumps.len(), "jump")];
            let counted = counted
                .iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, what)| count(*n, what));
            let mut counted = counted.collect::<Vec<_>>().join(" and ");
            // A change without a chain is one of the whole table.
            let whole = chains.contains(&"");
            if whole {
                "everything".clone_into(&mut counted);
            }
            let names = if whole || verb == "wrote" || (other && !alone) {
                Vec::new()
            } else {
                condensed(&chains, &jumps)
            };
            if names.is_empty() {
                return format!("{counted} in {table}");
            }
            format!("{counted} in {table} ({})", names.join(", "))
        };
        let parts: Vec<String> = tables.into_iter().map(part).collect();
        (!parts.is_empty()).then(|| format!("{verb} {}", parts.join(", ")))
    }
}

/// nat first: that is where services live.
fn order(table: &str) -> (bool, &str) {
    (table != "nat", table)
}

/// Chains of one service or endpoint each are counted by kind, everything else is named: jumps from
/// built-in chains first, then services; a long list ends in an ellipsis.
fn condensed(chains: &[&str], jumps: &[String]) -> Vec<String> {
    const NAMED: usize = 5;
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for chain in chains {
        kinds.entry(kind(chain)).or_default().push(chain);
    }
    let built_in = |jump: &&String| BUILT_IN.iter().position(|chain| jump.starts_with(chain));
    let mut names: Vec<String> = jumps
        .iter()
        .filter(|jump| built_in(jump).is_some())
        .cloned()
        .collect();
    names.sort_by_key(|jump| built_in(&jump));
    let mut kinds: Vec<(&str, Vec<&str>)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(kind, _)| *kind != "KUBE-SVC-");
    names.extend(kinds.into_iter().map(|(kind, chains)| match chains[..] {
        [""] => "every chain".to_owned(),
        [one] => one.to_owned(),
        _ => format!("{kind}… ×{}", chains.len()),
    }));
    if names.len() > NAMED {
        names.truncate(NAMED);
        names.push("…".to_owned());
    }
    names
}

/// `KUBE-SVC-` of `KUBE-SVC-IU46S4VZFN77LK6S`; any other name is its own kind.
fn kind(chain: &str) -> &str {
    match chain.rsplit_once('-') {
        Some((kind, hash)) if hash.len() == 16 => chain.get(..=kind.len()).unwrap_or(chain),
        _ => chain,
    }
}
