//! What would be attached of a node at a moment of a recorded run.

mod asked;
mod nat_map;
mod objects;

use std::path::Path;

use anyhow::Result;
use chainbreak_diagnose::{Evidence, Log};
use chainbreak_model::{
    case::Case,
    event::{Event, EventKind},
    names::{AgentName, NodeName},
};
use chainbreak_netfilter::{Counters, Family, Site, dumps::Dumps, replay::Replay};
use chainbreak_report::{
    commands::{backend, before},
    drops::drops,
    network::{Network, reroutes},
};

use crate::{
    args::Diagnose,
    cases::invalid,
    explain::{at_the_end, kept, moment},
    reports,
};

pub(super) fn evidence(args: &Diagnose, run: &Path) -> Result<Evidence> {
    let (run, file) = reports::read(run)?;
    let (id, recorded) = moment::case(&run, args.case.as_deref())?;
    let events = recorded
        .history
        .events()
        .map_err(|why| invalid(why.to_string()))?;
    let at_us = moment::moment(args.at, &events)?;
    let case = &recorded.case;
    let mut nodes = case.cluster.node_names();
    let node = match &args.node {
        Some(wanted) => nodes.find(|it| it.as_str() == wanted),
        None => nodes.next(),
    };
    let node = node.ok_or_else(|| invalid(format!("{id} has no such node")))?;
    let is_recorded = !at_the_end::is_real_cluster(case);
    let mut evidence = if is_recorded {
        Evidence::of(rules(case, &events, &node, at_us).dumps())
    } else {
        match at_the_end::dumps_of((args.at, id), recorded, &file, &node) {
            Ok(texts) => {
                let mut dumps = Dumps::default();
                kept::add(&mut dumps, &texts)?;
                Evidence::of(dumps)
            }
            Err(why) => {
                crate::note(&format!("{why}. Logs and objects are judged alone"));
                Evidence::default()
            }
        }
    };
    if let Some(network) = Network::at(&events, &case.timeline, reroutes, &node, at_us) {
        let added = evidence.dumps.add(network.text);
        added.map_err(|why| invalid(format!("what {node} routes by cannot be read: {why}")))?;
    }
    evidence.is_of_one_moment = is_recorded;
    if is_recorded {
        count(&mut evidence.dumps, &events, &node, at_us);
    }
    if let Some(statistics) = statistics(&events, &node, at_us) {
        evidence.add(&statistics)?;
    }
    evidence.add(&nat_map::nat_map(case, &events, &node, at_us))?;
    for object in objects::objects(case, &events, at_us) {
        evidence.objects.take(object);
    }
    for slice in objects::slices(case, &events, at_us) {
        evidence.objects.take(slice);
    }
    let logs = AgentName::ALL.map(|agent| log(&events, agent, &node, at_us));
    evidence
        .logs
        .extend(logs.into_iter().filter(|it| !it.entries.is_empty()));
    Ok(evidence)
}

/// The rules that the node's commands left. What cannot be followed is left out.
fn rules(case: &Case, events: &[Event], node: &NodeName, at_us: u64) -> Replay {
    let mut commands = moment::commands(events, node);
    commands.retain(|it| it.0 <= at_us);
    let begin = before(backend(case), &commands);
    let (replay, doubts) = moment::replayed(&begin, &commands);
    for (_, command, doubt) in doubts {
        crate::note(&format!(
            "what {} made with `{}` is left out: {doubt}",
            command.who,
            command.argv.join(" ")
        ));
    }
    replay
}

fn log(events: &[Event], agent: AgentName, on: &NodeName, at_us: u64) -> Log {
    let entries = events.iter().filter_map(|event| match &event.what {
        EventKind::Log(entry)
            if entry.agent == agent && entry.node == *on && event.at_us <= at_us =>
        {
            Some(entry.text.clone())
        }
        _ => None,
    });
    Log {
        agent,
        entries: entries.collect(),
    }
}

/// Has the rules count the packets that were seen to end in them.
fn count(dumps: &mut Dumps, events: &[Event], on: &NodeName, at_us: u64) {
    let seen = events.iter().filter(|event| match &event.what {
        EventKind::Drops(seen) => seen.node == *on && event.at_us <= at_us,
        _ => false,
    });
    for drop in drops(&seen.cloned().collect::<Vec<_>>()) {
        let family = if drop.front.starts_with("ip6") {
            Family::V6
        } else {
            Family::V4
        };
        let counters = Counters {
            packets: drop.packets,
            bytes: drop.bytes,
        };
        let site = Site {
            table: drop.table,
            chain: drop.chain,
            rule: drop.rule,
        };
        dumps.set_counters(family, &site, counters);
    }
}

/// What conntrack has counted since the case was made, in the words of `conntrack -S`: packets that ended without a rule.
fn statistics(events: &[Event], on: &NodeName, at_us: u64) -> Option<String> {
    let before = events.iter().filter(|event| event.at_us <= at_us);
    let seen = before.filter_map(|event| match &event.what {
        EventKind::Drops(seen) if seen.node == *on && seen.front == "conntrack" => Some(seen),
        _ => None,
    });
    let (mut failed, mut dropped) = (0, 0);
    for grown in seen.flat_map(|seen| &seen.grown) {
        // What could not be inserted counts as dropped, too (Linux 5.10 and later).
        dropped += grown.packets;
        if grown.chain == "insert_failed" {
            failed += grown.packets;
        }
    }
    (dropped > 0).then(|| format!("cpu=0 insert_failed={failed} drop={dropped}\n"))
}
