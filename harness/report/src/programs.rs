//! What Felix's programs do to requests, whatever rules others have: by a map of services that does not know what the API says, or because they
//! drop each packet. As its model's table has it ([`TABLE`]), or as looks at a real one's map showed.

use std::{collections::BTreeSet, fmt};

use chainbreak_model::{
    case::Traffic,
    event::{Event, EventKind},
    names::{AgentName, NodeName},
    verdict::Span,
};
use chainbreak_netfilter::{
    Change, ChangeKind,
    felix_programs::{self, FRONTENDS, TABLE, is_blind, port_name},
};
use serde::Serialize;

use crate::{attribution::SEEN_LATE_US, edits::EditIndex, endpoints, text::clock};

/// Its chain that each packet passes first.
const MARKS: &str = "marks";

/// So many addresses of each side are said.
const SAID: usize = 3;

type Addresses = BTreeSet<String>;

/// What Felix's programs did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Programs {
    /// They led requests to backends that were gone.
    Blind(Blind),
    /// They dropped each packet.
    Dropping(Dropping),
}

impl fmt::Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blind(blind) => blind.fmt(f),
            Self::Dropping(dropping) => dropping.fmt(f),
        }
    }
}

/// Programs that cannot call each other any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Dropping {
    /// By what.
    pub who: String,
    /// Since when.
    pub since_us: u64,
}

impl fmt::Display for Dropping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, since_us } = self;
        write!(
            f,
            "felix's programs drop every packet since {} ({who})",
            clock(*since_us)
        )
    }
}

/// A map that knew none of a Service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Blind {
    /// Whose map it is.
    pub who: String,
    /// `namespace/name`.
    pub service: String,
    /// The backends that it has.
    pub backends: Addresses,
    /// The endpoints that the API has.
    pub endpoints: Addresses,
    /// Since when none of the one is of the other.
    pub since_us: u64,
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who,
            service,
            backends,
            endpoints,
            since_us,
        } = self;
        write!(
            f,
            "{who}'s NAT map leads {service} to {}, its EndpointSlices have {} since {}",
            said(backends),
            said(endpoints),
            clock(*since_us)
        )
    }
}

pub(crate) fn said(addresses: &Addresses) -> String {
    let first: Vec<&str> = addresses.iter().take(SAID).map(String::as_str).collect();
    let more = if addresses.len() > SAID { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

/// What a node's programs did to the traffic in a gap: that explains it, whatever else was deleted.
pub(crate) fn of_gap(
    events: &[Event],
    index: &EditIndex<'_>,
    node: &NodeName,
    traffic: &Traffic,
    gap: Span,
) -> Option<Programs> {
    let dropping = dropping(index, node, gap).map(Programs::Dropping);
    dropping.or_else(|| blind(events, index, node, traffic, gap).map(Programs::Blind))
}

/// The map of a node that was blind for most of a gap of the traffic.
fn blind(
    events: &[Event],
    index: &EditIndex<'_>,
    node: &NodeName,
    traffic: &Traffic,
    gap: Span,
) -> Option<Blind> {
    let (namespace, name) = traffic.to.service()?;
    let service = format!("{namespace}/{name}");
    let maps = [maps(index, node, &service), looks(events, node, &service)].concat();
    let told = endpoints::told(events, &service);
    let endpoints: Vec<_> = told.iter().map(|it| (it.at_us, it.ready)).collect();
    let mut moments: BTreeSet<u64> = maps.iter().map(|(at, _)| *at).collect();
    moments.extend(endpoints.iter().map(|(at, _)| *at));
    moments.retain(|at| *at < gap.to_us);
    let ends = moments.iter().skip(1).chain([&gap.to_us]);
    let (mut found, mut blind_us, mut was_known) = (None::<Blind>, 0, false);
    for (&at_us, &until_us) in moments.iter().zip(ends) {
        let map = latest(&maps, at_us).and_then(|(_, map)| map.as_ref());
        let ready = latest(&endpoints, at_us).and_then(|(_, ready)| *ready);
        // What is not known of a time does not say that it sees, and not that it was blind.
        let Some((map, ready)) = map.zip(ready) else {
            was_known = false;
            continue;
        };
        if is_blind(&map.backends, ready) {
            let since_us = found.filter(|_| was_known).map_or(at_us, |it| it.since_us);
            found = Some(Blind {
                who: map.who.to_owned(),
                backends: map.backends.clone(),
                endpoints: ready.clone(),
                service: service.clone(),
                since_us,
            });
            blind_us += until_us.saturating_sub(at_us.max(gap.from_us));
        } else {
            found = None;
        }
        was_known = true;
    }
    found.filter(|_| 2 * blind_us >= gap.len_us())
}

/// Who has the programs drop each packet when a gap begins.
fn dropping(index: &EditIndex<'_>, node: &NodeName, gap: Span) -> Option<Dropping> {
    let before = |at_us: u64| at_us <= gap.from_us + SEEN_LATE_US;
    let edits = index.on(node).filter(|edit| before(edit.at_us));
    let changes = edits.flat_map(|edit| edit.changes.iter().map(move |change| (edit, change)));
    let mut marks = changes.filter(|(_, change)| is_in(change, MARKS));
    let (edit, last) = marks.next_back()?;
    let drops = matches!(&last.kind, ChangeKind::RuleAdded { text, .. } if text.ends_with("drop"));
    drops.then(|| Dropping {
        who: edit.command.who.clone(),
        since_us: edit.at_us,
    })
}

/// Whether it is a change of that chain of the programs' table.
fn is_in(change: &Change, chain: &str) -> bool {
    change.table == TABLE && change.chain == chain
}

/// What held at that time.
fn latest<T>(told: &[(u64, T)], at_us: u64) -> Option<&(u64, T)> {
    told.iter().rev().find(|(at, _)| *at <= at_us)
}

/// A map as it was written, or seen.
#[derive(Clone)]
struct Map<'a> {
    who: &'a str,
    /// What it has of the Service.
    backends: Addresses,
}

/// A node's maps, each with the time from which on it held; nothing where that is not known.
type Maps<'a> = Vec<(u64, Option<Map<'a>>)>;

