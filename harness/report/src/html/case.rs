//! What the page has of a case, as values.

use std::collections::BTreeMap;

use chainbreak_model::{
    case::Traffic,
    event::{Event, EventKind},
    names::TrafficName,
};

use super::{
    axis::{Axis, Scale},
    commands::{self, Commands},
    lanes::Lanes,
    strip::Strip,
};
use crate::{attribution, explain::Material, summary::Summary, text::cut};

/// Of the log of an agent on a node so many entries are shown where the case came out as expected.
const ENTRIES: usize = 6;
/// The same where it did not: half of its beginning, half of its end.
const ENTRIES_OF_FAILED: usize = 60;
/// An entry is not shown longer.
const ENTRY: usize = 800;
/// So many commands about conntrack are shown.
const OF_CONNTRACK: usize = 30;

/// What the page has of a case.
#[derive(Debug)]
pub(super) struct CasePage<'a> {
    pub(super) scale: Scale,
    pub(super) strips: Vec<Strip>,
    pub(super) lanes: Lanes,
    pub(super) commands: Commands<'a>,
    pub(super) logs: Vec<Log>,
    pub(super) conntrack: Folded<Flushed>,
}

/// The log of an agent on a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) whose: String,
    pub(super) entries: Folded<(u64, String)>,
}

/// A command about conntrack.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flushed {
    pub(super) at_us: u64,
    pub(super) whose: String,
    pub(super) line: String,
    pub(super) exit: i32,
}

/// The first and the last of many.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Folded<T> {
    pub(super) first: Vec<T>,
    /// How many are left out.
    pub(super) left_out: usize,
    pub(super) last: Vec<T>,
}

impl<T> Folded<T> {
    /// At most so many: the first ones, and the last third.
    fn of(mut all: Vec<T>, most: usize) -> Self {
        if all.len() <= most {
            return Self {
                first: all,
                left_out: 0,
                last: Vec::new(),
            };
        }
        let last = all.split_off(all.len() - most / 3);
        let left_out = all.split_off(most - most / 3).len();
        Self {
            first: all,
            left_out,
            last,
        }
    }

    fn map<U>(self, of: impl Fn(T) -> U) -> Folded<U> {
        Folded {
            first: self.first.into_iter().map(&of).collect(),
            left_out: self.left_out,
            last: self.last.into_iter().map(&of).collect(),
        }
    }

    /// How many there are.
    pub(super) fn all(&self) -> usize {
        self.first.len() + self.left_out + self.last.len()
    }
}

impl<'a> CasePage<'a> {
    /// Of a case on that axis.
    pub(super) fn of(material: &Material<'a>, summary: &Summary, axis: Axis) -> Self {
        let scale = axis.scale(summary);
        let strips = strips(material, summary, &scale);
        let commands = Commands::of(material, summary, &strips);
        let most = if summary.outcome.has_failed() {
            ENTRIES_OF_FAILED
        } else {
            ENTRIES
        };
        Self {
            lanes: Lanes::of(material, &summary.story, &scale, &commands),
            logs: logs(material.events, most),
            conntrack: conntrack(material.events),
            scale,
            strips,
            commands,
        }
    }
}

fn strips(material: &Material<'_>, summary: &Summary, scale: &Scale) -> Vec<Strip> {
    let judged = |at_us| summary.judged.is_some_and(|span| span.contains(at_us));
    let strip = |traffic: (&TrafficName, &Traffic)| {
        let gaps = material.gaps.get(traffic.0).map_or(&[][..], Vec::as_slice);
        let strip = Strip::of(traffic, material.events, scale, judged);
        let node = attribution::node_of(material.case, traffic.1);
        strip.with_gaps(gaps, material.explained(gaps, traffic, node.as_ref()))
    };
    material.case.traffic.iter().map(strip).collect()
}

/// The logs of agents, entry by entry.
fn logs(events: &[Event], most: usize) -> Vec<Log> {
    let mut logs = BTreeMap::<String, Vec<(u64, &str)>>::new();
    for event in events {
        if let EventKind::Log(entry) = &event.what {
            let whose = format!("{} on {}", entry.agent, entry.node);
            let log = logs.entry(whose).or_default();
            log.push((event.at_us, &entry.text));
        }
    }
    let logs = logs.into_iter().map(|(whose, entries)| {
        let entries = Folded::of(entries, most);
        let entries = entries.map(|(at_us, text)| (at_us, cut(text, ENTRY)));
        Log { whose, entries }
    });
    logs.collect()
}

/// The commands about conntrack's entries, whoever ran them.
fn conntrack(events: &[Event]) -> Folded<Flushed> {
    let flushed = |event: &Event| {
        let EventKind::Command(command) = &event.what else {
            return None;
        };
        let mut programs = command.argv.iter().take(2);
        programs.find(|word| word.rsplit('/').next() == Some("conntrack"))?;
        Some(Flushed {
            at_us: event.at_us,
            whose: format!("{} on {}", command.who, command.node),
            line: commands::line(command),
            exit: command.exit,
        })
    };
    Folded::of(events.iter().filter_map(flushed).collect(), OF_CONNTRACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_and_the_last_are_kept_and_the_others_counted() {
        let folded = Folded::of((1..=100).collect(), 6);
        assert_eq!(folded.first, [1, 2, 3, 4]);
        assert_eq!((folded.left_out, folded.all()), (94, 100));
        assert_eq!(folded.last, [99, 100]);
        assert_eq!(Folded::of(vec![1, 2], 2).left_out, 0);
    }
}
