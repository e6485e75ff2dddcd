//! The story of a case, merged from everything that was recorded and condensed to a screen: what belongs
//! together is one line, rounds that repeat are told once, and of several nodes the one that the traffic
//! depends on speaks for all.

mod groups;

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{
    case::Case,
    event::{Event, EventKind, Phase},
    names::NodeName,
    verdict::Span,
};

use crate::{
    attribution,
    edits::EditIndex,
    gaps::gaps,
    rounds,
    text::{clean, clock, count, length},
};

/// Commands and log entries of one agent belong together when they follow each other this closely: a sync
/// is some thirty calls, of up to some tens of milliseconds each on nft.
const TOGETHER_US: u64 = 300_000;

/// What an entry is about, in the order in which entries of the same time are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The world failed.
    Trouble,
    /// The judged time begins or ends.
    Phase,
    /// A step of the scenario's timeline.
    Step,
    /// A command took away what belongs to another agent.
    Cut,
    /// A restore failed.
    Failed,
    /// An agent logged a warning or worse.
    Log,
    /// A command changed rules.
    Wrote,
    /// Requests are not answered any more.
    GapBegan,
    /// Requests are answered again.
    GapEnded,
}

/// One line of the story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEntry {
    /// When, in microseconds since the case began.
    pub at_us: u64,
    /// Where; `None` for what concerns the whole cluster.
    pub node: Option<NodeName>,
    /// Who: an agent, a traffic, `scenario`.
    pub who: String,
    /// What it is about.
    pub kind: Kind,
    /// What happened.
    pub text: String,
}

/// The story of a case in lines: time, node, who, what.
pub fn story(
    case: &Case,
    events: &[Event],
    index: &EditIndex<'_>,
    judged: Option<Span>,
) -> Vec<String> {
    let (early, entries) = from_the_last_cut(entries(events, index, judged), judged);
    let nodes: BTreeSet<&NodeName> = entries.iter().filter_map(|m| m.node.as_ref()).collect();
    let pinned = case
        .traffic
        .values()
        .find_map(|traffic| attribution::node_of(case, traffic));
    let focus = pinned
        .filter(|node| nodes.contains(node))
        .or(nodes.first().map(|&n| n.clone()));
    let (told, others): (Vec<TimelineEntry>, Vec<TimelineEntry>) = entries
        .into_iter()
        .partition(|entry| entry.node.is_none() || entry.node == focus);
    let mut lines = before(&early);
    lines.extend(rounds::told(&told));
    lines.extend(elsewhere(&others));
    lines
}

/// What was cut before the judged time, but for the last of it on each node: agents that start at the same
/// time fight over an empty machine, and only how that ended matters.
fn from_the_last_cut(
    entries: Vec<TimelineEntry>,
    judged: Option<Span>,
) -> (Vec<TimelineEntry>, Vec<TimelineEntry>) {
    let from = judged.map_or(0, |span| span.from_us);
    let early = |entry: &TimelineEntry| entry.kind == Kind::Cut && entry.at_us < from;
    let mut last: BTreeMap<Option<NodeName>, u64> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| early(entry)) {
        last.insert(entry.node.clone(), entry.at_us);
    }
    entries.into_iter().partition(|entry| {
        early(entry)
            && last
                .get(&entry.node)
                .is_some_and(|&at_us| entry.at_us < at_us)
    })
}

/// One line of what came before the story.
fn before(early: &[TimelineEntry]) -> Vec<String> {
    let Some(first) = early.first() else {
        return Vec::new();
    };
    let whos: BTreeSet<&str> = early.iter().map(|entry| entry.who.as_str()).collect();
    let whos: Vec<&str> = whos.into_iter().collect();
    vec![format!(
        "{:>8}  … until the cluster was ready, {} deleted rules of others {}",
        clock(first.at_us),
        whos.join(" and "),
        count(early.len(), "time")
    )]
}

/// Everything worth telling, in order of time, with what belongs together in one entry. What agents do
/// before the judged time is left out unless it cut something: it is the raising of the cluster.
pub fn entries(
    events: &[Event],
    index: &EditIndex<'_>,
    judged: Option<Span>,
) -> Vec<TimelineEntry> {
    let mut entries = groups::edits(index);
    entries.extend(groups::logs(events));
    let inside = |entry: &TimelineEntry| match judged {
        Some(span) => {
            entry.at_us < span.to_us && (entry.at_us >= span.from_us || entry.kind == Kind::Cut)
        }
        None => true,
    };
    entries.retain(inside);
    entries.extend(events.iter().filter_map(plain));
    entries.extend(judged.into_iter().flat_map(|span| lost(events, span)));
    entries.sort_by_key(|entry| (entry.at_us, entry.kind));
    merged(entries)
}

