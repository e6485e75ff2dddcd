//! What a place is watched for, and how it is found in what was seen.

use std::collections::BTreeSet;

use chainbreak_model::{
    case::{Claim, Counter, ElementQuery, Finder, RuleQuery},
    names::QueryId,
    suggest,
};
use chainbreak_netfilter::{Chain, RuleCounters, Table, nft::NftTable};
use indexmap::IndexMap;

use super::{Wanted, seen::Seen};
use crate::{cluster::Command, looks::Source};

/// So many rules of a chain are told where none of them is the one that is looked for.
const SHOWN: usize = 4;

/// What a place is watched for.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    rules: Vec<Rules>,
    elements: Vec<(QueryId, ElementQuery)>,
    /// Numbers by name: of conntrack and of /proc/net.
    counters: Vec<(QueryId, Counter)>,
    /// Packets of rules.
    counted: Vec<Rules>,
    sources: BTreeSet<Source>,
}

/// Rules that are asked for.
#[derive(Debug)]
struct Rules {
    id: QueryId,
    finder: Finder,
}

impl Watched {
    /// Watches for what the claim speaks of, too, and calls it by that id.
    pub(crate) fn add(&mut self, id: QueryId, claim: &Claim) {
        match claim {
            Claim::HasRule { rule, .. } => {
                self.sources.insert(Source::of_rule(rule));
                self.rules.push(Rules::new(id, rule));
            }
            Claim::HasElement { element, .. } => {
                self.sources.insert(Source::of_element(element));
                self.elements.push((id, element.clone()));
            }
            Claim::Counter { counter, .. } => {
                self.sources.insert(Source::of_counter(counter));
                match counter {
                    Counter::Rule(rule) => self.counted.push(Rules::new(id, rule)),
                    Counter::Conntrack(_) | Counter::Snmp(_) => {
                        self.counters.push((id, counter.clone()));
                    }
                }
            }
            _ => {}
        }
    }

    /// Where to look.
    pub(crate) fn sources(&self, wanted: Wanted) -> impl Iterator<Item = &Source> {
        let of_tables = move |source: &&Source| wanted == Wanted::All || source.table().is_some();
        self.sources.iter().filter(of_tables)
    }

    /// What shows all of it.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let argvs = self.sources.iter().map(Source::listing);
        argvs.map(Command::Argv).collect()
    }

    /// The tables that are looked at.
    pub(crate) fn tables(&self) -> Vec<&str> {
        self.sources.iter().filter_map(Source::table).collect()
    }

    /// How many of each rule and element there are, where this source shows them.
    pub(crate) fn found(&self, source: &Source, seen: &Seen) -> Vec<(QueryId, usize)> {
        let Seen::Table(table) = seen else {
            return Vec::new();
        };
        let rules = self
            .rules
            .iter()
            .filter(|rules| Source::of_rule(rules.finder.query()) == *source);
        let rules = rules.map(|rules| (rules.id.clone(), rules.finder.count(table.as_ref())));
        let elements = self
            .elements
            .iter()
            .filter(|(_, query)| Source::of_element(query) == *source);
        let elements = elements.map(|(id, query)| {
            let has = table
                .as_ref()
                .is_some_and(|t| t.has_element(&query.set, &query.element));
            (id.clone(), usize::from(has))
        });
        rules.chain(elements).collect()
    }

    /// The numbers of this source that are asked for.
    pub(crate) fn numbers(&self, source: &Source, seen: &Seen) -> Vec<(QueryId, u64)> {
        let Seen::Numbers(numbers) = seen else {
            return Vec::new();
        };
        let asked = self
            .counters
            .iter()
            .filter(|(_, counter)| Source::of_counter(counter) == *source);
        let number = |(id, counter): &(QueryId, Counter)| {
            let (Counter::Conntrack(name) | Counter::Snmp(name)) = counter else {
                return None;
            };
            Some((id.clone(), *numbers.get(name)?))
        };
        asked.filter_map(number).collect()
    }

    /// The packets of the rules of this source that are asked for.
    pub(crate) fn counted(&self, source: &Source, seen: &Seen) -> Vec<Packets> {
        let Seen::Table(table) = seen else {
            return Vec::new();
        };
        let asked = self
            .counted
            .iter()
            .filter(|rules| Source::of_rule(rules.finder.query()) == *source);
        let counted = asked.map(|rules| {
            let counters = rules.packets(table.as_ref());
            let unmatched = counters.is_empty().then(|| rules.instead(table.as_ref()));
            Packets {
                counter: rules.id.clone(),
                counters,
                unmatched,
            }
        });
        counted.collect()
    }
}

/// What a counter's rules counted so far.
#[derive(Debug)]
pub(crate) struct Packets {
    /// Which counter.
    pub(crate) counter: QueryId,
    pub(crate) counters: RuleCounters,
    /// What was there instead of a rule that counts.
    pub(crate) unmatched: Option<String>,
}

impl Rules {
    fn new(id: QueryId, query: &RuleQuery) -> Self {
        let finder = Finder::new(query).expect("the reader compiled its expression");
        Self { id, finder }
    }

    fn packets(&self, table: Option<&NftTable>) -> RuleCounters {
        let chain = self.finder.chain(table).map(|chain| Chain {
            rules: self.finder.of(chain).cloned().collect(),
            ..Chain::default()
        });
        let name = self.finder.chain_name().to_owned();
        let chains: IndexMap<String, Chain> = chain
            .into_iter()
            .map(|chain| (name.clone(), chain))
            .collect();
        Table { chains }.counted(&self.finder.query().table)
    }

