//! Whether two rulesets are the same, as far as kube-proxy itself decides it.
//!
//! Order counts everywhere but among services in the chains that all of them share, where it is that of
//! a Go map. There the rules of one port still stand together in a fixed order, and the jump to node
//! ports comes last.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::case::{IpFamily, ProxyMode};
use chainbreak_netfilter::{Chain, Ruleset};

use crate::tables;

const SHARED: [&str; 4] = [
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-PROXY-FIREWALL",
];

/// The rules of each family, as they are listed.
pub(crate) type Rules = BTreeMap<IpFamily, String>;

/// A line for every difference: what only the left one has, and what only the right one has.
pub(crate) fn differences(mode: ProxyMode, left: &Rules, right: &Rules) -> Vec<String> {
    let families = left.keys().chain(right.keys()).collect::<BTreeSet<_>>();
    let of = |side: &Rules, family| side.get(family).cloned().unwrap_or_default();
    let several = families.len() > 1;
    let mut found = Vec::new();
    for family in families {
        let (left, right) = (of(left, family), of(right, family));
        let here = match mode {
            ProxyMode::Iptables => of_saves(&left, &right),
            ProxyMode::Nftables => between(&tables::lines(&left), &tables::lines(&right)),
        };
        let named = |line: String| {
            if several && !line.starts_with(' ') {
                format!("{family}: {line}")
            } else {
                line
            }
        };
        found.extend(here.into_iter().map(named));
    }
    found
}

fn of_saves(left: &str, right: &str) -> Vec<String> {
    let [left, right] = [left, right].map(|save| Ruleset::parse(save).map(|it| lines(&it)));
    match (left, right) {
        (Ok(left), Ok(right)) => between(&left, &right),
        (Err(error), _) | (_, Err(error)) => vec![format!("unreadable: {error}")],
    }
}

type Chains = BTreeMap<String, Vec<String>>;

fn between(left: &Chains, right: &Chains) -> Vec<String> {
    let mut found = Vec::new();
    let chains = left
        .keys()
        .chain(right.keys().filter(|it| !left.contains_key(*it)));
    for chain in chains {
        match (left.get(chain), right.get(chain)) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => {
                let side = |mark: char, side: Option<&Vec<String>>, other: Option<&Vec<String>>| {
                    let other = other.cloned().unwrap_or_default();
                    let lines = side.into_iter().flatten();
                    let lines = lines.map(move |line| {
                        let mark = if other.contains(line) { ' ' } else { mark };
                        format!("  {mark} {line}")
                    });
                    lines.collect::<Vec<_>>()
                };
                let there = |side: Option<&Vec<String>>| side.map_or("absent", |_| "there");
                found.push(format!("{chain}: left {}, right {}", there(a), there(b)));
                found.extend(side('<', a, b));
                found.extend(side('>', b, a));
            }
        }
    }
    found
}

/// The rules of every chain, by `table chain`, in an order that chance has no part in.
fn lines(ruleset: &Ruleset) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for (table, content) in &ruleset.tables {
        for (name, chain) in &content.chains {
            let mut rules = rules(name, chain);
            rules.extend(chain.policy.iter().map(|policy| format!("policy {policy}")));
            all.insert(format!("{table} {name}"), rules);
        }
    }
    all
}

fn rules(name: &str, chain: &Chain) -> Vec<String> {
    let mut rules: Vec<(String, String)> = chain
        .rules
        .iter()
        .map(|rule| {
            let comment = rule.comment().unwrap_or_default();
            let port = comment.split(' ').next().unwrap_or_default().to_owned();
            (port, rule.normal())
        })
        .collect();
    if SHARED.contains(&name) {
        // Stable: the rules of one port keep their order. Whatever is no port's keeps its place at an end.
        let first = rules
            .iter()
            .take_while(|(port, _)| !port.contains('/'))
            .count();
        let last = rules
            .iter()
            .rev()
            .take_while(|(port, _)| !port.contains('/'))
            .count();
        let end = rules.len().saturating_sub(last).max(first);
        rules[first..end].sort_by(|a, b| a.0.cmp(&b.0));
    }
    rules.into_iter().map(|(_, rule)| rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(rules: &[&str]) -> String {
        let rules = rules.iter().map(|it| format!("-A KUBE-SERVICES {it}"));
        let rules: Vec<String> = rules.collect();
        let rules = rules.join("\n");
        format!("*nat\n:KUBE-SERVICES - [0:0]\n{rules}\nCOMMIT\n")
    }

    const A1: &str = "-m comment --comment \"test/a:p cluster IP\" -j MASQ";
    const A2: &str = "-m comment --comment \"test/a:p cluster IP\" -j SVC-A";
    const B: &str = "-m comment --comment \"test/b cluster IP\" -j SVC-B";
    const TAIL: &str = "-m comment --comment \"kubernetes service nodeports\" -j KUBE-NODEPORTS";

    #[test]
    fn the_order_of_services_does_not_count() {
        let (left, right) = (save(&[A1, A2, B, TAIL]), save(&[B, A1, A2, TAIL]));
        assert_eq!(of_saves(&left, &right), Vec::<String>::new());
    }

    #[test]
    fn the_order_of_one_ports_rules_counts_and_so_does_the_last_rule() {
        let left = save(&[A1, A2, B, TAIL]);
        for right in [&[A2, A1, B, TAIL], &[A1, A2, TAIL, B], &[TAIL, A1, A2, B]] {
            assert!(!of_saves(&left, &save(right)).is_empty(), "{right:?}");
        }
    }

    #[test]
    fn a_missing_rule_and_a_missing_chain_are_shown() {
        let found = of_saves(&save(&[A1, A2]), &save(&[A1]));
        assert!(
            found
                .iter()
                .any(|it| it.starts_with("  < ") && it.contains("SVC-A")),
            "{found:#?}"
        );
        let found = of_saves(&save(&[]), "*nat\nCOMMIT\n");
        assert_eq!(found, ["nat KUBE-SERVICES: left there, right absent"]);
    }
}
