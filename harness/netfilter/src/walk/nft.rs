//! Tables of nft: base chains, named sets and maps, and rules read into conditions and actions. Each line is read in
//! its [`normal`] form.

mod conditions;
mod fields;
mod statements;

use std::{collections::BTreeMap, sync::Arc};

use self::statements::Reader;
use super::{
    elements::Elements,
    path::Hook,
    program::{Base, Chain, Kind, Program},
};
use crate::nft::{NftTable, normal};

/// What names in a table's rules stand for.
pub(super) struct Names {
    chains: BTreeMap<String, usize>,
    sets: BTreeMap<String, Arc<Elements>>,
}

/// Reads a table.
pub(super) fn program(table: &NftTable) -> Program {
    let content = &table.table;
    let chains = content.chains.keys().cloned().zip(0..).collect();
    let mut names = Names {
        chains,
        sets: BTreeMap::new(),
    };
    for (name, elements) in &table.sets {
        let mut elements = set(elements, &names);
        if table.is_rebuilt && is_filled_by_packets(table, name) {
            elements.add_unknown(&format!("what packets put into @{name}"));
        }
        names.sets.insert(name.clone(), Arc::new(elements));
    }
    let mut program = Program {
        table: format!("{} {}", table.family, table.name),
        chains: Vec::new(),
        bases: Vec::new(),
    };
    for ((name, chain), number) in content.chains.iter().zip(0..) {
        let rules = chain.rules.iter().map(|it| Reader::rule(&it.text, &names));
        let drops = chain.policy.as_deref() == Some("drop");
        let indexed = Chain::new(name.clone(), drops, rules.collect());
        program.chains.push(indexed);
        let about = table.about.get(&format!("chain {name}"));
        program
            .bases
            .extend(about.and_then(|lines| base(lines, number)));
    }
    program
}

/// A set's elements. What they lead to may be a chain.
fn set(elements: &[String], names: &Names) -> Elements {
    let mut set = Elements::default();
    for element in elements {
        Reader::element(element, names, &mut set);
    }
    set
}

/// Whether a rule puts elements into a set.
fn is_filled_by_packets(table: &NftTable, set: &str) -> bool {
    let puts = ["add", "update"].map(|verb| format!("{verb} @{set} "));
    let mut rules = table.table.chains.values().flat_map(|it| &it.rules);
    rules.any(|rule| puts.iter().any(|it| rule.text.contains(it)))
}

/// Reads `type nat hook prerouting priority -100 policy accept`.
fn base(about: &[String], chain: usize) -> Option<Base> {
    let line = about.iter().find(|it| it.starts_with("type "))?;
    let line = normal(line);
    let words: Vec<&str> = line.split(' ').collect();
    let after = |name: &str| {
        let at = words.iter().position(|it| *it == name)?;
        words.get(at + 1).copied()
    };
    let kind = match after("type")? {
        "nat" => Kind::Nat,
        "route" => Kind::Route,
        _ => Kind::Filter,
    };
    Some(Base {
        hook: Hook::parse(after("hook")?)?,
        priority: after("priority")?.parse().ok()?,
        kind,
        chain,
    })
}