    /// What is there instead of a rule that counts, for whoever has to find out why none was.
    fn instead(&self, table: Option<&NftTable>) -> String {
        let (name, chain) = (&self.finder.query().table, self.finder.chain_name());
        let Some(table) = table else {
            return format!("there is no table {name}");
        };
        let Some(rules) = table.table.chains.get(chain).map(|chain| &chain.rules) else {
            let hint = suggest(chain, table.table.chains.keys().map(String::as_str));
            let hint = hint.map(|hint| format!(": {hint}")).unwrap_or_default();
            return format!("there is no chain {chain}{hint}");
        };
        if rules.iter().any(|rule| self.finder.is(rule)) {
            return "the rules that match have no counter".to_owned();
        }
        let some: Vec<&str> = rules
            .iter()
            .take(SHOWN)
            .map(|rule| rule.text.as_str())
            .collect();
        match rules.len() {
            0 => format!("{chain} has no rules"),
            n if n > SHOWN => format!("{chain} has {n} rules, among them {}", some.join("; ")),
            _ => format!("{chain} has only {}", some.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::{Limits, Presence, RuleChain};
    use chainbreak_netfilter::Ruleset;

    use super::*;

    const SAVE: &str = "*nat\n:KUBE-SVC-X - [0:0]\n\
        [5:300] -A KUBE-SVC-X -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A\n\
        [7:420] -A KUBE-SVC-X -j KUBE-SEP-B\nCOMMIT\n";

    fn seen() -> Seen {
        let table = Ruleset::parse(SAVE)
            .unwrap()
            .tables
            .shift_remove("nat")
            .unwrap();
        Seen::Table(Some(NftTable {
            table,
            ..NftTable::default()
        }))
    }

    fn query(jump: Option<&str>, matches: Option<&str>) -> RuleQuery {
        RuleQuery {
            table: "nat".to_owned(),
            chain: RuleChain::Named("KUBE-SVC-X".to_owned()),
            jump: jump.map(str::to_owned),
            matches: matches.map(str::to_owned),
            ..RuleQuery::default()
        }
    }

    fn count(rule: RuleQuery) -> usize {
        let mut watched = Watched::default();
        let source = Source::of_rule(&rule);
        let presence = Presence {
            always: false,
            absent: false,
            node: None,
        };
        watched.add("it".into(), &Claim::HasRule { rule, presence });
        let found = watched.found(&source, &seen());
        assert_eq!(found[0].0, "it".into(), "by its id");
        found[0].1
    }

    #[test]
    fn a_rule_is_found_by_its_chain_its_target_and_its_text() {
        assert_eq!(count(query(None, None)), 1, "the chain");
        assert_eq!(count(query(Some("KUBE-SEP-B"), None)), 1);
        assert_eq!(count(query(None, Some("KUBE-SEP"))), 2);
        assert_eq!(
            count(query(
                Some("KUBE-SEP-A"),
                Some("probability 0\\.50000000000")
            )),
            1
        );
        assert_eq!(count(query(Some("KUBE-SEP-B"), Some("probability"))), 0);
        let gone = RuleQuery {
            chain: RuleChain::Named("KUBE-SVC-Y".to_owned()),
            ..query(None, None)
        };
        assert_eq!(count(gone), 0);
    }

    fn packets(rule: RuleQuery, seen: &Seen) -> Packets {
        let mut watched = Watched::default();
        let source = Source::of_rule(&rule);
        let limits = Limits {
            at_least: Some(1),
            at_most: None,
        };
        let claim = Claim::Counter {
            counter: Counter::Rule(rule),
            at: None,
            limits,
        };
        watched.add("it".into(), &claim);
        assert_eq!(watched.found(&source, seen), []);
        let mut counted = watched.counted(&source, seen);
        assert_eq!(counted.len(), 1);
        assert_eq!(counted[0].counter, "it".into(), "by its id");
        counted.remove(0)
    }

    #[test]
    fn packets_are_those_of_the_rules_that_match() {
        let counted = packets(query(None, Some("probability")), &seen());
        let packets: Vec<u64> = counted.counters.values().map(|n| n.packets).collect();
        assert_eq!((packets, counted.unmatched), (vec![5], None));
    }

    #[test]
    fn where_no_rule_counts_it_is_told_what_is_there_instead() {
        let instead = |rule, seen| packets(rule, seen).unmatched.unwrap();
        let misspelt = RuleQuery {
            chain: RuleChain::Named("KUBE-SCV-X".to_owned()),
            ..query(None, None)
        };
        let uncounted = Seen::Table(
            Ruleset::parse("*nat\n:KUBE-SVC-X - [0:0]\n-A KUBE-SVC-X -j KUBE-SEP-A\nCOMMIT\n")
                .unwrap()
                .tables
                .shift_remove("nat")
                .map(|table| NftTable {
                    table,
                    ..NftTable::default()
                }),
        );
        let told = [
            instead(query(Some("DROP"), None), &seen()),
            instead(misspelt, &seen()),
            instead(query(None, None), &Seen::Table(None)),
            instead(query(None, None), &uncounted),
        ];
        let expected = [
            "KUBE-SVC-X has only -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A; \
             -j KUBE-SEP-B",
            "there is no chain KUBE-SCV-X: did you mean \"KUBE-SVC-X\"?",
            "there is no table nat",
            "the rules that match have no counter",
        ];
        assert_eq!(told, expected);
    }
}
