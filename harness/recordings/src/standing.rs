//! What stands in the kernel, as its tools print it.

use std::collections::BTreeMap;

use chainbreak_netfilter::{Chain, NetfilterError, Rule, Ruleset, Table, nft};
use serde::{Deserialize, Serialize};

/// The marks of a chain's policy among its rules.
const POLICY: &str = "policy ";

/// The lines of every place. A place is a chain of iptables (`ip nat KUBE-SERVICES`), or a chain, set or map of nft's
/// (`ip kube-proxy chain services`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Standing(BTreeMap<String, Vec<String>>);

/// What changed: the lines of places that are new or otherwise, nothing for those that are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delta(BTreeMap<String, Option<Vec<String>>>);

impl Standing {
    /// Adds what `iptables-save` of that family (`ip` or `ip6`) printed.
    pub fn add_save(&mut self, family: &str, save: &str) -> Result<(), NetfilterError> {
        self.add_ruleset(family, &Ruleset::parse(save)?);
        Ok(())
    }

    /// Adds the tables of that family.
    pub fn add_ruleset(&mut self, family: &str, ruleset: &Ruleset) {
        for (table, content) in &ruleset.tables {
            for (name, chain) in &content.chains {
                // Some iptables backends print built-in chains that nobody has touched.
                if chain.rules.is_empty() && chain.policy.as_deref() == Some("ACCEPT") {
                    continue;
                }
                let policy = chain.policy.iter().map(|it| format!("{POLICY}{it}"));
                let rules = chain.rules.iter().map(|it| it.text.clone());
                let lines = policy.chain(rules).collect();
                self.0.insert(format!("{family} {table} {name}"), lines);
            }
        }
    }

    /// Adds what `nft list table` printed.
    pub fn add_listing(&mut self, listing: &str) -> Result<(), NetfilterError> {
        for table in nft::listing(listing)? {
            self.0.extend(nft::places(&table));
        }
        Ok(())
    }

    /// Notes a place.
    pub fn insert(&mut self, place: String, lines: Vec<String>) {
        self.0.insert(place, lines);
    }

    /// The tables of one family of iptables.
    pub fn ruleset(&self, family: &str) -> Ruleset {
        let mut ruleset = Ruleset::default();
        for (place, lines) in &self.0 {
            let mut words = place.splitn(3, ' ');
            let (Some(of), Some(table), Some(name)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if of != family {
                continue;
            }
            let entry = ruleset.tables.entry(table.to_owned());
            let table = entry.or_insert_with(|| Table::built_in(table));
            table.chains.insert(name.to_owned(), chain(lines));
        }
        ruleset
    }

    /// Every place with its lines, by name.
    pub fn places(&self) -> impl Iterator<Item = (&str, &[String])> {
        let places = self.0.iter();
        places.map(|(place, lines)| (place.as_str(), lines.as_slice()))
    }

    /// The lines of a place; none when it is not there.
    pub fn lines(&self, place: &str) -> Option<&[String]> {
        self.0.get(place).map(Vec::as_slice)
    }

    /// Whether any line says that.
    pub fn has_line_with(&self, text: &str) -> bool {
        let mut lines = self.0.values().flatten();
        lines.any(|line| line.contains(text))
    }

    /// Leaves out the lines that say that.
    pub fn drop_lines_with(&mut self, text: &str) {
        for lines in self.0.values_mut() {
            lines.retain(|line| !line.contains(text));
        }
    }

    /// What leads from `before` to this.
    pub fn since(&self, before: &Self) -> Delta {
        let gone = before.0.keys().filter(|it| !self.0.contains_key(*it));
        let gone = gone.map(|it| (it.clone(), None));
        let other = self
            .0
            .iter()
            .filter(|(it, lines)| before.0.get(*it) != Some(lines));
        let other = other.map(|(it, lines)| (it.clone(), Some(lines.clone())));
        Delta(gone.chain(other).collect())
    }

    /// Goes on by what changed.
    pub fn change(&mut self, delta: &Delta) {
        for (place, lines) in &delta.0 {
            match lines {
                Some(lines) => drop(self.0.insert(place.clone(), lines.clone())),
                None => drop(self.0.remove(place)),
            }
        }
    }
}

fn chain(lines: &[String]) -> Chain {
    let mut chain = Chain::default();
    for line in lines {
        match line.strip_prefix(POLICY) {
            Some(policy) => chain.policy = Some(policy.to_owned()),
            None => chain.rules.push(Rule::new(line)),
        }
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVE: &str = "*nat\n:PREROUTING ACCEPT [1:2]\n:OUTPUT DROP [0:0]\n:KUBE-X - [0:0]\n\
                        -A KUBE-X -s 10.0.0.1/32 -j RETURN\nCOMMIT\n";

    fn standing(save: &str) -> Standing {
        let mut standing = Standing::default();
        standing.add_save("ip", save).unwrap();
        standing
    }

    #[test]
    fn what_was_saved_comes_back_but_for_untouched_chains() {
        let standing = standing(SAVE);
        let ruleset = standing.ruleset("ip");
        let chains: Vec<_> = ruleset.tables["nat"].chains.keys().collect();
        assert_eq!(
            chains,
            ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING", "KUBE-X"]
        );
        assert_eq!(
            ruleset.chain("nat", "OUTPUT").unwrap().policy.as_deref(),
            Some("DROP")
        );
        assert_eq!(ruleset.count("nat", "KUBE-X", Some("RETURN")), 1);
        assert_eq!(standing.ruleset("ip6"), Ruleset::default());
    }

    #[test]
    fn a_delta_leads_from_one_to_the_other() {
        let before = standing(SAVE);
        let after = standing("*nat\n:KUBE-Y - [0:0]\n:KUBE-X - [0:0]\nCOMMIT\n");
        let mut changed = before.clone();
        changed.change(&after.since(&before));
        assert_eq!(changed, after);
        assert_eq!(after.since(&after), Delta::default());
    }
}
