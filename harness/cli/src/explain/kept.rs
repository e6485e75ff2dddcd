//! What a run kept of a node's rules at the end of a case, held against what the history leads to.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Result;
use chainbreak_model::{
    event::{Command, Event, EventKind, Phase},
    input,
    names::NodeName,
};
use chainbreak_netfilter::{
    Family, NetfilterError, Ruleset,
    dumps::Dumps,
    replay::{Backend, Replay},
};
use chainbreak_report::commands::{before, ran};

use crate::cases::invalid;

/// So long may a kept dump be, in bytes.
const MOST: u64 = 256 << 20;
/// So many places are named that differ.
const NAMED: usize = 5;

/// Of each table that differs, where.
type Places = BTreeMap<String, BTreeSet<String>>;

/// A kept dump, and the fewest places in which the history led to something else.
struct Kept {
    name: String,
    text: String,
    family: Option<Family>,
    differs: Option<Places>,
}

/// What came of holding the history against the dumps of a node.
pub(super) struct Check {
    /// In words.
    pub(super) words: String,
    /// Whether nothing speaks against the rebuilt rules.
    pub(super) agrees: bool,
}

/// Holds the history of a node against what was kept of it. When exactly that was listed is not written down, and agents worked on: it
/// has to agree with one moment after the judged time.
pub(super) fn check(
    folder: &Path,
    artifacts: &[String],
    node: &NodeName,
    own: Backend,
    commands: &[(u64, &Command)],
    events: &[Event],
) -> Check {
    let mut kept: Vec<Kept> = artifacts
        .iter()
        .filter_map(|path| rules(folder, path, node))
        .collect();
    if kept.is_empty() {
        return Check {
            words: format!(
                "no rules of {node} were kept to hold this against: a run keeps them of cases that do not come out as expected"
            ),
            agrees: true,
        };
    }
    let phase = |wanted: &[Phase]| {
        let is =
            |event: &&Event| matches!(&event.what, EventKind::Phase(it) if wanted.contains(it));
        events.iter().find(is).map(|event| event.at_us)
    };
    let from = phase(&[Phase::Judged]).unwrap_or(0);
    let until = phase(&[Phase::Kept, Phase::Destroyed]).unwrap_or(u64::MAX);
    let mut replay = before(own, commands);
    let mut looked = false;
    for (at_us, command) in commands.iter().filter(|it| it.0 <= until) {
        if *at_us > from && !looked {
            look(&mut kept, &replay);
            looked = true;
        }
        drop(replay.take(ran(*at_us, command)));
        if looked {
            look(&mut kept, &replay);
        }
    }
    look(&mut kept, &replay);
    told(&kept)
}

fn look(kept: &mut [Kept], replay: &Replay) {
    for it in kept {
        it.look(replay);
    }
}

fn told(kept: &[Kept]) -> Check {
    let names: Vec<&str> = kept.iter().map(|it| it.name.as_str()).collect();
    let differs: BTreeSet<String> = kept
        .iter()
        .flat_map(|it| it.differs.iter().flat_map(BTreeMap::values).flatten())
        .cloned()
        .collect();
    if differs.is_empty() {
        let words = format!(
            "at the end the history leads to the rules that were kept in {}",
            names.join(" and ")
        );
        return Check {
            words,
            agrees: true,
        };
    }
    let mut places: Vec<&str> = differs.iter().take(NAMED).map(String::as_str).collect();
    let more = format!("{} more", differs.len().saturating_sub(NAMED));
    if differs.len() > NAMED {
        places.push(&more);
    }
    Check {
        words: format!(
            "NOT SURE: at the end the history leads to other rules than were kept in {}, so that something wrote them that it does not \
             tell of: {}",
            names.join(" and "),
            places.join(", ")
        ),
        agrees: false,
    }
}

