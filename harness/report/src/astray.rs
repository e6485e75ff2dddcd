//! Requests that were lost because rules led some of them to endpoints that the API no longer named.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use chainbreak_model::{
    case::{Case, Traffic},
    event::{Event, EventKind},
    names::{NodeName, TrafficName},
    verdict::Span,
};
use chainbreak_probe::wire::Connections;
use serde::Serialize;

use crate::{
    attribution,
    edits::EditIndex,
    programs::{endpoints, latest, said},
    rebuilt::Rebuilt,
    text::clock,
};

/// Of so many requests that were lost the way is looked at.
const LOOKED_AT: usize = 12;

/// Where rules led requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Astray {
    /// Whose rules.
    pub who: String,
    /// Of which node.
    pub node: NodeName,
    /// `namespace/name`.
    pub service: String,
    /// Where they led some, and its EndpointSlices did not.
    pub gone: BTreeSet<String>,
    /// To how many addresses they led in all.
    pub of: usize,
    /// Since when its EndpointSlices had none of these.
    pub since_us: u64,
}

impl fmt::Display for Astray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who,
            node,
            service,
            gone,
            of,
            since_us,
        } = self;
        let (gone, share, since) = (said(gone), gone.len(), clock(*since_us));
        write!(
            f,
            "{who}'s rules on {node} led {service} to {gone} ({share} of {of}), which its EndpointSlices lack since {since}"
        )
    }
}

/// Where rules led requests of a traffic that were lost in that time: half of those that are looked at, or more.
pub(crate) fn of_losses(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    (name, traffic): (&TrafficName, &Traffic),
    within: Span,
) -> Option<Astray> {
    if traffic.connections == Connections::Kept {
        return None;
    }
    let (namespace, service) = traffic.to.service()?;
    let service = format!("{namespace}/{service}");
    let told: Vec<_> = endpoints(events, &service).collect();
    told.first()?;
    let node = attribution::node_of(case, traffic).or_else(|| attribution::only_node(case))?;
    let mut rebuilt = Rebuilt::of(case, events, index, (name, traffic), &node)?;
    let lost = lost(events, name, within);
    let (mut first, mut astray) = (None, 0);
    for &at_us in &lost {
        let Some((_, ready)) = latest(&told, at_us) else {
            continue;
        };
        let walk = rebuilt.walk(at_us);
        let led = walk.map(|walk| rebuilt.flight().led_to(&walk));
        let led = led.unwrap_or_default();
        let is_gone = |address: &&IpAddr| !ready.contains(&address.to_string());
        let Some(gone) = led.keys().find(is_gone) else {
            continue;
        };
        astray += 1;
        first.get_or_insert_with(|| (at_us, led[gone].clone(), led.clone()));
    }
    let (at_us, who, led) = first.filter(|_| 2 * astray >= lost.len())?;
    Some(since(&told, at_us, who, &led, (service.clone(), node)))
}

/// What is said of a moment at which they were led astray.
fn since(
    told: &[(u64, &BTreeSet<String>)],
    at_us: u64,
    who: String,
    led: &BTreeMap<IpAddr, String>,
    (service, node): (String, NodeName),
) -> Astray {
    let before: Vec<_> = told.iter().filter(|(at, _)| *at <= at_us).collect();
    let ready = before.last().map(|(_, ready)| *ready);
    let addresses = led.keys().map(ToString::to_string);
    let gone: BTreeSet<String> = addresses
        .filter(|address| ready.is_some_and(|ready| !ready.contains(address)))
        .collect();
    let lacks = before.iter().rev();
    let lacks = lacks.take_while(|(_, ready)| ready.is_disjoint(&gone));
    let since_us = lacks.last().map_or(at_us, |(at, _)| *at);
    Astray {
        who,
        node,
        service,
        gone,
        of: led.len(),
        since_us,
    }
}

/// When some of the requests were due that were lost, from the first to the last of them.
fn lost(events: &[Event], name: &TrafficName, within: Span) -> Vec<u64> {
    let due = events.iter().filter_map(|event| match &event.what {
        EventKind::Sample { traffic, sample }
            if traffic == name && within.contains(event.at_us) && !sample.outcome.is_answered() =>
        {
            Some(event.at_us)
        }
        _ => None,
    });
    let due: BTreeSet<u64> = due.collect();
    let every = due.len().div_ceil(LOOKED_AT).max(1);
    due.into_iter().step_by(every).collect()
}
