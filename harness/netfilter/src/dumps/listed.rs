//! Rules of iptables as `iptables -t TABLE -nvL` and `iptables -vnxL` list them, as sosreports have them: made what `iptables-save -c` prints.
//! What is listed in words that are not known here becomes a match that nobody knows, at which a walk is undecided. (Listed by 1.8.7, 1.8.9 and
//! 1.8.11, by either front end. 1.8.9 alone has a protocol's number in place of its name, and ip6tables 1.8.7 no dashes.)
//!
//! A listing does not say of which table it is: its built-in chains do, of which `security` has the same as filter.

mod behind;
mod open;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map::Entry};

use self::open::{Chain, Open};
pub(super) use self::{
    behind::{as_listed, marked, unknown},
    open::BUILT_IN,
};
use super::Save;
use crate::{
    Family,
    error::NetfilterError,
    rule::Rule,
    save::{Ruleset, Table},
};

/// A table that was listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// The line at which it begins.
    first: usize,
    family: Family,
    table: &'static str,
    rules: Table,
}

/// The tables that are listed in a text, and the lines of it that are none of theirs. A listing that is not whole, or that is not of one table, is
/// an error.
pub(super) fn read(text: String) -> Result<(Vec<Listed>, String), NetfilterError> {
    if !text.lines().any(is_head) {
        return Ok((Vec::new(), text));
    }
    let (mut listed, mut rest) = (Vec::new(), String::new());
    let mut open: Option<Open> = None;
    // Whether a table ended with a line that may have been a part of one of its rules.
    let mut is_doubtful = false;
    for (line, number) in text.lines().zip(1..) {
        if let Some(head) = Chain::read(line) {
            is_doubtful = false;
            if let Some(before) = open.take_if(|it| it.ends_before(&head)) {
                listed.extend(before.ended()?);
            }
            open.get_or_insert_with(|| Open::at(number)).begin(&head);
        } else if line.trim().is_empty() || is_head(line) {
            if let Some(open) = &mut open
                && line.trim().is_empty()
            {
                open.chain = None;
            }
        } else if rule::has_counters(line) && (open.is_some() || is_doubtful) {
            let taken = open.as_mut().is_some_and(|open| open.take(line));
            if !taken {
                return Err(incomplete(
                    number,
                    "has a rule that is not read: list it whole and with `-n -v`, as `-n` prints numbers",
                ));
            }
        } else {
            if let Some(before) = open.take() {
                is_doubtful = before.chain.is_some();
                listed.extend(before.ended()?);
            }
            rest.extend([line, "\n"]);
        }
    }
    if let Some(last) = open {
        listed.extend(last.ended()?);
    }
    Ok((listed, rest))
}

/// What is known, with what was saved since and what was listed, each table of that once: where a save has it, too, that counts.
pub(super) fn beside(
    known: &[Save],
    saved: Vec<Save>,
    all: Vec<Listed>,
) -> Result<Vec<Save>, NetfilterError> {
    let mut tables: BTreeMap<(Family, String), Option<Table>> = BTreeMap::new();
    let (old, mut saves): (Vec<&Save>, Vec<&Save>) = known.iter().partition(|it| it.is_listed);
    saves.extend(&saved);
    for save in saves {
        let names = save.ruleset.tables.keys();
        tables.extend(names.map(|name| ((save.family, name.clone()), None)));
    }
    let of_old = old.into_iter().flat_map(|save| {
        let tables = save.ruleset.tables.clone().into_iter();
        tables.map(|(name, table)| (0, save.family, name, table))
    });
    let of_new = all
        .into_iter()
        .map(|it| (it.first, it.family, it.table.to_owned(), it.rules));
    for (first, family, name, table) in of_old.chain(of_new) {
        match tables.entry((family, name)) {
            Entry::Vacant(new) => {
                new.insert(Some(table));
            }
            Entry::Occupied(known) => {
                let is_other = known
                    .get()
                    .as_ref()
                    .is_some_and(|known| !same(known, &table));
                if is_other {
                    return Err(incomplete(
                        first,
                        "is of a table that was listed with other rules: another front end's, or `security`",
                    ));
                }
            }
        }
    }
    let mut listed: BTreeMap<Family, Ruleset> = BTreeMap::new();
    for ((family, name), table) in tables {
        if let Some(table) = table {
            listed.entry(family).or_default().tables.insert(name, table);
        }
    }
    let listed = listed.into_iter().map(|(family, ruleset)| Save {
        family,
        backend: None,
        ruleset,
        is_listed: true,
    });
    let known = known.iter().filter(|it| !it.is_listed).cloned();
    Ok(known.chain(saved).chain(listed).collect())
}

/// Whether both have the same chains with the same rules, whatever these counted.
fn same(one: &Table, other: &Table) -> bool {
    let rules = |table: &Table| {
        let chains = table.chains.iter();
        let chains = chains.map(|(name, chain)| {
            let rules = chain.rules.iter().map(Rule::normal);
            (name.clone(), (chain.policy.clone(), rules.collect()))
        });
        chains.collect::<BTreeMap<_, (_, Vec<_>)>>()
    };
    rules(one) == rules(other)
}

fn incomplete(line: usize, why: &'static str) -> NetfilterError {
    NetfilterError::Listing { line, why }
}

/// Whether a line stands above the rules of a chain that were listed with counters and interfaces, rounded or, with `-x`, in full.
fn is_head(line: &str) -> bool {
    let words = line.split_whitespace().take(3);
    line.starts_with(' ') && words.eq(["pkts", "bytes", "target"])
}

/// `[12000:1440000]` of `12K` packets and `1440K` bytes.
fn counters(packets: &str, bytes: &str) -> Option<String> {
    Some(format!("[{}:{}]", count(packets)?, count(bytes)?))
}

fn count(text: &str) -> Option<u64> {
    let units = [
        ('K', 1_000),
        ('M', 1_000_000),
        ('G', 1_000_000_000),
        ('T', 1_000_000_000_000),
    ];
    let unit = units.into_iter().find(|(unit, _)| text.ends_with(*unit));
    let (unit, times) = unit.map_or((' ', 1), |(unit, times)| (unit, times));
    let number: u64 = text.trim_end_matches(unit).parse().ok()?;
    number.checked_mul(times)
}
