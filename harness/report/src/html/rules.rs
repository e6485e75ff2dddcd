//! Rules before and after a command, as far as the commands of a history tell: what they wrote is followed from the first one on.
//! What nobody wrote while it was recorded is not known, and where a rule was inserted is not: chains are compared as sets. A number
//! is that of the rules as they were appended, which is how Felix numbers those of its own chains.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{case::IptablesVariant, names::NodeName};
use chainbreak_netfilter::{Change, ChangeKind, Family, Rule};

use crate::edits::{BUILT_IN, EditIndex, RuleEdit};

/// A table of a node: of which backend, family and name.
type Table<'a> = (&'a NodeName, Backend, Family, &'a str);

/// Whose tables a program writes: those of legacy iptables are the kernel's other ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Backend {
    Legacy,
    Nft,
}

/// What a command did to a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainDiff {
    pub(super) table: String,
    pub(super) chain: String,
    pub(super) fate: Fate,
    /// Rules that were there and are not any more, in their order.
    pub(super) gone: Vec<String>,
    /// Rules that are there now, in their order.
    pub(super) come: Vec<String>,
    /// How many rules stayed.
    pub(super) same: usize,
}

/// What became of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was not there before.
    Made,
    /// It is gone.
    Deleted,
    /// It stays, with other rules.
    Changed,
}

/// What each of these edits (by place in the index) did to chains. A chain that was written as it was is left out.
pub(super) fn diffs(
    index: &EditIndex<'_>,
    wanted: &BTreeSet<usize>,
    variant: IptablesVariant,
) -> BTreeMap<usize, Vec<ChainDiff>> {
    let mut rules = Rules::default();
    let mut diffs = BTreeMap::new();
    for (at, edit) in index.edits().iter().enumerate() {
        if wanted.contains(&at) {
            diffs.insert(at, rules.diff(edit, variant));
        } else {
            rules.take(edit, variant);
        }
    }
    diffs
}

/// The chains of each table with their rules.
#[derive(Default)]
struct Rules<'a>(BTreeMap<Table<'a>, BTreeMap<&'a str, Vec<&'a str>>>);

impl<'a> Rules<'a> {
    fn take(&mut self, edit: &'a RuleEdit<'_>, variant: IptablesVariant) {
        for change in &edit.changes {
            self.change(table(edit, change, variant), change);
        }
    }

    /// What the edit does, while it is taken over.
    fn diff(&mut self, edit: &'a RuleEdit<'_>, variant: IptablesVariant) -> Vec<ChainDiff> {
        let tables: BTreeSet<Table<'_>> = edit
            .changes
            .iter()
            .map(|change| table(edit, change, variant))
            .collect();
        let of = |rules: &Self, table| rules.0.get(table).cloned().unwrap_or_default();
        let before: Vec<_> = tables.iter().map(|table| of(self, table)).collect();
        let mut unseen = BTreeMap::<(Table<'_>, &str), Vec<&str>>::new();
        for change in &edit.changes {
            let table = table(edit, change, variant);
            let rule = self.change(table, change);
            unseen
                .entry((table, change.chain.as_str()))
                .or_default()
                .extend(rule);
        }
        let mut diffs = Vec::new();
        for (table, before) in tables.iter().zip(before) {
            let after = of(self, table);
            let mut names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
            names.extend(unseen.keys().filter(|it| it.0 == *table).map(|it| it.1));
            diffs.extend(names.into_iter().filter_map(|name| {
                let unseen = unseen.get(&(*table, name)).map_or(&[][..], Vec::as_slice);
                compare((table.3, name), before.get(name), after.get(name), unseen)
            }));
        }
        diffs
    }

    /// Does it; a rule that is deleted and was not known to be there is given back.
    fn change(&mut self, table: Table<'a>, change: &'a Change) -> Option<&'a str> {
        let chains = self.0.entry(table).or_default();
        let chain = change.chain.as_str();
        let built_in = BUILT_IN.contains(&chain);
        match &change.kind {
            ChangeKind::TableReplaced => chains.clear(),
            ChangeKind::ChainDeclared if built_in => {}
            ChangeKind::ChainFlushed if chain.is_empty() => {
                chains.values_mut().for_each(Vec::clear);
            }
            ChangeKind::ChainDeclared | ChangeKind::ChainCreated | ChangeKind::ChainFlushed => {
                chains.insert(chain, Vec::new());
            }
            ChangeKind::ChainDeleted if chain.is_empty() => {
                chains.retain(|name, _| BUILT_IN.contains(name));
            }
            ChangeKind::ChainDeleted => {
                chains.remove(chain);
            }
            ChangeKind::ChainRenamed { to } => {
                let rules = chains.remove(chain).unwrap_or_default();
                chains.insert(to, rules);
            }
            ChangeKind::RuleAdded { text, .. } => chains.entry(chain).or_default().push(text),
            ChangeKind::RuleReplaced { number, text, .. } => {
                let rules = chains.entry(chain).or_default();
                match rules.get_mut(number.saturating_sub(1)) {
                    Some(rule) => *rule = text,
                    None => rules.push(text),
                }
            }
            ChangeKind::RuleDeleted { text, .. } => {
                let rules = chains.entry(chain).or_default();
                let written = rules.iter().position(|rule| rule == text);
                let same = || {
                    let form = form(text);
                    rules.iter().position(|rule| self::form(rule) == form)
                };
                let Some(at) = written.or_else(same) else {
                    return Some(text);
                };
                rules.remove(at);
            }
            ChangeKind::RuleDeletedAt { number } => {
                let rules = chains.entry(chain).or_default();
                let at = number.saturating_sub(1);
                if at < rules.len() {
                    rules.remove(at);
                }
            }
            ChangeKind::PolicySet { .. } | ChangeKind::RulesReordered => {}
        }
        None
    }
}

