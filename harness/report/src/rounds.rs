//! Rounds: an agent cuts, the other fails and heals, and it begins again. A round is told when it is the
//! first, shows something that no round before it did, or holds the longest gap; the others are counted.

use std::collections::BTreeSet;

use crate::timeline::{Happening, Kind, Round, TimelineEntry};

/// The entries in rounds.
pub(crate) fn rounds(entries: Vec<TimelineEntry>) -> Vec<Round> {
    let lengths = lengths(&entries);
    // A long history is in memory once.
    let mut rest = entries.into_iter();
    let round = |(told, length): (bool, usize)| Round {
        told,
        entries: rest.by_ref().take(length).collect(),
    };
    lengths.into_iter().map(round).collect()
}

/// Of each round whether it is told, and how many entries it has.
fn lengths(entries: &[TimelineEntry]) -> Vec<(bool, usize)> {
    let parts = split(entries);
    let longest = longest_gap(entries);
    let mut seen = BTreeSet::new();
    let mut rounds = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let kinds: BTreeSet<(Kind, String)> = part.iter().map(|entry| shown(&entry.what)).collect();
        // The first part is what came before the first cut, the second one the first round, the last
        // one what closes the case.
        let told = at < 2
            || at + 1 == parts.len()
            || !kinds.is_subset(&seen)
            || longest.is_some_and(|longest| part.iter().any(|m| std::ptr::eq(m, longest)));
        if told {
            seen.extend(kinds);
        }
        rounds.push((told, part.len()));
    }
    rounds
}

/// What an entry shows. A step that only counts on is none that was not there before: `scale test/web to 3` after `to 2`.
fn shown(what: &Happening) -> (Kind, String) {
    let step = match what {
        Happening::Step(text) => text.as_str(),
        _ => "",
    };
    let step = step.chars().filter(|c| !c.is_ascii_digit()).collect();
    (what.kind(), step)
}

/// What came before the first cut, the rounds that each begin with one, and what closes the case.
fn split(entries: &[TimelineEntry]) -> Vec<&[TimelineEntry]> {
    let closes = |entry: &TimelineEntry| matches!(entry.what.kind(), Kind::Phase | Kind::Trouble);
    let open = entries
        .iter()
        .rposition(|entry| !closes(entry))
        .map_or(0, |at| at + 1);
    let (body, close) = entries.split_at(open);
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, entry) in body.iter().enumerate() {
        if entry.what.kind() == Kind::Cut {
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
    let is = |entry: &TimelineEntry, kind| entry.what.kind() == kind;
    for began in entries.iter().filter(|entry| is(entry, Kind::GapBegan)) {
        let ended = entries.iter().find(|entry| {
            is(entry, Kind::GapEnded) && entry.who == began.who && entry.at_us > began.at_us
        });
        let last = entries.last().map_or(began.at_us, |entry| entry.at_us);
        let length = ended.map_or(last, |entry| entry.at_us) - began.at_us;
        if longest.is_none_or(|(longest, _)| length > longest) {
            longest = Some((length, began));
        }
    }
    longest.map(|(_, entry)| entry)
}