/// Those of a model, as it wrote them.
fn maps<'a>(index: &'a EditIndex<'_>, node: &NodeName, service: &str) -> Maps<'a> {
    let mut maps = Vec::new();
    for edit in index.on(node) {
        let ours = edit.changes.iter().filter(|it| is_in(it, FRONTENDS));
        let mut changes = ours.peekable();
        if changes.peek().is_none() {
            continue;
        }
        let rules = changes.filter_map(|change| match &change.kind {
            ChangeKind::RuleAdded { text, .. } if is_of(text, service) => Some(text),
            _ => None,
        });
        let backends = rules.flat_map(|text| backends(text)).collect();
        let who = &edit.command.who;
        maps.push((edit.at_us, Some(Map { who, backends })));
    }
    maps
}

/// Those of a real Felix, as looks showed them: what two of them in a row showed held between them.
fn looks(events: &[Event], node: &NodeName, service: &str) -> Maps<'static> {
    let looks = events.iter().filter_map(|event| match &event.what {
        EventKind::NatMap {
            node: of_node,
            service: of,
            backends,
        } if of_node == node && of == service => Some((event.at_us, backends.as_ref())),
        _ => None,
    });
    let looks: Vec<_> = looks.collect();
    let nexts = looks.iter().skip(1).map(|(_, seen)| *seen).chain([None]);
    let held = looks.iter().zip(nexts).map(|((at_us, seen), next)| {
        let held = seen.filter(|_| *seen == next);
        let map = |backends: &Addresses| Map {
            who: AgentName::Felix.as_str(),
            backends: backends.clone(),
        };
        (*at_us, held.map(map))
    });
    held.collect()
}

/// Whether the rule's comment is a port's name of the Service: `namespace/name` or `namespace/name:port`.
fn is_of(rule: &str, service: &str) -> bool {
    let rest = port_name(rule).and_then(|name| name.strip_prefix(service));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// The addresses of a rule's backends.
fn backends(rule: &str) -> Vec<String> {
    let backends = felix_programs::backends(rule).into_iter();
    backends.map(|at| at.ip().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rules_backends_are_read_in_both_forms_and_its_service_by_its_comment() {
        let one =
            "ip daddr 10.96.0.7 tcp dport 80 dnat to 10.20.1.2:8080 comment \"test/web:http\"";
        assert_eq!(backends(one), ["10.20.1.2"]);
        let two = "ip daddr 10.96.0.7 tcp dport 80 dnat to numgen random mod 2 map { 0 : 10.20.1.2 . 8080, 1 : 10.20.1.3 . 8080 } comment \"test/web:http\"";
        assert_eq!(backends(two), ["10.20.1.2", "10.20.1.3"]);
        assert!(backends("ip daddr 10.96.0.7 drop comment \"test/web\"").is_empty());
        assert!(is_of(one, "test/web") && !is_of(one, "test/we") && !is_of(one, "est/web"));
    }
}
