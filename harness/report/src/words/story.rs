//! The story of a case in lines: time, node, who, what.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::names::NodeName;

use crate::{
    text::{clock, count, length},
    timeline::{Kind, Round, Story, TimelineEntry},
};

/// A story longer than this is told in its beginning and its end.
const LINES: usize = 60;
/// How many lines of it are the end.
const LAST: usize = 15;

impl Story {
    /// In lines, as every report has them.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::from_iter(before(&self.before));
        lines.extend(told(&self.rounds));
        lines.extend(elsewhere(&self.elsewhere));
        lines
    }
}

/// One line of what came before the story.
pub(crate) fn before(early: &[TimelineEntry]) -> Option<String> {
    let first = early.first()?;
    let whos: BTreeSet<&str> = early.iter().map(|entry| entry.who.as_str()).collect();
    let whos: Vec<&str> = whos.into_iter().collect();
    Some(format!(
        "{:>8}  … until the cluster was ready, {} deleted rules of others {}",
        clock(first.at_us),
        whos.join(" and "),
        count(early.len(), "time")
    ))
}

/// Rounds that are told, and how many are not.
fn told(rounds: &[Round]) -> Vec<String> {
    let columns = Columns::of(rounds);
    let mut lines = Vec::new();
    let mut left_out: Vec<&Round> = Vec::new();
    for round in rounds {
        if round.told {
            lines.extend(more(&left_out));
            left_out.clear();
            lines.extend(round.entries.iter().map(|entry| columns.line(entry)));
        } else {
            left_out.push(round);
        }
    }
    lines.extend(more(&left_out));
    shortened(lines)
}

/// How wide the columns of nodes and actors are.
#[derive(Debug, Clone, Copy)]
struct Columns {
    nodes: usize,
    whos: usize,
}

impl Columns {
    fn of(rounds: &[Round]) -> Self {
        let widest = |of: fn(&TimelineEntry) -> usize| {
            let entries = rounds.iter().flat_map(|round| &round.entries);
            entries.map(of).max().unwrap_or(0)
        };
        Self {
            nodes: widest(|entry| entry.node.as_ref().map_or(0, |node| node.as_str().len())),
            whos: widest(|entry| entry.who.len()),
        }
    }

    fn line(self, entry: &TimelineEntry) -> String {
        let Self { nodes, whos } = self;
        let at = entry.node.as_ref().map_or("", |node| node.as_str());
        let time = clock(entry.at_us);
        format!(
            "{time:>8}  {at:nodes$}  {:whos$}  {}",
            entry.who, entry.what
        )
    }
}

/// `… 4 more rounds like this, mean 2.1 s, begun at 6.910, 9.020, … s`.
pub(crate) fn more(rounds: &[&Round]) -> Option<String> {
    const NAMED: usize = 4;
    let begins: Vec<u64> = rounds
        .iter()
        .filter_map(|round| round.entries.first().map(|entry| entry.at_us))
        .collect();
    let (first, last) = (begins.first()?, rounds.last()?.entries.last()?.at_us);
    let mean = (last - first) / begins.len() as u64;
    let mut times: Vec<String> = begins.iter().take(NAMED).map(|&us| clock(us)).collect();
    if begins.len() > NAMED {
        times.push("…".to_owned());
    }
    // Of one, and of what only began, there is no mean worth a word.
    let mean = match begins.len() {
        1 => String::new(),
        _ => format!(", mean {}", length(mean)),
    };
    Some(format!(
        "{:>8}  … {} like this{mean}, begun at {} s",
        "",
        count(begins.len(), "more round"),
        times.join(", ")
    ))
}

fn shortened(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES {
        let end = lines.split_off(lines.len() - LAST);
        let left_out = lines.split_off(LINES - LAST - 1).len();
        lines.push(format!("{:>8}  … {} left out", "", count(left_out, "line")));
        lines.extend(end);
    }
    lines
}

/// Other nodes in a line each, many in one for all.
pub(crate) fn elsewhere(entries: &[TimelineEntry]) -> Vec<String> {
    const EACH: usize = 3;
    let mut nodes: BTreeMap<&NodeName, Vec<&TimelineEntry>> = BTreeMap::new();
    for entry in entries {
        if let Some(node) = &entry.node {
            nodes.entry(node).or_default().push(entry);
        }
    }
    if nodes.len() > EACH {
        let all: Vec<&TimelineEntry> = entries.iter().collect();
        return vec![summed(&format!("{} other nodes", nodes.len()), &all)];
    }
    nodes
        .iter()
        .map(|(node, entries)| summed(node.as_str(), entries))
        .collect()
}

/// How often who did what there.
fn summed(whose: &str, entries: &[&TimelineEntry]) -> String {
    let mut counted: BTreeMap<(Kind, &str), usize> = BTreeMap::new();
    for entry in entries {
        let key = (entry.what.kind(), entry.who.as_str());
        *counted.entry(key).or_default() += 1;
    }
    let part = |((kind, who), n): (&(Kind, &str), &usize)| {
        let what = match kind {
            Kind::Cut => "deleted another's rules",
            Kind::Failed => "failed to restore",
            Kind::Log => "complained",
            _ => "wrote rules",
        };
        format!("{who} {what} {}", count(*n, "time"))
    };
    let first = entries.first().map_or(0, |entry| entry.at_us);
    let parts: Vec<String> = counted.iter().map(part).collect();
    format!("{whose}, from {} s: {}", clock(first), parts.join(", "))
}
