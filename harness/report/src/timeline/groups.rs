//! What agents did and logged, with what belongs together in one line.

use std::collections::BTreeMap;

use chainbreak_model::{
    event::{Event, EventKind, LogEntry},
    names::NodeName,
};

use super::{Kind, TOGETHER_US, TimelineEntry};
use crate::{
    edits::{EditIndex, RuleEdit},
    log_finding::{log_finding, without_program},
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

/// What agents did to rules, a line for what belongs together.
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
            kind: group.kind,
            text: told(group.kind, &group.members)?,
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

fn told(kind: Kind, edits: &[&RuleEdit<'_>]) -> Option<String> {
    if kind == Kind::Failed {
        let first = edits.first()?;
        // nft's first line is the program's name alone.
        let why = first.command.stderr.lines().map(without_program);
        let mut why =
            why.filter(|line| !line.is_empty() && !line.starts_with("Ignoring deprecated"));
        let why = clean(why.next().unwrap_or_default());
        let times = if edits.len() > 1 {
            format!(" {} times", edits.len())
        } else {
            String::new()
        };
        return Some(format!(
            "{} failed{times} (exit {}): {why}",
            first.program(),
            first.command.exit
        ));
    }
    let outcome = Outcome::of(edits.iter().flat_map(|edit| &edit.changes));
    let deeds = match kind {
        Kind::Cut => outcome.cuts().or_else(|| outcome.deeds())?,
        _ => outcome.deeds()?,
    };
    let full = kind == Kind::Wrote
        && edits.iter().any(|edit| edit.ensures())
        && edits
            .iter()
            .any(|edit| edit.program().ends_with("-restore"));
    Some(if full {
        format!("full sync: {deeds}")
    } else {
        deeds.to_string()
    })
}

/// What agents logged that is worth telling, a line for what belongs together.
pub(super) fn logs(events: &[Event]) -> Vec<TimelineEntry> {
    let mut logged: Vec<(u64, &LogEntry)> = Vec::new();
    for event in events {
        if let EventKind::Log(log_entry) = &event.what {
            logged.push((event.at_us, log_entry));
        }
    }
    logged.sort_by_key(|&(at_us, _)| at_us);
    let things = logged.iter().filter_map(|&(at_us, log_entry)| {
        let text = log_finding(&log_entry.text)?;
        Some((
            (&log_entry.node, log_entry.agent.as_str()),
            at_us,
            Kind::Log,
            (at_us, text),
        ))
    });
    let entry = |((node, who), group): ((&NodeName, &str), Group<(u64, String)>)| {
        let (at_us, text) = group.members.first()?;
        let more = match group.members.len() {
            1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        Some(TimelineEntry {
            at_us: *at_us,
            node: Some(node.clone()),
            who: who.to_owned(),
            kind: Kind::Log,
            text: format!("logs: {text}{more}"),
        })
    };
    grouped(things).into_iter().filter_map(entry).collect()
}
