//! Rounds: an agent cuts, the other fails and heals, and it begins again. A round is told when it is the
//! first, shows something that no round before it did, or holds the longest gap; the others are counted.

use std::collections::BTreeSet;

use crate::{
    text::{clock, count, length},
    timeline::{Kind, TimelineEntry},
};

/// A story longer than this is told in its beginning and its end.
const LINES: usize = 60;
/// How many lines of it are the end.
const LAST: usize = 15;

/// The entries as lines.
pub(crate) fn told(entries: &[TimelineEntry]) -> Vec<String> {
    let mut lines = Vec::new();
    let rounds = split(entries);
    let longest = longest_gap(entries);
    let mut seen: BTreeSet<Kind> = BTreeSet::new();
    let mut left_out: Vec<&[TimelineEntry]> = Vec::new();
    for (at, round) in rounds.iter().enumerate() {
        let kinds: BTreeSet<Kind> = round
            .iter()
            .map(|entry| entry.kind)
            .filter(|kind| *kind != Kind::Step)
            .collect();
        // The first part is what came before the first cut, the second one the first round, the last
        // one what closes the case.
        let tell = at < 2
            || at + 1 == rounds.len()
            || !kinds.is_subset(&seen)
            || longest.is_some_and(|longest| round.iter().any(|m| std::ptr::eq(m, longest)));
        if tell {
            lines.extend(more(&left_out));
            left_out.clear();
            lines.extend(round.iter().map(|entry| line(entry, entries)));
            seen.extend(kinds);
        } else {
            left_out.push(round);
        }
    }
    lines.extend(more(&left_out));
    shortened(lines)
}

/// What came before the first cut, the rounds that each begin with one, and what closes the case.
fn split(entries: &[TimelineEntry]) -> Vec<&[TimelineEntry]> {
    let closes = |entry: &TimelineEntry| matches!(entry.kind, Kind::Phase | Kind::Trouble);
    let open = entries
        .iter()
        .rposition(|entry| !closes(entry))
        .map_or(0, |at| at + 1);
    let (body, close) = entries.split_at(open);
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, entry) in body.iter().enumerate() {
        if entry.kind == Kind::Cut {
            parts.push(&body[from..at]);
            from = at;
        }
    }
    parts.extend([&body[from..], close]);
    parts
}

/// The entry at which the longest gap ended, or began when nothing ended it.
fn longest_gap(entries: &[TimelineEntry]) -> Option<&TimelineEntry> {
    let mut longest: Option<(u64, &TimelineEntry)> = None;
    for began in entries.iter().filter(|entry| entry.kind == Kind::GapBegan) {
        let ended = entries.iter().find(|entry| {
            entry.kind == Kind::GapEnded && entry.who == began.who && entry.at_us > began.at_us
        });
        let last = entries.last().map_or(began.at_us, |entry| entry.at_us);
        let length = ended.map_or(last, |entry| entry.at_us) - began.at_us;
        if longest.is_none_or(|(longest, _)| length > longest) {
            longest = Some((length, began));
        }
    }
    longest.map(|(_, entry)| entry)
}

/// `… 4 more rounds like this, mean 2.1 s, begun at 6.910, 9.020, … s`.
fn more(rounds: &[&[TimelineEntry]]) -> Option<String> {
    const NAMED: usize = 4;
    let begins: Vec<u64> = rounds
        .iter()
        .filter_map(|round| round.first().map(|entry| entry.at_us))
        .collect();
    let (first, last) = (begins.first()?, rounds.last()?.last()?.at_us);
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

fn line(entry: &TimelineEntry, all: &[TimelineEntry]) -> String {
    let widest = |of: fn(&TimelineEntry) -> usize| all.iter().map(of).max().unwrap_or(0);
    let node = |entry: &TimelineEntry| entry.node.as_ref().map_or(0, |node| node.as_str().len());
    let (nodes, whos) = (widest(node), widest(|entry| entry.who.len()));
    let at = entry.node.as_ref().map_or("", |node| node.as_str());
    format!(
        "{:>8}  {at:nodes$}  {:whos$}  {}",
        clock(entry.at_us),
        entry.who,
        entry.text
    )
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