/// Files of a run that have rules of the node, and those maps of Felix's there that a walk goes by: their names and texts.
pub(crate) fn texts(folder: &Path, artifacts: &[String], node: &NodeName) -> Vec<(String, String)> {
    const RULES: [&str; 3] = ["iptables-save", "ip6tables-save", "nft"];
    const MAPS: [&str; 5] = ["nat", "conntrack", "routes", "ipsets", "policies"];
    let is_map = |kind: &str| {
        let map = kind.strip_prefix("bpf-").unwrap_or_default();
        MAPS.contains(&map.strip_suffix("-6").unwrap_or(map))
    };
    let read = |path: &String| {
        let (name, kind, text) = read(folder, path, node)?;
        (RULES.contains(&kind.as_str()) || is_map(&kind)).then_some((name, text))
    };
    artifacts.iter().filter_map(read).collect()
}

/// Takes in what such files say.
pub(crate) fn add<'a>(
    dumps: &mut Dumps,
    texts: impl IntoIterator<Item = &'a (String, String)>,
) -> Result<()> {
    for (name, text) in texts {
        let added = dumps.add(text);
        added.map_err(|why| invalid(format!("{name} cannot be read: {why}")))?;
    }
    Ok(())
}

/// Rules of the node that are to be held against the history.
fn rules(folder: &Path, path: &str, node: &NodeName) -> Option<Kept> {
    let (name, kind, text) = read(folder, path, node)?;
    let family = match kind.as_str() {
        "iptables-save" => Some(Family::V4),
        "ip6tables-save" => Some(Family::V6),
        "nft" => None,
        _ => return None,
    };
    Some(Kept {
        name,
        text,
        family,
        differs: None,
    })
}

/// A file of the node that is not empty: its name, what it is of, and its text.
fn read(folder: &Path, path: &str, node: &NodeName) -> Option<(String, String, String)> {
    let path = PathBuf::from(path);
    let name = path.file_name()?.to_str()?.to_owned();
    let kind = name.strip_prefix(node.as_str())?.strip_prefix('.')?;
    let kind = kind.to_owned();
    let mut text = String::new();
    let mut file = input::open_below(folder, &path, MOST).ok()?;
    file.read_to_string(&mut text).ok()?;
    (!text.trim().is_empty()).then_some((name, kind, text))
}

impl Kept {
    /// Compares, and remembers the closest.
    fn look(&mut self, replay: &Replay) {
        if self.differs.as_ref().is_some_and(BTreeMap::is_empty) {
            return;
        }
        let found = self
            .compare(replay)
            .unwrap_or_else(|why| [format!("{} cannot be read: {why}", self.name)].into());
        let found = by_table(found);
        match &mut self.differs {
            Some(closest) => nearer(closest, found),
            None => self.differs = Some(found),
        }
    }

    fn compare(&self, replay: &Replay) -> std::result::Result<BTreeSet<String>, NetfilterError> {
        let Some(family) = self.family else {
            return Ok(replay
                .differs_from_listing(&self.text)?
                .into_iter()
                .collect());
        };
        let kept = Ruleset::parse(&self.text)?;
        let changes = replay.differs_from(family, &kept);
        let places = changes
            .iter()
            .map(|it| format!("{} {}", it.table, it.chain));
        Ok(places.collect())
    }
}

/// A place begins with its table.
fn by_table(places: BTreeSet<String>) -> Places {
    let mut tables = Places::new();
    for place in places {
        let table = place.split(' ').next().unwrap_or_default().to_owned();
        tables.entry(table).or_default().insert(place);
    }
    tables
}

/// Table by table: a restore commits one after the other, and a save lists them so, and while both are at work no moment has all of them.
fn nearer(closest: &mut Places, mut found: Places) {
    closest.retain(|table, places| {
        let now = found.remove(table).unwrap_or_default();
        if now.len() < places.len() {
            *places = now;
        }
        !places.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[&str]) -> Places {
        by_table(all.iter().map(|&place| place.to_owned()).collect())
    }

    #[test]
    fn a_dump_made_between_two_commits_of_one_restore_agrees() {
        let mut closest = places(&["nat KUBE-SERVICES", "nat KUBE-SVC-A"]);
        nearer(&mut closest, places(&["filter KUBE-FORWARD"]));
        assert_eq!(closest, places(&[]));
    }

    #[test]
    fn a_table_that_never_agrees_is_told_where_it_came_closest() {
        let mut closest = places(&["nat A", "nat B", "filter C"]);
        nearer(&mut closest, places(&["nat B", "filter D", "filter E"]));
        assert_eq!(closest, places(&["nat B", "filter C"]));
    }
}
