//! Tables in memory in the form of a listing, to be walked through.

use super::{
    NftTable,
    content::{Content, ELEMENT},
    tables::Tables,
};
use crate::rule::Rule;

/// What a line that says what a chain, a set or a map is begins with.
const ABOUT: [&str; 4] = ["type ", "comment ", "flags ", "timeout "];

impl Tables {
    /// Every table, as `nft list ruleset` would have it. Elements that end by themselves are there as long as nobody deletes them.
    pub fn listed(&self) -> Vec<NftTable> {
        let tables = self.0.iter();
        let listed = tables.map(|((family, name), content)| NftTable {
            is_rebuilt: true,
            ..content.listed(family, name)
        });
        listed.collect()
    }

    /// One of them, where it is there.
    pub fn listed_table(&self, family: &str, name: &str) -> Option<NftTable> {
        let content = self.0.get(&(family.to_owned(), name.to_owned()))?;
        Some(content.listed(family, name))
    }

    /// Has none of a family any more, or none at all.
    pub(crate) fn flush(&mut self, family: Option<&str>) {
        self.0
            .retain(|(of, _), _| family.is_some_and(|family| of != family));
    }
}

impl Content {
    fn listed(&self, family: &str, name: &str) -> NftTable {
        let mut table = NftTable {
            family: family.to_owned(),
            name: name.to_owned(),
            ..NftTable::default()
        };
        for (name, chain) in &self.chains {
            table.place("chain", name, &chain.lines());
        }
        for (name, set) in &self.sets {
            table.place(&set.word, name, &set.lines());
        }
        table
    }
}

impl NftTable {
    fn place(&mut self, word: &str, name: &str, lines: &[String]) {
        let is_about = |line: &&String| ABOUT.iter().any(|it| line.starts_with(it));
        let (about, rest): (Vec<&String>, Vec<&String>) = lines.iter().partition(is_about);
        if word == "chain" {
            let chain = self.table.chains.entry(name.to_owned()).or_default();
            chain.rules = rest.into_iter().map(Rule::new).collect();
            let policy = about.iter().find_map(|it| it.split_once(" policy "));
            chain.policy = policy.map(|(_, policy)| policy.to_owned());
        } else {
            let element = |line: &String| {
                let element = line.strip_prefix(ELEMENT).unwrap_or(line);
                element.trim_start().to_owned()
            };
            let elements = rest.into_iter().map(element).collect();
            self.sets.insert(name.to_owned(), elements);
        }
        let about = about.into_iter().cloned().collect();
        self.about.insert(format!("{word} {name}"), about);
    }
}
