//! Whose rule gave requests another source than their client's.

use std::{fmt, net::IpAddr};

use chainbreak_model::{
    case::Case,
    event::{Event, EventKind},
    names::NodeName,
    verdict::Sources,
};
use chainbreak_netfilter::{
    Family, Site,
    dumps::Dumps,
    walk::{Effect, Origin, Path},
};
use chainbreak_probe::wire::Connections;
use serde::Serialize;

use crate::{attribution, edits::EditIndex, rebuilt::Rebuilt, text::one_line};

/// A rule that translated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Translator {
    /// Who wrote it, by the commands.
    pub who: String,
    /// On which node.
    pub node: NodeName,
    /// The rule.
    pub site: Site,
}

impl fmt::Display for Translator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, node, site } = self;
        let Site { table, chain, rule } = site;
        let rule = one_line(rule);
        write!(f, "translated by {table} {chain} {rule} on {node} ({who})")
    }
}

/// The rule by which the first wrong source came about, where every way of the request leads through it.
pub(crate) fn of_sources(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    sources: &Sources,
) -> Option<Translator> {
    let (at_us, seen) = sources.first_wrong?;
    let traffic = case.traffic.get(&sources.traffic)?;
    // What goes on over a connection that is there is decided by its entry.
    if traffic.connections == Connections::Kept {
        return None;
    }
    let owner = owner(events, seen);
    let node = owner.or_else(|| attribution::node_of(case, traffic))?;
    let traffic = (&sources.traffic, traffic);
    let mut rebuilt = Rebuilt::of(case, events, index, traffic, &node)?;
    let walks = rebuilt.walks(at_us)?;
    let paths = walks.iter().flat_map(|walk| &walk.paths);
    let mut sites = paths.map(|path| translates(path, seen));
    let first = sites.next()??;
    let who = rebuilt.author(at_us, first, "")?;
    let is_one = sites.all(|site| site == Some(first));
    is_one.then(|| Translator {
        who: who.to_owned(),
        node: node.clone(),
        site: first.clone(),
    })
}

/// The last rule of a way that makes it come from there.
fn translates(path: &Path, seen: IpAddr) -> Option<&Site> {
    let rules = path.rules().filter(|(_, _, effect)| match effect {
        Effect::Snat(to, _) => to.is_none_or(|to| to == seen),
        _ => false,
    });
    rules.last().map(|(site, ..)| site)
}

/// The node that has an address, by its routes.
fn owner(events: &[Event], address: IpAddr) -> Option<NodeName> {
    let family = if address.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    let has = |text: &str| {
        let mut dumps = Dumps::default();
        let read = dumps.add(text).ok();
        let routing = read.and_then(|_| dumps.routing(family));
        let origin = routing.and_then(|routing| routing.origin(address));
        matches!(origin, Some(Origin::Here))
    };
    events.iter().find_map(|event| match &event.what {
        EventKind::Network { node, text } if has(text) => Some(node.clone()),
        _ => None,
    })
}