/// The table that a change of an edit is about.
fn table<'a>(edit: &'a RuleEdit<'_>, change: &'a Change, variant: IptablesVariant) -> Table<'a> {
    let program = edit.program();
    let backend = match variant {
        _ if program.contains("legacy") => Backend::Legacy,
        _ if program.contains("nft") => Backend::Nft,
        IptablesVariant::Legacy => Backend::Legacy,
        IptablesVariant::Nft => Backend::Nft,
    };
    let Change { family, table, .. } = change;
    (&edit.command.node, backend, *family, table)
}

/// What lies between two states of a chain; `None` where nothing does.
fn compare(
    (table, chain): (&str, &str),
    before: Option<&Vec<&str>>,
    after: Option<&Vec<&str>>,
    unseen: &[&str],
) -> Option<ChainDiff> {
    let fate = match (before, after) {
        (None, Some(_)) if unseen.is_empty() && !BUILT_IN.contains(&chain) => Fate::Made,
        (Some(_), None) => Fate::Deleted,
        _ => Fate::Changed,
    };
    let (before, after) = (
        before.map_or(&[][..], Vec::as_slice),
        after.map_or(&[][..], Vec::as_slice),
    );
    let gone = without(before, after);
    let come = without(after, before);
    let same = after.len() - come.len();
    let gone = gone.iter().chain(unseen);
    let gone: Vec<String> = gone.map(ToString::to_string).collect();
    let touched = fate != Fate::Changed || !gone.is_empty() || !come.is_empty();
    touched.then(|| ChainDiff {
        table: table.to_owned(),
        chain: chain.to_owned(),
        fate,
        gone,
        come: come.iter().map(ToString::to_string).collect(),
        same,
    })
}

