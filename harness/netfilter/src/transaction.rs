//! What an `nft` command changes, told in the words for iptables: a set or a map is a chain whose rules are its
//! elements. Only the line form is read (`add rule ip filter INPUT …`), which is what agents write; of a block
//! (`table ip filter { … }`) nothing is claimed.

use crate::{
    change::{Change, ChangeKind},
    command::{Family, base_name},
};

/// Tables that a flush of the whole ruleset may have emptied.
const KNOWN: [&str; 5] = ["raw", "mangle", "nat", "filter", "kube-proxy"];

/// What it was told to change, in order; `None` when it is no `nft`. All of it happens or nothing.
pub(crate) fn changes<S: AsRef<str>>(argv: &[S], input: &str) -> Option<Vec<Change>> {
    let (program, arguments) = argv.split_first()?;
    if base_name(program.as_ref()) != "nft" {
        return None;
    }
    let mut words: Vec<&str> = Vec::new();
    let mut arguments = arguments.iter().map(AsRef::as_ref);
    while let Some(argument) = arguments.next() {
        match argument {
            "-c" | "--check" => return Some(Vec::new()),
            "-f" | "--file" => {
                let input = if arguments.next() == Some("-") {
                    input
                } else {
                    ""
                };
                return Some(input.lines().flat_map(of_line).collect());
            }
            option if option.starts_with('-') && words.is_empty() => {}
            word => words.push(word),
        }
    }
    let line = words.join(" ");
    // Several commands may stand in one argument. A body in braces has semicolons of its own.
    let commands = if line.contains('{') {
        vec![line.as_str()]
    } else {
        line.split(';').collect()
    };
    Some(commands.into_iter().flat_map(of_line).collect())
}

fn of_line(line: &str) -> Vec<Change> {
    let mut words = line.split_whitespace();
    let (Some(verb), Some(object)) = (words.next(), words.next()) else {
        return Vec::new();
    };
    if (verb, object) == ("flush", "ruleset") {
        let families = match words.next() {
            Some("ip6") => vec![Family::V6],
            Some("ip") => vec![Family::V4],
            Some(_) => Vec::new(),
            None => vec![Family::V4, Family::V6],
        };
        return families.into_iter().flat_map(everything).collect();
    }
    let family = match words.next() {
        Some("ip") => Family::V4,
        Some("ip6") => Family::V6,
        _ => return Vec::new(),
    };
    let Some(table) = words.next() else {
        return Vec::new();
    };
    let name = words.next().unwrap_or_default();
    let rest = words.collect::<Vec<_>>().join(" ");
    let chain = if object == "table" { "" } else { name };
    let kind = kind(verb, object, rest);
    kind.map(|kind| change(family, table, chain, kind))
        .into_iter()
        .collect()
}

fn everything(family: Family) -> impl Iterator<Item = Change> {
    let gone = move |table: &str| change(family, table, "", ChangeKind::ChainDeleted);
    KNOWN.into_iter().map(gone)
}

fn change(family: Family, table: &str, chain: &str, kind: ChangeKind) -> Change {
    Change {
        family,
        table: table.to_owned(),
        chain: chain.to_owned(),
        kind,
    }
}

fn kind(verb: &str, object: &str, rest: String) -> Option<ChangeKind> {
    let target = target(&rest);
    Some(match (verb, object) {
        ("add" | "create" | "insert", "rule" | "element") => {
            ChangeKind::RuleAdded { text: rest, target }
        }
        ("delete" | "destroy", "element") => ChangeKind::RuleDeleted { text: rest, target },
        ("add" | "create", "chain" | "set" | "map") => ChangeKind::ChainCreated,
        ("flush", "chain" | "set" | "map" | "table") => ChangeKind::ChainFlushed,
        ("delete" | "destroy", "chain" | "set" | "map" | "table") => ChangeKind::ChainDeleted,
        _ => return None,
    })
}

/// Where a rule, or the verdict of an element, leads.
fn target(text: &str) -> Option<String> {
    let mut words = text.split(' ');
    words.find(|word| matches!(*word, "jump" | "goto"))?;
    words.next().map(str::to_owned)
}
