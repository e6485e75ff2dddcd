//! What lies between two rulesets.

use std::collections::BTreeMap;

use crate::{
    change::{Change, ChangeKind},
    command::Family,
    rule::Rule,
    save::{Chain, Ruleset},
};

/// Whether the order of rules in a chain matters. kube-proxy writes services in a random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It does.
    Kept,
    /// Chains are compared as sets (a rule that stands twice counts twice).
    Any,
}

/// The changes that lead from one ruleset to the other, table by table and chain by chain; empty when they
/// mean the same. Counters do not matter, nor how a rule is spelled ([`Rule::same`]).
pub fn diff(family: Family, before: &Ruleset, after: &Ruleset, order: Order) -> Vec<Change> {
    let mut changes = Vec::new();
    let new = after
        .tables
        .keys()
        .filter(|name| !before.tables.contains_key(*name));
    for table in before.tables.keys().chain(new) {
        let push = |chain: &str, kind| {
            changes.push(Change {
                family,
                table: table.clone(),
                chain: chain.to_owned(),
                kind,
            });
        };
        diff_table(table, before, after, order, push);
    }
    changes
}

fn diff_table(
    table: &str,
    before: &Ruleset,
    after: &Ruleset,
    order: Order,
    mut push: impl FnMut(&str, ChangeKind),
) {
    let empty = Chain::default();
    let chains = |ruleset: &Ruleset| -> Vec<String> {
        let table = ruleset.tables.get(table);
        table
            .into_iter()
            .flat_map(|table| table.chains.keys().cloned())
            .collect()
    };
    for chain in chains(before) {
        let old = before.chain(table, &chain).unwrap_or(&empty);
        match after.chain(table, &chain) {
            Some(new) => diff_chain(old, new, order, |kind| push(&chain, kind)),
            None => push(&chain, ChangeKind::ChainDeleted),
        }
    }
    for chain in chains(after) {
        if before.chain(table, &chain).is_none() {
            push(&chain, ChangeKind::ChainCreated);
            let new = after.chain(table, &chain).unwrap_or(&empty);
            diff_chain(&empty, new, order, |kind| push(&chain, kind));
        }
    }
}

fn diff_chain(before: &Chain, after: &Chain, order: Order, mut push: impl FnMut(ChangeKind)) {
    if before.policy != after.policy
        && let Some(policy) = after.policy.clone()
    {
        push(ChangeKind::PolicySet { policy });
    }
    let texts = |chain: &Chain| -> Vec<String> { chain.rules.iter().map(Rule::normal).collect() };
    let (old, new) = (texts(before), texts(after));
    if old == new {
        return;
    }
    let (gone, come) = (
        surplus(&before.rules, &old, &new),
        surplus(&after.rules, &new, &old),
    );
    if gone.is_empty() && come.is_empty() {
        if order == Order::Kept {
            push(ChangeKind::RulesReordered);
        }
        return;
    }
    for rule in gone {
        let (text, target) = described(rule);
        push(ChangeKind::RuleDeleted { text, target });
    }
    for rule in come {
        let (text, target) = described(rule);
        push(ChangeKind::RuleAdded { text, target });
    }
}

fn described(rule: &Rule) -> (String, Option<String>) {
    (
        rule.text.clone(),
        rule.target().map(std::borrow::Cow::into_owned),
    )
}

/// The rules whose form comes more often in `mine` than in `theirs`.
fn surplus<'a>(rules: &'a [Rule], mine: &[String], theirs: &[String]) -> Vec<&'a Rule> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for form in theirs {
        *left.entry(form).or_default() += 1;
    }
    let extra = rules
        .iter()
        .zip(mine)
        .filter(|(_, form)| match left.get_mut(form.as_str()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        });
    extra.map(|(rule, _)| rule).collect()
}
