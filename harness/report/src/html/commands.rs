//! The commands that are shown of a case: those that cut and healed by what was found, and what else of the story took something
//! away or failed. Each has an anchor, by its place in the case's history.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::event::Command;
use chainbreak_netfilter::join;

use super::{rules, rules::ChainDiff, strip::Strip};
use crate::{
    attribution::{Cause, Heal},
    edits::{EditIndex, RuleEdit},
    explain::Material,
    finding::Finding,
    summary::Summary,
    timeline::{Kind, Story, TimelineEntry},
};

/// So many commands of the story are shown beside those that were found, where a case came out as expected.
const OF_STORY: usize = 2;
/// The same where it did not.
const OF_STORY_OF_FAILED: usize = 10;

/// The commands that are shown of a case, by place in its index.
#[derive(Debug)]
pub(super) struct Commands<'a> {
    index: &'a EditIndex<'a>,
    pub(super) shown: BTreeMap<usize, Shown<'a>>,
}

/// A command that is shown.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) edit: &'a RuleEdit<'a>,
    pub(super) diffs: Vec<ChainDiff>,
}

impl<'a> Commands<'a> {
    /// Of a case whose traffic was that.
    pub(super) fn of(material: &Material<'a>, summary: &Summary, strips: &[Strip]) -> Self {
        let index = material.index;
        let gaps = strips.iter().flat_map(|strip| &strip.told);
        let mut wanted = BTreeSet::new();
        let found = summary.promises.iter().flat_map(|it| causes(&it.finding));
        let cut = found.chain(gaps.clone().filter_map(|it| it.cause.as_ref()));
        wanted.extend(cut.filter_map(|cause| of_cause(index, cause)));
        wanted.extend(gaps.filter_map(|it| of_heal(index, it.heal.as_ref()?)));
        let told = told(&summary.story).filter_map(|entry| of_entry(index, entry));
        let failed = summary.outcome.has_failed();
        wanted.extend(told.take(if failed { OF_STORY_OF_FAILED } else { OF_STORY }));
        let mut diffs = rules::diffs(index, &wanted, material.case.cluster.iptables);
        let edits = index.edits().iter().enumerate();
        let shown = edits.filter_map(|(at, edit)| {
            let diffs = diffs.remove(&at)?;
            Some((at, Shown { edit, diffs }))
        });
        let shown = shown.collect();
        Self { index, shown }
    }

    /// The command that began something, if it is shown.
    pub(super) fn cut(&self, cause: &Cause) -> Option<usize> {
        self.known(of_cause(self.index, cause))
    }

    /// The command that ended it.
    pub(super) fn heal(&self, heal: &Heal) -> Option<usize> {
        self.known(of_heal(self.index, heal))
    }

    /// The command of an entry of the story.
    pub(super) fn entry(&self, entry: &TimelineEntry) -> Option<usize> {
        self.known(of_entry(self.index, entry))
    }

    fn known(&self, at: Option<usize>) -> Option<usize> {
        at.filter(|at| self.shown.contains_key(at))
    }
}

/// The commands that what was found blames.
fn causes(finding: &Finding) -> Box<dyn Iterator<Item = &Cause> + '_> {
    match finding {
        Finding::Logged(logged) => Box::new(logged.cause.iter()),
        Finding::Rule(found) => {
            let told = found.told.iter().flatten();
            Box::new(
                found
                    .cause
                    .iter()
                    .chain(told.filter_map(|it| it.cause.as_ref())),
            )
        }
        Finding::Lost(lost) => {
            let outage = lost.outage.iter();
            Box::new(outage.flat_map(|it| {
                let told = it.told.iter().filter_map(|gap| gap.cause.as_ref());
                it.cause.iter().chain(told)
            }))
        }
        Finding::Unknown { .. } | Finding::Kept(_) | Finding::Ruled { .. } | Finding::Broken(_) => {
            Box::new(std::iter::empty())
        }
    }
}

/// What is told of the story that took something away or failed.
fn told(story: &Story) -> impl Iterator<Item = &TimelineEntry> {
    let rounds = story.rounds.iter().filter(|round| round.told);
    let entries = rounds.flat_map(|round| &round.entries);
    entries.filter(|entry| matches!(entry.what.kind(), Kind::Cut | Kind::Failed))
}

fn of_cause(index: &EditIndex<'_>, cause: &Cause) -> Option<usize> {
    let Cause { who, at_us, .. } = cause;
    let is = |edit: &RuleEdit<'_>| edit.command.node == cause.node;
    place(index, *at_us, who, is)
}

/// It says no node: no two of them end a command of the same agent in the same microsecond.
fn of_heal(index: &EditIndex<'_>, heal: &Heal) -> Option<usize> {
    let Heal { who, at_us, .. } = heal;
    place(index, *at_us, who, |edit| edit.program() == heal.program)
}

/// An entry of several commands has the time of one of them.
fn of_entry(index: &EditIndex<'_>, entry: &TimelineEntry) -> Option<usize> {
    let commands = matches!(entry.what.kind(), Kind::Cut | Kind::Failed | Kind::Wrote);
    let node = entry.node.as_ref().filter(|_| commands)?;
    place(index, entry.at_us, &entry.who, |edit| {
        edit.command.node == *node
    })
}

fn place(
    index: &EditIndex<'_>,
    at_us: u64,
    who: &str,
    is: impl Fn(&RuleEdit<'_>) -> bool,
) -> Option<usize> {
    let edits = index.edits();
    let from = edits.partition_point(|edit| edit.at_us < at_us);
    let same = edits
        .iter()
        .skip(from)
        .take_while(|edit| edit.at_us == at_us);
    let mut same = same.zip(from..);
    let found = same.find(|(edit, _)| edit.command.who == who && is(edit));
    found.map(|(_, at)| at)
}

/// A command as a person types it.
pub(super) fn line(command: &Command) -> String {
    join(command.argv.iter().map(String::as_str))
}
