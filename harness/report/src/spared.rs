//! Endpoints that rules led no requests to, though the API had them ready.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use chainbreak_model::{
    case::Case,
    event::Event,
    names::NodeName,
    verdict::{Span, Spread},
};
use chainbreak_probe::wire::Connections;
use serde::Serialize;

use crate::{
    attribution,
    edits::EditIndex,
    endpoints::{self, told},
    programs::said,
    rebuilt::Rebuilt,
    text::clock,
};

/// Where rules led, and where not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Spared {
    /// Who wrote the rules, by the commands.
    pub who: String,
    /// Of which node.
    pub node: NodeName,
    /// `namespace/name`.
    pub service: String,
    /// Where they led.
    pub led: BTreeSet<String>,
    /// Where they did not, though its EndpointSlices had it ready.
    pub left_out: BTreeSet<String>,
    /// Since when these were ready.
    pub since_us: u64,
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who,
            node,
            service,
            led,
            left_out,
            since_us,
        } = self;
        let (led, left_out, since) = (said(led), said(left_out), clock(*since_us));
        write!(
            f,
            "{who}'s rules on {node} led {service} to {led}, and not to {left_out}, ready in its EndpointSlices since {since}"
        )
    }
}

/// The endpoints that were ready in all of that time and that rules spared at its end, where every way of a request is known.
pub(crate) fn of_spread(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    spread: &Spread,
    within: Span,
) -> Option<Spared> {
    let name = &spread.traffic;
    let traffic = case.traffic.get(name)?;
    if traffic.connections == Connections::Kept {
        return None;
    }
    let (namespace, service) = traffic.to.service()?;
    let service = format!("{namespace}/{service}");
    let node = attribution::walked_node(case, traffic)?;
    let mut rebuilt = Rebuilt::of(case, events, index, (name, traffic), &node)?;
    let led = rebuilt.led(within.to_us)?;
    let (first, _) = led.first_key_value()?;
    let told = told(events, &service);
    let now = endpoints::latest(&told, within.to_us)?;
    let is_of_family = |at: &&String| {
        let at: Option<IpAddr> = at.parse().ok();
        at.is_some_and(|at| at.is_ipv6() == first.is_ipv6() && !led.contains_key(&at))
    };
    let left_out: BTreeSet<String> = now.ready?.iter().filter(is_of_family).cloned().collect();
    let since_us = endpoints::since(&told, within.to_us, |told| {
        told.ready.is_some_and(|ready| ready.is_superset(&left_out))
    })?;
    if left_out.is_empty() || since_us > within.from_us {
        return None;
    }
    let who = rebuilt.leader(within.to_us, &led)?;
    Some(Spared {
        who: who.to_owned(),
        led: led.keys().map(ToString::to_string).collect(),
        node: node.clone(),
        service,
        left_out,
        since_us,
    })
}
