//! What `nft` made: transactions of the line form, as agents write them, and blocks that only declare.

use std::collections::{BTreeMap, BTreeSet};

use super::{Backend, Doubt, Ran, Replay};
use crate::{
    Family, NetfilterError,
    command::base_name,
    nft::{self, FAMILIES, Refusal},
};

/// Commands that change something.
const VERBS: [&str; 9] = [
    "add", "create", "insert", "replace", "rename", "delete", "destroy", "flush", "reset",
];
/// Commands that only look.
const LOOKS: [&str; 4] = ["list", "monitor", "describe", "get"];

impl Replay {
    pub(super) fn nft(&mut self, ran: Ran<'_>) -> Result<(), Doubt> {
        if (1..128).contains(&ran.exit) {
            // All of it happens or nothing.
            return Ok(());
        }
        let mut lines = Vec::new();
        for line in commands(ran.argv, ran.input)? {
            let words: Vec<&str> = line.split_whitespace().collect();
            match *words.as_slice() {
                [] => {}
                [first, ..] if LOOKS.contains(&first) || first.starts_with('#') => {}
                _ if ran.exit != 0 => return Err(Doubt("it was killed at its work".to_owned())),
                // Without `add`, it makes the table all the same.
                ["table", family, name] if self.is_of_iptables(family, name) => {}
                ["table", family, name] if FAMILIES.contains(&family) => {
                    lines.push(format!("add table {family} {name}"));
                }
                ["flush", "ruleset", ref family @ ..] => {
                    self.transaction(&mut lines)?;
                    self.flush_ruleset(family.first().copied());
                }
                ["delete", "table", family, name] if self.is_of_iptables(family, name) => {
                    self.transaction(&mut lines)?;
                    self.delete_table(family, name);
                }
                [verb, object, family, name, ..]
                    if VERBS.contains(&verb) && FAMILIES.contains(&family) =>
                {
                    if self.is_of_iptables(family, name) {
                        return Err(Doubt(format!(
                            "it writes {family} {name}, a table of iptables: {verb} {object}"
                        )));
                    }
                    lines.push(line);
                }
                [verb, object, ref rest @ ..] if VERBS.contains(&verb) => {
                    lines.push(format!("{verb} {object} ip {}", rest.join(" ")));
                }
                _ => return Err(Doubt(format!("it is not known here: {line}"))),
            }
        }
        self.transaction(&mut lines)
    }

    /// The chains, sets and maps in which the tables of nft's own differ from what `nft list ruleset` printed. What a packet
    /// adds to a set is not looked at.
    pub fn differs_from_listing(&self, listing: &str) -> Result<Vec<String>, NetfilterError> {
        let listed = nft::listing(listing)?;
        let others = listed
            .iter()
            .filter(|it| !self.is_of_iptables(&it.family, &it.name));
        let kept: BTreeMap<_, _> = others.flat_map(nft::places).collect();
        let known: BTreeMap<_, _> = self.nft.places().into_iter().collect();
        let places: BTreeSet<&String> = kept.keys().chain(known.keys()).collect();
        let differs = |place: &&&String| {
            let [known, kept] = [&known, &kept].map(|of| of.get(**place).map(|it| lines(it)));
            known != kept
        };
        Ok(places
            .iter()
            .filter(differs)
            .map(|it| (*it).clone())
            .collect())
    }

    /// Applies the lines, and has none afterwards.
    fn transaction(&mut self, lines: &mut Vec<String>) -> Result<(), Doubt> {
        let input = std::mem::take(lines).join("\n");
        self.nft.apply(&input).map_err(|why| {
            Doubt(match why {
                Refusal::Syntax { text, .. } => format!("it is not known here: {text}"),
                why => format!("the rules that are known do not allow it: {why}"),
            })
        })
    }

    /// Whether the table is one that iptables-nft wrote.
    fn is_of_iptables(&self, family: &str, name: &str) -> bool {
        let of = |it: &super::Saved| it.backend == Backend::Nft && it.name == name;
        let family = family_of(family);
        let mut tables = self.tables.iter().filter(|it| of(it));
        tables.any(|it| Some(it.family) == family)
    }

    fn delete_table(&mut self, family: &str, name: &str) {
        let family = family_of(family);
        self.tables.retain(|it| {
            it.backend != Backend::Nft || it.name != name || Some(it.family) != family
        });
    }

    fn flush_ruleset(&mut self, family: Option<&str>) {
        self.nft.flush(family);
        let hit = |of: Family| family.is_none_or(|it| family_of(it) == Some(of));
        self.tables
            .retain(|it| it.backend != Backend::Nft || !hit(it.family));
    }
}

/// The lines of a place in one spelling; of a set that packets fill, only what it is, without the size that the kernel gives it.
fn lines(place: &[String]) -> Vec<String> {
    let fills = place
        .iter()
        .any(|it| it.starts_with("flags ") && it.contains("dynamic"));
    let is_set = place
        .iter()
        .any(|it| it.starts_with("type") && !it.contains(" hook "));
    let is_not_told = |it: &&String| {
        ["element ", "size "]
            .iter()
            .any(|word| it.starts_with(word))
    };
    let rest = place.iter().filter(|it| !(fills && is_not_told(it)));
    let mut lines: Vec<String> = rest.map(|it| nft::normal(it)).collect();
    if is_set {
        lines.sort_unstable();
    }
    lines
}

fn family_of(nft: &str) -> Option<Family> {
    match nft {
        "ip" => Some(Family::V4),
        "ip6" => Some(Family::V6),
        _ => None,
    }
}

/// The lines of an input. A block of a table that declares chains, sets and maps, a line each, becomes as many commands; nothing is
/// claimed of any other.
fn lines_of(input: &str) -> Result<Vec<String>, Doubt> {
    let mut lines = Vec::new();
    let mut table: Option<String> = None;
    for line in input.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (&table, words.as_slice()) {
            (None, ["table", family, name, "{"]) => {
                lines.push(format!("add table {family} {name}"));
                table = Some(format!("{family} {name}"));
            }
            (None, _) => lines.push(line.to_owned()),
            (Some(_), []) => {}
            (Some(_), ["}"]) => table = None,
            (Some(of), [word @ ("chain" | "set" | "map"), name, "{", body @ .., "}"])
                if !body.contains(&"elements") =>
            {
                lines.push(format!("add {word} {of} {name} {{ {} }}", body.join(" ")));
            }
            (Some(_), _) => return Err(Doubt(format!("it is not known here: {}", line.trim()))),
        }
    }
    match table {
        Some(of) => Err(Doubt(format!("the block of {of} has no end"))),
        None => Ok(lines),
    }
}

/// The commands of a call, a line each.
fn commands(argv: &[String], input: &str) -> Result<Vec<String>, Doubt> {
    let mut words: Vec<&str> = Vec::new();
    let mut arguments = argv.iter().skip(1).map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "-c" | "--check" => return Ok(Vec::new()),
            "-f" | "--file" => {
                return match arguments.next() {
                    Some("-" | "/dev/stdin") => lines_of(input),
                    file => Err(Doubt(format!(
                        "what is in {} was not seen",
                        file.map_or("its file", base_name)
                    ))),
                };
            }
            option if option.starts_with('-') && words.is_empty() => {}
            word => words.push(word),
        }
    }
    let line = words.join(" ");
    // A body in braces has semicolons of its own.
    Ok(if line.contains('{') {
        vec![line]
    } else {
        line.split(';').map(str::to_owned).collect()
    })
}
