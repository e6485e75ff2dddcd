//! What would be attached of a node at a moment of a recorded run.

use std::path::Path;

use anyhow::Result;
use chainbreak_diagnose::{Evidence, Log};
use chainbreak_model::{
    case::Case,
    event::{Event, EventKind},
    names::{AgentName, NodeName},
};
use chainbreak_netfilter::replay::Replay;
use chainbreak_report::{
    edits::backend,
    network::{Network, reroutes},
};
use serde_json::json;

use crate::{args::Diagnose, cases::invalid, explain::moment, reports};

pub(super) fn evidence(args: &Diagnose, run: &Path) -> Result<Evidence> {
    let (run, _) = reports::read(run)?;
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
    let mut evidence = Evidence {
        dumps: rules(case, &events, &node, at_us).dumps(),
        ..Evidence::default()
    };
    if let Some(network) = Network::at(&events, &case.timeline, reroutes, &node, at_us) {
        let added = evidence.dumps.add(network.text);
        added.map_err(|why| invalid(format!("what {node} routes by cannot be read: {why}")))?;
    }
    evidence.objects.take(objects(case));
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
    let (replay, doubts) = moment::replayed(&commands, backend(case));
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

/// The objects that the case began with.
fn objects(case: &Case) -> serde_json::Value {
    let felix = case.cluster.calico.is_some().then(|| {
        json!({ "kind": "FelixConfiguration", "metadata": { "name": "default" }, "spec": *case.cluster.felix })
    });
    let items: Vec<_> = case.manifests.iter().cloned().chain(felix).collect();
    json!({ "kind": "List", "items": items })
}
