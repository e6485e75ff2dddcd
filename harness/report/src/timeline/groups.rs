//! What agents did and logged, with what belongs together in one entry.

use std::collections::BTreeMap;

use chainbreak_model::{
    event::{Event, EventKind, LogEntry},
    names::NodeName,
};

use super::{FailedRestore, Happening, Kind, TOGETHER_US, TimelineEntry};
use crate::{
    attribution,
    edits::{EditIndex, RuleEdit},
    log_finding::{LogFinding, without_program},
    outcome::Outcome,
    text::clean,
};

/// Things of one agent on one node that follow each other closely.
struct Group<T> {
    kind: Kind,
    last_us: u64,
    members: Vec<T>,
}

/// Puts things into groups. Each comes with its actor (node and name), time and kind, in order of time.
fn grouped<'a, T>(
    things: impl Iterator<Item = ((&'a NodeName, &'a str), u64, Kind, T)>,
) -> Vec<((&'a NodeName, &'a str), Group<T>)> {
    let mut groups: Vec<((&NodeName, &str), Group<T>)> = Vec::new();
    let mut latest: BTreeMap<(&NodeName, &str), usize> = BTreeMap::new();
    for (actor, at_us, kind, thing) in things {
        if let Some((_, group)) = latest.get(&actor).and_then(|&at| groups.get_mut(at))
            && group.kind == kind
            && at_us <= group.last_us + TOGETHER_US
        {
            group.last_us = at_us;
            group.members.push(thing);
        } else {
            latest.insert(actor, groups.len());
            groups.push((
                actor,
                Group {
                    kind,
                    last_us: at_us,
                    members: vec![thing],
                },
            ));
        }
    }
    groups
}

/// What agents did to rules, an entry for what belongs together.
pub(super) fn edits(index: &EditIndex<'_>) -> Vec<TimelineEntry> {
    let things = index.edits().iter().filter_map(|edit| {
        let kind = kind(edit)?;
        Some((
            (&edit.command.node, edit.command.who.as_str()),
            edit.at_us,
            kind,
            edit,
        ))
    });
    let entry = |((node, who), group): ((&NodeName, &str), Group<&RuleEdit<'_>>)| {
        // What is cut is felt at once, what is written counts when it is complete.
        let at_us = match group.kind {
            Kind::Wrote => group.last_us,
            _ => group.members.first()?.at_us,
        };
        Some(TimelineEntry {
            at_us,
            node: Some(node.clone()),
            who: who.to_owned(),
            what: happening(group.kind, &group.members)?,
        })
    };
    grouped(things).into_iter().filter_map(entry).collect()
}

/// `None` for commands that only look. kube-proxy's calls that find everything in place count: they tell a
/// full sync.
fn kind(edit: &RuleEdit<'_>) -> Option<Kind> {
    let outcome = edit.outcome();
    let failed = edit.command.exit != 0 && edit.program().ends_with("-restore");
    match () {
        () if failed => Some(Kind::Failed),
        () if outcome.cuts_others(&edit.command.who) => Some(Kind::Cut),
        () if outcome.deeds().is_some() || edit.ensures() => Some(Kind::Wrote),
        () => None,
    }
}

fn happening(kind: Kind, edits: &[&RuleEdit<'_>]) -> Option<Happening> {
    let outcome = Outcome::of(edits.iter().flat_map(|edit| &edit.changes));
    Some(match kind {
        Kind::Failed => Happening::Failed(failed(edits.first()?, edits.len())),
        Kind::Cut => Happening::Cut(outcome.cuts().or_else(|| outcome.deeds())?),
        _ => Happening::Wrote {
            deeds: outcome.deeds()?,
            full_sync: is_full_sync(edits),
        },
    })
}

/// The first of so many restores that failed.
fn failed(edit: &RuleEdit<'_>, times: usize) -> FailedRestore {
    // nft's first line is the program's name alone.
    let why = edit.command.stderr.lines().map(without_program);
    let mut why = why.filter(|line| !line.is_empty() && !line.starts_with("Ignoring deprecated"));
    let why = clean(why.next().unwrap_or_default());
    FailedRestore {
        program: edit.program().to_owned(),
        times,
        exit: edit.command.exit,
        missing: attribution::missing_chain(&why).map(str::to_owned),
        why,
    }
}

fn is_full_sync(edits: &[&RuleEdit<'_>]) -> bool {
    let restores = |edit: &&RuleEdit<'_>| edit.program().ends_with("-restore");
    edits.iter().any(|edit| edit.ensures()) && edits.iter().any(restores)
}

/// What agents logged that is worth telling, an entry for what belongs together.
pub(super) fn logs(events: &[Event]) -> Vec<TimelineEntry> {
    let mut logged: Vec<(u64, &LogEntry)> = Vec::new();
    for event in events {
        if let EventKind::Log(log_entry) = &event.what {
            logged.push((event.at_us, log_entry));
        }
    }
    logged.sort_by_key(|&(at_us, _)| at_us);
    let things = logged.iter().filter_map(|&(at_us, log_entry)| {
        let finding = LogFinding::of(&log_entry.text)?;
        Some((
            (&log_entry.node, log_entry.agent.as_str()),
            at_us,
            Kind::Log,
            (at_us, finding),
        ))
    });
    let entry = |((node, who), group): ((&NodeName, &str), Group<(u64, LogFinding)>)| {
        let more = group.members.len().saturating_sub(1);
        let (at_us, finding) = group.members.into_iter().next()?;
        Some(TimelineEntry {
            at_us,
            node: Some(node.clone()),
            who: who.to_owned(),
            what: Happening::Logged { finding, more },
        })
    };
    grouped(things).into_iter().filter_map(entry).collect()
}
