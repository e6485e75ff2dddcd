//! Packets of rules over time: a look gives every rule's counters, a [`Tally`] sums what they grew by.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    rule::Counters,
    save::{Ruleset, Table},
};

/// A rule as its counters know it. Rules of one chain with one text are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Site {
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The rule's text, [`crate::Rule::text`].
    pub rule: String,
}

/// The counters of every rule that has some.
pub type RuleCounters = BTreeMap<Site, Counters>;

impl Ruleset {
    /// The counters of every rule that has some (`iptables-save -c`), those of equal rules of a chain added up.
    pub fn counted(&self) -> RuleCounters {
        let mut counted = RuleCounters::new();
        for (name, table) in &self.tables {
            counted.extend(table.counted(name));
        }
        counted
    }
}

impl Table {
    /// The counters of every rule of this table that has some.
    pub fn counted(&self, name: &str) -> RuleCounters {
        let mut counted = RuleCounters::new();
        for (chain, rules) in &self.chains {
            for rule in &rules.rules {
                let Some(counters) = rule.counters else {
                    continue;
                };
                let site = Site {
                    table: name.to_owned(),
                    chain: chain.clone(),
                    rule: rule.text.clone(),
                };
                let sum: &mut Counters = counted.entry(site).or_default();
                sum.add(counters);
            }
        }
        counted
    }
}

impl Counters {
    pub(crate) fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// What was counted between two looks. Fewer packets than before: the rule was rewritten in between
    /// and began at nothing.
    fn since(self, before: Self) -> Self {
        if self.packets < before.packets || self.bytes < before.bytes {
            return self;
        }
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// Sums what counters grew by from look to look. A rule that is rewritten loses its counters: what it
/// counted after the last look before that is missing, so a sum says *at least*.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    last: Option<RuleCounters>,
    grown: RuleCounters,
    rewritten: u64,
}

impl Tally {
    /// Takes in a look, and says what grew since the one before. The first one is where counting begins.
    pub fn see(&mut self, counted: RuleCounters) -> RuleCounters {
        let mut news = RuleCounters::new();
        if let Some(last) = &self.last {
            for (site, now) in &counted {
                let before = last.get(site).copied().unwrap_or_default();
                let grown = now.since(before);
                self.rewritten += u64::from(now.packets < before.packets);
                if grown != Counters::default() {
                    self.grown.entry(site.clone()).or_default().add(grown);
                    news.insert(site.clone(), grown);
                }
            }
            let gone = |(site, before): &(&Site, &Counters)| {
                before.packets > 0 && !counted.contains_key(*site)
            };
            self.rewritten += last.iter().filter(gone).count() as u64;
        }
        self.last = Some(counted);
        news
    }

    /// What each rule counted since the first look; a rule that counted nothing is not named.
    pub fn grown(&self) -> &RuleCounters {
        &self.grown
    }

    /// How often a rule that had counted was seen to be gone or to have begun again.
    pub fn rewritten(&self) -> u64 {
        self.rewritten
    }

    /// How many packets all rules counted since the first look.
    pub fn packets(&self) -> u64 {
        let packets = self.grown.values().map(|counters| counters.packets);
        packets.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(rules: &str) -> RuleCounters {
        let save = format!("*filter\n:KUBE-FORWARD - [0:0]\n{rules}COMMIT\n");
        Ruleset::parse(&save).unwrap().counted()
    }

    fn drops(packets: u64) -> RuleCounters {
        let bytes = packets * 40;
        let rule = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP";
        counted(&format!("[{packets}:{bytes}] {rule}\n"))
    }

    fn packets(looks: impl IntoIterator<Item = RuleCounters>) -> (u64, u64) {
        let mut tally = Tally::default();
        for counted in looks {
            let before = tally.packets();
            let news: u64 = tally.see(counted).values().map(|c| c.packets).sum();
            assert_eq!(tally.packets(), before + news);
        }
        (tally.packets(), tally.rewritten())
    }

    #[test]
    fn counting_begins_at_the_first_look() {
        assert_eq!(packets([drops(7)]), (0, 0));
        assert_eq!(packets([drops(7), drops(9), drops(9)]), (2, 0));
    }

    #[test]
    fn a_rule_that_is_written_anew_goes_on_counting_from_nothing() {
        assert_eq!(packets([drops(7), drops(9), drops(1), drops(4)]), (6, 1));
        assert_eq!(packets([drops(7), counted(""), drops(4)]), (4, 1));
        assert_eq!(
            packets([counted(""), drops(4)]),
            (4, 0),
            "new since the first look"
        );
    }

    #[test]
    fn a_sum_that_no_number_holds_is_the_largest_one() {
        let (most, rule) = (u64::MAX, "-A KUBE-FORWARD -j DROP");
        let counted = counted(&format!("[{most}:{most}] {rule}\n[1:1] {rule}\n"));
        let sum = Counters {
            packets: most,
            bytes: most,
        };
        assert_eq!(counted.values().collect::<Vec<_>>(), [&sum]);
        let other = |site: &Site| Site {
            chain: "INPUT".to_owned(),
            ..site.clone()
        };
        let twice = counted
            .iter()
            .flat_map(|(site, n)| [(site.clone(), *n), (other(site), *n)]);
        let mut tally = Tally::default();
        tally.see(RuleCounters::new());
        tally.see(twice.collect());
        assert_eq!(tally.packets(), most);
    }

    #[test]
    fn equal_rules_of_a_chain_are_counted_together_and_others_apart() {
        let two = "[1:40] -A KUBE-FORWARD -j DROP\n[2:80] -A KUBE-FORWARD -j DROP\n\
                   [5:9] -A KUBE-FORWARD -j ACCEPT\n-A KUBE-FORWARD -j LOG\n";
        let counted = counted(two);
        let counts: Vec<_> = counted
            .iter()
            .map(|(site, n)| (site.rule.as_str(), n.packets))
            .collect();
        assert_eq!(counts, [("-j ACCEPT", 5), ("-j DROP", 3)]);
    }
}