/// Of the one what the other has not; a rule that stands twice counts twice.
fn without<'a>(rules: &[&'a str], others: &[&'a str]) -> Vec<&'a str> {
    let mut others: Vec<String> = others.iter().map(|rule| form(rule)).collect();
    let is_missing = |rule: &&&str| {
        let form = form(rule);
        let at = others.iter().position(|other| *other == form);
        at.map(|at| others.swap_remove(at)).is_none()
    };
    rules.iter().filter(is_missing).copied().collect()
}

/// What rules share that the kernel calls the same. Those of iptables begin with an option, those of nft do not.
fn form(rule: &str) -> String {
    if rule.starts_with(['-', '!']) {
        Rule::new(rule).normal()
    } else {
        rule.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_model::event::{Command, Event, EventKind};

    use super::*;

    /// What the last of these commands did.
    fn last(commands: &[(&[&str], &str)]) -> Vec<ChainDiff> {
        let event = |(at_us, (argv, input)): (u64, &(&[&str], &str))| Event {
            at_us,
            what: EventKind::Command(Command {
                who: "felix".to_owned(),
                node: "n1".into(),
                argv: argv.iter().map(ToString::to_string).collect(),
                input: (*input).to_owned(),
                exit: 0,
                stderr: String::new(),
                took_us: 0,
                named: Vec::new(),
            }),
        };
        let events: Vec<Event> = (0..).zip(commands).map(event).collect();
        let index = EditIndex::new(&events, chainbreak_netfilter::replay::Backend::Legacy);
        let place = commands.len() - 1;
        let mut diffs = diffs(&index, &[place].into(), IptablesVariant::Legacy);
        diffs.remove(&place).unwrap()
    }

    const RESTORE: &[&str] = &["iptables-restore", "--noflush"];
    const SYNC: &str = "*nat\n:KUBE-SVC-A - [0:0]\n-A KUBE-SVC-A -j KUBE-SEP-A\n-A KUBE-SVC-A -j KUBE-SEP-B\nCOMMIT\n";

    #[test]
    fn a_chain_that_is_written_as_it_was_is_no_difference() {
        assert_eq!(last(&[(RESTORE, SYNC), (RESTORE, SYNC)]), []);
    }

    #[test]
    fn of_a_chain_that_is_written_anew_only_what_differs_is_told() {
        let other = SYNC.replace("KUBE-SEP-B", "KUBE-SEP-C");
        let [diff] = &last(&[(RESTORE, SYNC), (RESTORE, &other)])[..] else {
            panic!("one chain");
        };
        assert_eq!((diff.fate, diff.same), (Fate::Changed, 1));
        assert_eq!(
            (&diff.gone[..], &diff.come[..]),
            (
                &["-j KUBE-SEP-B".to_owned()][..],
                &["-j KUBE-SEP-C".to_owned()][..]
            )
        );
    }

    #[test]
    fn the_rules_of_a_chain_that_is_deleted_are_told_and_those_of_the_other_backend_stay() {
        let cleanup = "*nat\n:KUBE-SVC-A - -\n-D OUTPUT -j KUBE-SERVICES\n--delete-chain KUBE-SVC-A\nCOMMIT\n";
        let told = |program| last(&[(RESTORE, SYNC), (&[program, "--noflush"], cleanup)]);
        let legacy = told("iptables-legacy-restore");
        let of = |chain: &str| legacy.iter().find(|diff| diff.chain == chain).unwrap();
        assert_eq!(of("KUBE-SVC-A").fate, Fate::Deleted);
        assert_eq!(of("KUBE-SVC-A").gone, ["-j KUBE-SEP-A", "-j KUBE-SEP-B"]);
        // Nobody was seen to write it.
        assert_eq!(of("OUTPUT").gone, ["-j KUBE-SERVICES"]);
        let nft = told("iptables-nft-restore");
        assert!(nft.iter().all(|diff| diff.chain == "OUTPUT"), "{nft:?}");
    }

    #[test]
    fn a_rule_that_is_spelled_otherwise_is_the_same() {
        let other = SYNC.replace("-j KUBE-SEP-B", "--jump KUBE-SEP-B");
        assert_eq!(last(&[(RESTORE, SYNC), (RESTORE, &other)]), []);
        let deleted = "*nat\n-D KUBE-SVC-A --jump KUBE-SEP-A\nCOMMIT\n";
        let [diff] = &last(&[(RESTORE, SYNC), (RESTORE, deleted)])[..] else {
            panic!("one chain");
        };
        assert_eq!(
            (&diff.gone[..], diff.same),
            (&["-j KUBE-SEP-A".to_owned()][..], 1)
        );
    }

    #[test]
    fn a_rule_is_replaced_and_deleted_by_its_number() {
        let replaced = "*nat\n-R KUBE-SVC-A 2 -j KUBE-SEP-C\n-D KUBE-SVC-A 1\nCOMMIT\n";
        let [diff] = &last(&[(RESTORE, SYNC), (RESTORE, replaced)])[..] else {
            panic!("one chain");
        };
        assert_eq!(diff.gone, ["-j KUBE-SEP-A", "-j KUBE-SEP-B"]);
        assert_eq!(diff.come, ["-j KUBE-SEP-C"]);
    }
}
