//! What lasts: faults, churn, and the times in which an agent is stopped.

use chainbreak_model::{
    case::{AgentFault, Fault, Step},
    event::EventKind,
    names::{AgentName, NodeName},
};
use indexmap::IndexMap;

use crate::explain::Material;

/// A time in which something is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::html) struct Bar {
    pub(in crate::html) from_us: u64,
    /// Until when; `None` where no end of it was told.
    pub(in crate::html) to_us: Option<u64>,
    pub(in crate::html) text: String,
}

/// On which lane it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Scenario,
    /// That of an agent on a node; on every node without one.
    Agent(AgentName, Option<NodeName>),
}

/// The bars of a case. Older histories do not say when a step began, and have none.
pub(super) fn of(material: &Material<'_>) -> Vec<(Place, Bar)> {
    let mut spans = IndexMap::<usize, (u64, Option<u64>)>::new();
    for event in material.events {
        match event.what {
            EventKind::StepBegan { step } => {
                spans.insert(step, (event.at_us, None));
            }
            EventKind::StepEnded { step } => {
                if let Some((_, to_us)) = spans.get_mut(&step) {
                    *to_us = Some(event.at_us);
                }
            }
            _ => {}
        }
    }
    let bars = spans.into_iter().flat_map(|(step, (from_us, to_us))| {
        let lasting = material.case.timeline.get(step).map(lasting);
        let bar = move |(place, text)| {
            let bar = Bar {
                from_us,
                to_us,
                text,
            };
            (place, bar)
        };
        lasting.unwrap_or_default().into_iter().map(bar)
    });
    bars.collect()
}

/// What a step does for a while, and on which lanes.
fn lasting(step: &Step) -> Vec<(Place, String)> {
    match step {
        Step::Churn {
            namespace,
            deployment,
            ..
        } => vec![(Place::Scenario, format!("churn {namespace}/{deployment}"))],
        Step::Fault {
            fault: Fault::Agent { agent, node, what },
            ..
        } => vec![(Place::Agent(*agent, node.clone()), done(*what).to_owned())],
        Step::Fault {
            fault: Fault::Slow { agent, command, .. },
            ..
        } => vec![(Place::Agent(*agent, None), format!("{command} is slow"))],
        Step::Fault {
            fault: Fault::Upgrade { to, node, .. },
            ..
        } => to
            .iter()
            .map(|(agent, version)| {
                let place = Place::Agent(*agent, node.clone());
                (place, format!("upgrade to {version}"))
            })
            .collect(),
        Step::Fault { fault, .. } => vec![(Place::Scenario, word(fault))],
        Step::Rollout {
            namespace,
            deployment,
        } => vec![(
            Place::Scenario,
            format!("rollout of {namespace}/{deployment}"),
        )],
        Step::Settle(_)
        | Step::At(_)
        | Step::Mark(_)
        | Step::Felix(_)
        | Step::Apply(_)
        | Step::Delete(_)
        | Step::MoveApi => Vec::new(),
    }
}

fn done(what: AgentFault) -> &'static str {
    match what {
        AgentFault::Stop => "stopped",
        AgentFault::Pause => "paused",
        AgentFault::Restart => "restart",
        AgentFault::Recreate { .. } => "pod made anew",
    }
}

/// The fault's name, as it is written down.
fn word(fault: &Fault) -> String {
    let named = serde_json::to_value(fault).ok();
    let named = named.as_ref().and_then(|named| named.as_object());
    let word = named.and_then(|named| named.keys().next());
    word.map_or_else(|| "fault".to_owned(), |word| word.replace('-', " "))
}