/// A failed restore and the agent's own words about it are one thing; its words say more.
fn merged(mut entries: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    let words: Vec<TimelineEntry> = entries
        .iter()
        .filter(|entry| entry.kind == Kind::Log)
        .cloned()
        .collect();
    entries.retain(|failed| {
        let Some(chain) = attribution::missing_chain(&failed.text) else {
            return true;
        };
        let says = |log: &TimelineEntry| {
            let soon = (failed.at_us..=failed.at_us + TOGETHER_US).contains(&log.at_us);
            soon && log.node == failed.node && log.who == failed.who && log.text.contains(chain)
        };
        failed.kind != Kind::Failed || !words.iter().any(says)
    });
    entries
}

/// Events that are told as they are.
fn plain(event: &Event) -> Option<TimelineEntry> {
    let (kind, text) = match &event.what {
        EventKind::Phase(Phase::Judging) => (Kind::Phase, "judging begins".to_owned()),
        EventKind::Phase(Phase::Judged) => (Kind::Phase, "judging ends".to_owned()),
        EventKind::Step { text } => (Kind::Step, clean(text)),
        EventKind::Mark { name } => match name.of_over() {
            Some(step) => (Kind::Step, format!("{step} is over")),
            None => (Kind::Step, format!("mark {name}")),
        },
        EventKind::Unanswered {
            moment,
            silent,
            observers,
            waited_us,
        } => {
            let waited = length(*waited_us);
            let text = format!(
                "{silent} of {observers} observers had not looked {waited} later: {moment}"
            );
            (Kind::Trouble, text)
        }
        // The evidence on its other lines is not part of the story.
        EventKind::Trouble { text } => (
            Kind::Trouble,
            clean(text.lines().next().unwrap_or_default()),
        ),
        _ => return None,
    };
    Some(TimelineEntry {
        at_us: event.at_us,
        node: None,
        who: "scenario".to_owned(),
        kind,
        text,
    })
}

/// Lost requests. A single one is no gap but bad luck, and is in the figures.
fn lost(events: &[Event], judged: Span) -> Vec<TimelineEntry> {
    let mut entries = Vec::new();
    for (traffic, gaps) in gaps(events, judged) {
        for gap in gaps.iter().filter(|gap| gap.lost > 1) {
            let entry = |at_us, kind, text| TimelineEntry {
                at_us,
                node: None,
                who: traffic.to_string(),
                kind,
                text,
            };
            let lost = format!(
                "{}, {} lost",
                length(gap.span.len_us()),
                count(gap.lost, "request")
            );
            let ended = gap.ended.then(|| format!("answers again after {lost}"));
            let began = match ended {
                Some(_) => "no answers any more".to_owned(),
                None => format!("no answers any more, to the end: {lost}"),
            };
            entries.push(entry(gap.span.from_us, Kind::GapBegan, began));
            entries.extend(ended.map(|text| entry(gap.span.to_us, Kind::GapEnded, text)));
        }
    }
    entries
}

/// Other nodes in a line each, many in one for all.
fn elsewhere(entries: &[TimelineEntry]) -> Vec<String> {
    const EACH: usize = 3;
    let mut nodes: BTreeMap<&NodeName, Vec<&TimelineEntry>> = BTreeMap::new();
    for entry in entries {
        if let Some(node) = &entry.node {
            nodes.entry(node).or_default().push(entry);
        }
    }
    let line = |whose: &str, entries: &[&TimelineEntry]| {
        let mut counted: BTreeMap<(Kind, &str), usize> = BTreeMap::new();
        for entry in entries {
            *counted.entry((entry.kind, entry.who.as_str())).or_default() += 1;
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
    };
    if nodes.len() > EACH {
        let all: Vec<&TimelineEntry> = entries.iter().collect();
        return vec![line(&format!("{} other nodes", nodes.len()), &all)];
    }
    nodes
        .iter()
        .map(|(node, entries)| line(node.as_str(), entries))
        .collect()
}
