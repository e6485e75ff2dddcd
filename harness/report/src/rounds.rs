//! Rounds: an agent cuts, the other fails and heals, and it begins again. A round is told when it is the
//! first, shows something that no round before it did, or holds the longest gap; the others are counted.

use std::collections::BTreeSet;

use crate::{
    text::{clock, count, length},
    timeline::{Kind, Moment},
};

/// A story longer than this is told in its beginning and its end.
const LINES: usize = 60;
/// How many lines of it are the end.
const LAST: usize = 15;

/// The moments as lines.
pub(crate) fn told(moments: &[Moment]) -> Vec<String> {
    let mut lines = Vec::new();
    let rounds = split(moments);
    let longest = longest_gap(moments);
    let mut seen: BTreeSet<Kind> = BTreeSet::new();
    let mut left_out: Vec<&[Moment]> = Vec::new();
    for (at, round) in rounds.iter().enumerate() {
        let kinds: BTreeSet<Kind> = round
            .iter()
            .map(|moment| moment.kind)
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
            lines.extend(round.iter().map(|moment| line(moment, moments)));
            seen.extend(kinds);
        } else {
            left_out.push(round);
        }
    }
    lines.extend(more(&left_out));
    shortened(lines)
}

/// What came before the first cut, the rounds that each begin with one, and what closes the case.
fn split(moments: &[Moment]) -> Vec<&[Moment]> {
    let closes = |moment: &Moment| matches!(moment.kind, Kind::Phase | Kind::Trouble);
    let open = moments
        .iter()
        .rposition(|moment| !closes(moment))
        .map_or(0, |at| at + 1);
    let (body, close) = moments.split_at(open);
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, moment) in body.iter().enumerate() {
        if moment.kind == Kind::Cut {
            parts.push(&body[from..at]);
            from = at;
        }
    }
    parts.extend([&body[from..], close]);
    parts
}

/// The moment at which the longest gap ended, or began when nothing ended it.
fn longest_gap(moments: &[Moment]) -> Option<&Moment> {
    let mut longest: Option<(u64, &Moment)> = None;
    for began in moments
        .iter()
        .filter(|moment| moment.kind == Kind::GapBegan)
    {
        let ended = moments.iter().find(|moment| {
            moment.kind == Kind::GapEnded && moment.who == began.who && moment.at_us > began.at_us
        });
        let last = moments.last().map_or(began.at_us, |moment| moment.at_us);
        let length = ended.map_or(last, |moment| moment.at_us) - began.at_us;
        if longest.is_none_or(|(longest, _)| length > longest) {
            longest = Some((length, began));
        }
    }
    longest.map(|(_, moment)| moment)
}

/// `… 4 more rounds like this, mean 2.1 s, begun at 6.910, 9.020, … s`.
fn more(rounds: &[&[Moment]]) -> Option<String> {
    const NAMED: usize = 4;
    let begins: Vec<u64> = rounds
        .iter()
        .filter_map(|round| round.first().map(|moment| moment.at_us))
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

fn line(moment: &Moment, all: &[Moment]) -> String {
    let widest = |of: fn(&Moment) -> usize| all.iter().map(of).max().unwrap_or(0);
    let node = |moment: &Moment| moment.node.as_ref().map_or(0, |node| node.as_str().len());
    let (nodes, whos) = (widest(node), widest(|moment| moment.who.len()));
    let at = moment.node.as_ref().map_or("", |node| node.as_str());
    format!(
        "{:>8}  {at:nodes$}  {:whos$}  {}",
        clock(moment.at_us),
        moment.who,
        moment.text
    )
}

fn shortened(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES {
        let end = lines.split_off(lines.len() - LAST);
        let left_out = lines.split_off(LINES - LAST - 1).len();
        lines.push(format!(
            "{:>8}  … {} left out",
            "",
            count(left_out, "moment")
        ));
        lines.extend(end);
    }
    lines
}
