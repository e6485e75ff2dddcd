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

use super::{
    Dumps, Save,
    listed::{self, BUILT_IN, as_listed},
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

impl Dumps {
    /// The rules of iptables of a family, by whomever they were printed.
    pub(crate) fn of_iptables(&self, family: Family) -> impl Iterator<Item = &Save> {
        let all = self.saves.iter().chain(self.printed());
        all.filter(move |it| it.family == family)
    }

    /// The rules of iptables' nft front end that nft alone has printed, made what `iptables-save` prints, as far as that can be done: without
    /// comments.
    pub fn printed(&self) -> &[Save] {
        self.printed.get_or_init(|| {
            let families = [Family::V4, Family::V6].into_iter();
            families.filter_map(|it| self.printed_of(it)).collect()
        })
    }

    fn printed_of(&self, family: Family) -> Option<Save> {
        let mut printed = Save {
            family,
            backend: Some(Backend::Nft),
            ruleset: Ruleset::default(),
            is_listed: false,
        };
        let is_its =
            |it: &&NftTable| it.family == family.of_nft() && TABLES.contains(&it.name.as_str());
        for table in self.nft.iter().filter(is_its) {
            // In a save of the legacy front end it is another one; who printed a save is not always said.
            let has_it = |save: &&Save| {
                let may_be = save.family == family && save.backend != Some(Backend::Legacy);
                may_be && save.ruleset.tables.contains_key(&table.name)
            };
            if let Some(save) = self.saves.iter().find(has_it) {
                // What has one of its tables is of the same front end, whether or not it says so.
                printed.backend = save.backend;
            } else if let Some(rules) = saved(table, family) {
                printed.ruleset.tables.insert(table.name.clone(), rules);
            }
        }
        (!printed.ruleset.tables.is_empty()).then_some(printed)
    }
}

/// The table as iptables would save it, without comments; nothing where it is not iptables', or is not printed whole.
fn saved(table: &NftTable, family: Family) -> Option<Table> {
    if (family, table.name.as_str()) == (Family::V6, "nat") {
        return None;
    }
    let is_entered = |name: &str| {
        let about = table.about.get(&format!("chain {name}"));
        about.is_some_and(|lines| lines.iter().any(|it| it.starts_with("type ")))
    };
    let chains = &table.table.chains;
    let mut names = chains.keys().map(String::as_str);
    let is_its =
        table.sets.is_empty() && names.all(|name| is_entered(name) == BUILT_IN.contains(&name));
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
    Some(Table { chains })
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
