//! Tables of iptables' nft front end as `nft list ruleset` prints them, made what `iptables-save -c` prints. nft has iptables' own libraries
//! translate them, and says nothing of comments. What is printed in words that are not known here, or that may say something else than iptables
//! wrote, becomes a match that nobody knows, as in a [listing](super::listed). (nft 1.0.6 and 1.1.3, of what iptables 1.8.9 and 1.8.11 wrote.)
//!
//! An nft that was built without these libraries names matches and targets, and nothing of what they say: `xt match "comment"`. Its tables are not
//! made anything, nor is nat of IPv6, of which neither version finds the target `DNAT` that kube-proxy writes there.

mod matches;
mod target;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    Dumps, Save,
    listed::{as_listed, unknown},
};
use crate::{
    Family,
    nft::{NftTable, normal::tokens},
    replay::Backend,
    rule::Rule,
    save::{Chain, Ruleset, Table},
};

/// iptables' tables.
const TABLES: [&str; 4] = ["raw", "mangle", "nat", "filter"];
/// Their chains that the kernel enters.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

impl Dumps {
    /// The rules of iptables of a family, by whomever they were printed.
    pub(crate) fn of_iptables(&self, family: Family) -> Vec<Cow<'_, Save>> {
        let saves = self.saves.iter().map(Cow::Borrowed);
        let all = saves.chain(self.printed().into_iter().map(Cow::Owned));
        all.filter(|it| it.family == family).collect()
    }

    /// The rules of iptables' nft front end that nft alone has printed, made what `iptables-save` prints, as far as that can be done: without
    /// comments.
    pub fn printed(&self) -> Vec<Save> {
        let mut all: BTreeMap<Family, Save> = BTreeMap::new();
        for (family, name, rules) in self.nft.iter().filter_map(saved) {
            // In a save of the legacy front end it is another one; who printed a save is not always said.
            let has_it = |save: &&Save| {
                let may_be = save.family == family && save.backend != Some(Backend::Legacy);
                may_be && save.ruleset.tables.contains_key(name)
            };
            let of_family = all.entry(family).or_insert_with(|| Save {
                family,
                backend: Some(Backend::Nft),
                ruleset: Ruleset::default(),
                is_listed: false,
            });
            match self.saves.iter().find(has_it) {
                // What has one of its tables is of the same front end, whether or not it says so.
                Some(save) => of_family.backend = save.backend,
                None => drop(of_family.ruleset.tables.insert(name.to_owned(), rules)),
            }
        }
        all.retain(|_, save| !save.ruleset.tables.is_empty());
        all.into_values().collect()
    }
}

/// The table as iptables would save it, without comments, and its name; nothing where it is none of iptables', or is not printed whole.
fn saved(table: &NftTable) -> Option<(Family, &str, Table)> {
    let family = match (table.family.as_str(), table.name.as_str()) {
        ("ip", _) => Family::V4,
        ("ip6", name) if name != "nat" => Family::V6,
        _ => return None,
    };
    let is_entered = |name: &str| {
        let about = table.about.get(&format!("chain {name}"));
        about.is_some_and(|lines| lines.iter().any(|it| it.starts_with("type ")))
    };
    let chains = &table.table.chains;
    let mut names = chains.keys().map(String::as_str);
    let is_its = TABLES.contains(&table.name.as_str())
        && table.sets.is_empty()
        && names.all(|name| is_entered(name) == BUILT_IN.contains(&name));
    let mut rules = chains.values().flat_map(|chain| &chain.rules);
    if !is_its || !rules.all(is_translated) {
        return None;
    }
    let chains = chains.iter().map(|(name, chain)| {
        let rules = chain.rules.iter().map(|rule| Rule {
            text: text(&rule.text, family),
            counters: rule.counters,
        });
        let saved = Chain {
            policy: chain.policy.as_ref().map(|it| it.to_uppercase()),
            counters: chain.counters,
            rules: rules.collect(),
        };
        (name.clone(), saved)
    });
    let chains = chains.collect();
    Some((family, &table.name, Table { chains }))
}

/// Whether iptables wrote a rule, and its libraries translated it. iptables has every rule count, and nothing is printed of a comment, which agents'
/// rules have. Without the libraries it is `xt match "comment"` or, before nft 1.0.6, `# xt_comment`.
fn is_translated(rule: &Rule) -> bool {
    let words = words(&rule.text);
    let mut words = words.iter().map(|it| it.trim_matches('"'));
    let mut counts = false;
    words.all(|word| {
        counts |= word == "counter";
        word != "comment" && !word.starts_with("xt_")
    }) && counts
}

/// A rule behind its chain: matches stand before its counter, what is done behind it.
fn text(rule: &str, family: Family) -> String {
    let words = words(rule);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let at = words.iter().position(|it| *it == "counter");
    let (before, behind) = words.split_at(at.unwrap_or(words.len()));
    let mut parts = matches::read(before);
    let does = behind.get(1..).unwrap_or_default();
    let target = target::read(does, family);
    // A target that nobody has.
    parts.push(target.unwrap_or_else(|| format!("{} -j as-listed", as_listed(&does.join(" ")))));
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// In one spelling: `meta mark` is `mark`, and `and` is `&`.
fn words(rule: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for token in tokens(rule) {
        let is_short = ["mark", "skuid", "skgid"].contains(&token.as_str());
        words.pop_if(|last| is_short && last == "meta");
        words.push(match token.as_str() {
            "and" => "&".to_owned(),
            "or" => "|".to_owned(),
            "xor" => "^".to_owned(),
            _ => token,
        });
    }
    words
}

/// A number, in whichever way it is written.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
