//! The story of a case, merged from everything that was recorded and condensed to a screen: what belongs
//! together is one entry, rounds that repeat are told once, and of several nodes the one that the traffic
//! depends on speaks for all.

mod groups;
mod happening;

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{
    case::Case,
    event::{Event, EventKind, Phase},
    names::NodeName,
    verdict::Span,
};
use serde::Serialize;

use crate::{attribution, edits::EditIndex, gaps::gaps, rounds::rounds, text::clean};
pub use happening::{FailedRestore, Happening, Kind, Loss};

/// Commands and log entries of one agent belong together when they follow each other this closely: a sync
/// is some thirty calls, of up to some tens of milliseconds each on nft.
const TOGETHER_US: u64 = 300_000;

/// The story of a case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Story {
    /// What was cut before the judged time, but for the last of it on each node.
    pub before: Vec<TimelineEntry>,
    /// What happened to the cluster, and on the node that the traffic depends on.
    pub rounds: Vec<Round>,
    /// What happened on other nodes.
    pub elsewhere: Vec<TimelineEntry>,
}

impl Story {
    /// All of it, on each node in order of time.
    #[cfg(feature = "html")]
    pub(crate) fn entries(&self) -> impl Iterator<Item = &TimelineEntry> {
        let rounds = self.rounds.iter().flat_map(|round| &round.entries);
        self.before.iter().chain(rounds).chain(&self.elsewhere)
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        let rounds = self.rounds.iter().all(|round| round.entries.is_empty());
        self.before.is_empty() && rounds && self.elsewhere.is_empty()
    }
}

/// What begins with a cut and ends before the next one; or stands before the first one, or closes the case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Round {
    /// Whether it shows something that no round before it did. The others are counted.
    pub told: bool,
    /// What happened in it.
    pub entries: Vec<TimelineEntry>,
}

/// One happening of the story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TimelineEntry {
    /// When, in microseconds since the case began.
    pub at_us: u64,
    /// Where; `None` for what concerns the whole cluster.
    pub node: Option<NodeName>,
    /// Who: an agent, a traffic, `scenario`.
    pub who: String,
    /// What happened.
    pub what: Happening,
}

/// The story of a case.
pub fn story(case: &Case, events: &[Event], index: &EditIndex<'_>, judged: Option<Span>) -> Story {
    let (before, entries) = from_the_last_cut(entries(events, index, judged), judged);
    let nodes: BTreeSet<&NodeName> = entries.iter().filter_map(|m| m.node.as_ref()).collect();
    let pinned = case
        .traffic
        .values()
        .find_map(|traffic| attribution::node_of(case, traffic));
    let focus = pinned
        .filter(|node| nodes.contains(node))
        .or(nodes.first().map(|&n| n.clone()));
    let (told, elsewhere): (Vec<TimelineEntry>, Vec<TimelineEntry>) = entries
        .into_iter()
        .partition(|entry| entry.node.is_none() || entry.node == focus);
    Story {
        before,
        rounds: rounds(told),
        elsewhere,
    }
}

/// What was cut before the judged time, but for the last of it on each node: agents that start at the same
/// time fight over an empty machine, and only how that ended matters.
fn from_the_last_cut(
    entries: Vec<TimelineEntry>,
    judged: Option<Span>,
) -> (Vec<TimelineEntry>, Vec<TimelineEntry>) {
    let from = judged.map_or(0, |span| span.from_us);
    let early = |entry: &TimelineEntry| entry.what.kind() == Kind::Cut && entry.at_us < from;
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

/// Everything worth telling, in order of time, with what belongs together in one entry. What agents do
/// before the judged time is left out unless it cut something: it is the raising of the cluster.
fn entries(events: &[Event], index: &EditIndex<'_>, judged: Option<Span>) -> Vec<TimelineEntry> {
    let mut entries = groups::edits(index);
    entries.extend(groups::logs(events));
    let inside = |entry: &TimelineEntry| match judged {
        Some(span) => {
            let cut = entry.what.kind() == Kind::Cut;
            entry.at_us < span.to_us && (entry.at_us >= span.from_us || cut)
        }
        None => true,
    };
    entries.retain(inside);
    entries.extend(events.iter().filter_map(plain));
    entries.extend(judged.into_iter().flat_map(|span| lost(events, span)));
    entries.sort_by_key(|entry| (entry.at_us, entry.what.kind()));
    merged(entries)
}

/// A failed restore and the agent's own words about it are one thing; its words say more.
fn merged(mut entries: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    let words: Vec<TimelineEntry> = entries
        .iter()
        .filter(|entry| entry.what.kind() == Kind::Log)
        .cloned()
        .collect();
    entries.retain(|entry| {
        let Happening::Failed(FailedRestore {
            missing: Some(chain),
            ..
        }) = &entry.what
        else {
            return true;
        };
        let says = |log: &TimelineEntry| {
            let soon = (entry.at_us..=entry.at_us + TOGETHER_US).contains(&log.at_us);
            let names =
                matches!(&log.what, Happening::Logged { finding, .. } if finding.names(chain));
            soon && log.node == entry.node && log.who == entry.who && names
        };
        !words.iter().any(says)
    });
    entries
}

/// Events that are told as they are.
fn plain(event: &Event) -> Option<TimelineEntry> {
    let what = match &event.what {
        EventKind::Phase(Phase::Judging) => Happening::JudgingBegins,
        EventKind::Phase(Phase::Judged) => Happening::JudgingEnds,
        EventKind::Step { text } => Happening::Step(clean(text)),
        EventKind::Mark { name } => match name.of_over() {
            Some(step) => Happening::StepOver(step),
            None => Happening::Mark(name.clone()),
        },
        EventKind::Unanswered {
            moment,
            silent,
            observers,
            waited_us,
        } => Happening::Unanswered {
            moment: moment.clone(),
            silent: *silent,
            observers: *observers,
            waited_us: *waited_us,
        },
        // The evidence on its other lines is not part of the story.
        EventKind::Trouble { text } => {
            Happening::Trouble(clean(text.lines().next().unwrap_or_default()))
        }
        _ => return None,
    };
    Some(TimelineEntry {
        at_us: event.at_us,
        node: None,
        who: "scenario".to_owned(),
        what,
    })
}

/// Lost requests. A single one is no gap but bad luck, and is in the figures.
fn lost(events: &[Event], judged: Span) -> Vec<TimelineEntry> {
    let mut entries = Vec::new();
    for (traffic, gaps) in gaps(events, judged) {
        for gap in gaps.iter().filter(|gap| gap.lost > 1) {
            let entry = |at_us, what| TimelineEntry {
                at_us,
                node: None,
                who: traffic.to_string(),
                what,
            };
            let loss = Loss {
                lasted_us: gap.span.len_us(),
                lost: gap.lost,
            };
            let to_the_end = (!gap.ended).then_some(loss);
            entries.push(entry(gap.span.from_us, Happening::GapBegan { to_the_end }));
            let again = gap.ended.then_some(Happening::GapEnded(loss));
            entries.extend(again.map(|what| entry(gap.span.to_us, what)));
        }
    }
    entries
}
