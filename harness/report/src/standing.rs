//! Why requests were lost from the first one on: the way of a first packet through what was there all the time says it. Told is what holds of
//! a dozen of them, and ended them as they ended.

use std::{fmt, net::IpAddr};

use chainbreak_model::{
    case::{AWS_NODE, Case, Destination, IpFamily, Origin, Traffic},
    event::Event,
    names::{NodeName, TrafficName},
    verdict::Span,
};
use chainbreak_netfilter::{
    Site,
    walk::{Path, Step, Walk},
};
use chainbreak_probe::wire::Outcome;
use serde::Serialize;

use crate::{
    attribution, edits::EditIndex, flight, gaps, network, rebuilt::Rebuilt, text::one_line,
};

/// What was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Something ends them on a node.
    Ended {
        /// Who alone wrote the rules that do, by the commands.
        who: Option<String>,
        /// How: `is dropped by filter KUBE-EXTERNAL-SERVICES 1: …`.
        end: String,
    },
    /// They leave with the pod's own address, and the host that they get to has no route of its own to it.
    NoWayBack {
        /// Who is told to leave the address as it is.
        who: Option<String>,
        /// The address.
        source: IpAddr,
        /// The node that they leave.
        node: NodeName,
        /// The host.
        host: String,
    },
}

impl Standing {
    /// Whose rules or setting it is.
    pub(crate) fn who(&self) -> Option<&str> {
        match self {
            Self::Ended { who, .. } | Self::NoWayBack { who, .. } => who.as_deref(),
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { who, end } => {
                let who = who.as_ref().map(|who| format!(" ({who})"));
                write!(
                    f,
                    "a request's first packet {end}{}",
                    who.unwrap_or_default()
                )
            }
            Self::NoWayBack {
                who,
                source,
                node,
                host,
            } => {
                let who = who.as_ref().map(|who| format!(" ({who}: external-snat)"));
                let who = who.unwrap_or_default();
                write!(
                    f,
                    "they leave {node} as {source}{who}, and host {host} has no route of its own to that"
                )
            }
        }
    }
}

/// Why all of a gap was lost before which nothing was answered: the same of some of its requests, from the first to the last.
pub(crate) fn of_gap(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    (name, traffic): (&TrafficName, &Traffic),
    gap: Span,
) -> Option<Standing> {
    let node = attribution::walked_node(case, traffic)?;
    let mut rebuilt = Rebuilt::of(case, events, index, (name, traffic), &node)?;
    let mut found = Vec::new();
    for (at_us, outcome) in gaps::some_lost(events, name, gap) {
        let walks = rebuilt.walks(at_us)?;
        let lost = Lost {
            case,
            traffic,
            rebuilt: &rebuilt,
            node: &node,
            at_us,
        };
        let seen = walks.iter().map(|walk| lost.why(walk, outcome));
        found.extend(seen);
    }
    let mut found = found.into_iter();
    let first = found.next()??;
    found
        .all(|other| other.as_ref() == Some(&first))
        .then_some(first)
}

/// Requests of a traffic at a moment at which all are lost.
struct Lost<'r, 'a> {
    case: &'r Case,
    traffic: &'r Traffic,
    rebuilt: &'r Rebuilt<'a>,
    node: &'r NodeName,
    at_us: u64,
}

impl Lost<'_, '_> {
    fn why(&self, walk: &Walk, outcome: &Outcome) -> Option<Standing> {
        let flight = self.rebuilt.flight();
        if flight.is_lost(walk) && flight::is_seen(walk, outcome) {
            let site = one_site(walk);
            let says = |site| self.rebuilt.author(self.at_us, site, "");
            return Some(Standing::Ended {
                who: site.and_then(says).map(str::to_owned),
                end: ended(walk, site),
            });
        }
        let times_out = matches!(outcome, Outcome::TimedOut);
        if times_out && flight.passes_as_sent(walk) {
            return self.no_way_back();
        }
        None
    }

    /// Of what a pod sends to a host that has routes to its own network alone, as the plan has it and no step of the timeline may change.
    fn no_way_back(&self) -> Option<Standing> {
        let (Origin::Pod { .. }, Destination::Host(name)) = (&self.traffic.from, &self.traffic.to)
        else {
            return None;
        };
        if self.case.timeline.iter().any(network::reroutes) {
            return None;
        }
        let flight = self.rebuilt.flight();
        let (source, sent_to) = (flight.from(), flight.to());
        let family = IpFamily::of(source);
        let host = self.case.cluster.hosts.get(name)?;
        let mut routes = host.routes.iter().filter_map(|it| family.net(it.to));
        if routes.any(|to| to.contains(&source)) {
            return None;
        }
        // It translates IPv4 alone, to what is in no network of the VPC.
        let is_told = self.case.cluster.cni.as_ref().is_some_and(|cni| {
            let is_outside = host.addresses.contains(&sent_to)
                && !cni.vpc_cidrs.iter().any(|it| it.contains(&sent_to));
            cni.external_snat && family == IpFamily::V4 && is_outside
        });
        Some(Standing::NoWayBack {
            who: is_told.then(|| AWS_NODE.to_owned()),
            source,
            node: self.node.clone(),
            host: name.clone(),
        })
    }
}

/// The rule that ends each of its ways.
fn one_site(walk: &Walk) -> Option<&Site> {
    let site = |path| match Path::decided(path)? {
        Step::Rule { site, .. } => Some(site),
        _ => None,
    };
    let mut sites = walk.paths.iter().map(site);
    let first = sites.next()??;
    sites.all(|other| other == Some(first)).then_some(first)
}

/// How it ends, by the rule itself where there is one: its comment may say why.
fn ended(walk: &Walk, site: Option<&Site>) -> String {
    let (Some(path), Some(site)) = (walk.paths.first(), site) else {
        return walk.ends().join("; ");
    };
    let Site { table, chain, rule } = site;
    format!("{} by {table} {chain} {}", path.end, one_line(rule))
}
