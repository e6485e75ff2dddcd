//! Requests that were lost because rules led some of them to endpoints that the API no longer had ready.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use chainbreak_model::{
    case::{Case, Traffic},
    event::Event,
    names::{NodeName, TrafficName},
    verdict::Span,
};
use chainbreak_probe::wire::Connections;
use serde::Serialize;

use crate::{
    attribution,
    edits::EditIndex,
    endpoints::{self, told},
    gaps,
    programs::said,
    rebuilt::Rebuilt,
    text::clock,
};

/// Where rules led requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Astray {
    /// Who wrote the rules, by the commands.
    pub who: String,
    /// Of which node.
    pub node: NodeName,
    /// `namespace/name`.
    pub service: String,
    /// Where they led some: its EndpointSlices had these neither ready nor ending and serving still.
    pub gone: BTreeSet<String>,
    /// To how many addresses they led in all.
    pub of: usize,
    /// Since when none of these.
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
            "{who}'s rules on {node} led {service} to {gone} ({share} of {of}), not ready in its EndpointSlices since {since}"
        )
    }
}

/// Where rules led requests that were lost in that time: half of those that are looked at, or more. Where `all` were lost every way of theirs has
/// to lead astray.
pub(crate) fn of_losses(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    (name, traffic): (&TrafficName, &Traffic),
    within: Span,
    all: bool,
) -> Option<Astray> {
    if traffic.connections == Connections::Kept {
        return None;
    }
    let (namespace, service) = traffic.to.service()?;
    let service = format!("{namespace}/{service}");
    let told = told(events, &service);
    // What never lost an endpoint has no stale rules: most histories end here, and nothing is rebuilt.
    let mut before = BTreeSet::new();
    told.iter().find(|told| {
        let loses = before.iter().any(|address: &&String| !told.has(address));
        before.extend(told.ready.into_iter().flatten());
        loses
    })?;
    let node = attribution::walked_node(case, traffic)?;
    let mut rebuilt = Rebuilt::of(case, events, index, (name, traffic), &node)?;
    let lost = gaps::some_lost(events, name, within);
    let (mut first, mut astray) = (None, 0);
    for &at_us in lost.keys() {
        let Some((led, now)) = rebuilt.led(at_us).zip(endpoints::latest(&told, at_us)) else {
            continue;
        };
        let gone = led.keys().filter(|it| !now.has(&it.to_string()));
        let gone: Vec<&IpAddr> = gone.collect();
        if gone.is_empty() || (all && gone.len() < led.len()) {
            continue;
        }
        astray += 1;
        let found = || {
            let says = gone[0].to_string();
            let who = rebuilt.author(at_us, &led[gone[0]], &says)?;
            let gone: BTreeSet<String> = gone.iter().map(ToString::to_string).collect();
            Some(Astray {
                who: who.to_owned(),
                node: node.clone(),
                service: service.clone(),
                since_us: endpoints::since(&told, at_us, |told| {
                    !gone.iter().any(|address| told.has(address))
                })
                .unwrap_or(at_us),
                gone,
                of: led.len(),
            })
        };
        first = first.or_else(found);
    }
    first.filter(|_| 2 * astray >= lost.len())
}
