//! What Felix left on a node: its chains, and its rules in chains of the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use chainbreak_netfilter::{Chain, Ruleset};

/// What stands for rules of others, however many.
const OTHERS: &str = "(others)";

/// Rules in order, by `iptables filter cali-INPUT`.
pub(crate) type Left = BTreeMap<String, Vec<String>>;

/// What `iptables-save` printed on `n1` at the end, as a run's folder keeps it; of IPv6 too where the node has it.
pub(crate) fn left(out: &Path, artifacts: &[String]) -> Left {
    let mut left = Left::new();
    for program in ["iptables", "ip6tables"] {
        let name = format!("/n1.{program}-save");
        let Some(kept) = artifacts.iter().find(|it| it.ends_with(&name)) else {
            assert_eq!(program, "ip6tables", "no {name} among {artifacts:?}");
            continue;
        };
        let save = fs::read_to_string(out.join(kept)).unwrap();
        for (table, held) in Ruleset::parse(&save).unwrap().tables {
            for (name, chain) in held.chains {
                let rules = rules(&name, &chain);
                if name.starts_with("cali") || rules.iter().any(|it| it != OTHERS) {
                    left.insert(format!("{program} {table} {name}"), rules);
                }
            }
        }
    }
    left
}

/// Of chains that are not Felix's its own rules alone, and whether others' are before, between or after them.
fn rules(name: &str, chain: &Chain) -> Vec<String> {
    let is_ours = name.starts_with("cali");
    let told = chain.rules.iter().map(|rule| {
        let is_told = is_ours || rule.text.contains("cali:");
        // Others' iptables may print it otherwise.
        if is_told {
            rule.normal()
        } else {
            OTHERS.to_owned()
        }
    });
    let mut rules: Vec<String> = told.collect();
    rules.dedup_by(|one, other| one == OTHERS && other == OTHERS);
    rules
}

/// What lies between what a model and a real Felix left, a line each.
pub(crate) fn differences(ours: &Left, theirs: &Left) -> Vec<String> {
    let places: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut found = Vec::new();
    for place in places {
        match (ours.get(place), theirs.get(place)) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (Some(ours), Some(theirs)) => {
                let before = found.len();
                let only = |who: &str, these: &[String], those: &[String]| {
                    let these = these.iter().filter(|rule| !those.contains(rule));
                    let told = these.map(|rule| format!("only {who}: {place} {rule}"));
                    told.collect::<Vec<_>>()
                };
                found.extend(only("the model", ours, theirs));
                found.extend(only("the real one", theirs, ours));
                if found.len() == before {
                    found.push(format!(
                        "another order: {place}\n  the model: {ours:?}\n  the real one: {theirs:?}"
                    ));
                }
            }
            (Some(_), None) => found.push(format!("only the model: {place}")),
            (None, _) => found.push(format!("only the real one: {place}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(place: &str, rules: &[&str]) -> Left {
        let rules = rules.iter().map(|&rule| rule.to_owned()).collect();
        [(place.to_owned(), rules)].into()
    }

    #[test]
    fn a_rule_that_one_has_not_another_order_and_a_chain_that_one_has_not_are_differences() {
        let ours = left("iptables filter INPUT", &["-j cali-INPUT", OTHERS]);
        assert_eq!(differences(&ours, &ours), [""; 0]);
        let other = left("iptables filter INPUT", &[OTHERS, "-j cali-INPUT"]);
        assert!(differences(&ours, &other)[0].starts_with("another order: iptables filter INPUT"));
        let none = left("iptables filter INPUT", &[OTHERS]);
        assert_eq!(
            differences(&ours, &none),
            ["only the model: iptables filter INPUT -j cali-INPUT"]
        );
        assert_eq!(
            differences(&Left::new(), &ours),
            ["only the real one: iptables filter INPUT"]
        );
    }
}
