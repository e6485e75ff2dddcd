//! Rules that keep a client with the endpoint that it met first (`sessionAffinity: ClientIP`).

use std::{collections::BTreeSet, fmt, net::IpAddr};

use chainbreak_model::{
    case::Case,
    event::Event,
    names::NodeName,
    verdict::{Span, Spread},
};
use chainbreak_netfilter::{Site, names::AFFINITY, walk::Path};
use chainbreak_probe::wire::Connections;
use serde::Serialize;

use crate::{attribution, edits::EditIndex, rebuilt::Rebuilt, text::one_line};

/// A rule that remembers clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sticky {
    /// Who wrote it, by the commands.
    pub who: String,
    /// On which node.
    pub node: NodeName,
    /// The rule; there is one for each endpoint.
    pub site: Site,
}

impl fmt::Display for Sticky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, node, site } = self;
        let Site { table, chain, rule } = site;
        let rule = one_line(rule);
        write!(
            f,
            "{who}'s rules on {node} keep a client with the endpoint that it met first: {table} {chain} {rule}"
        )
    }
}

/// Those by which one endpoint answered everything: by both ends of the time, and where others would have been led to without them.
pub(crate) fn of_spread(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    spread: &Spread,
    within: Span,
) -> Option<Sticky> {
    let name = &spread.traffic;
    let traffic = case.traffic.get(name)?;
    if traffic.connections == Connections::Kept || spread.backends.len() != 1 {
        return None;
    }
    let node = attribution::walked_node(case, traffic)?;
    let mut rebuilt = Rebuilt::of(case, events, index, (name, traffic), &node)?;
    let mut sites = Vec::new();
    for at_us in [within.from_us, within.to_us] {
        let ways = rebuilt.ways(at_us)?;
        let paths = ways.iter().flat_map(|walk| &walk.paths);
        let led: BTreeSet<IpAddr> = paths.clone().map(|path| path.packet.dst).collect();
        let site = paths.clone().find_map(remembers)?;
        sites.extend((led.len() > 1).then(|| site.clone()));
    }
    let [_, site] = sites.try_into().ok()?;
    let who = rebuilt.author(within.to_us, &site, "")?;
    Some(Sticky {
        who: who.to_owned(),
        node: node.clone(),
        site,
    })
}

/// The rule of a way that asks whether the client is remembered: `recent` in iptables, a set in nftables (kube-proxy 1.28 to 1.36).
fn remembers(path: &Path) -> Option<&Site> {
    let mut sites = path.rules().map(|(site, ..)| site);
    let set = format!("@{AFFINITY}");
    sites.find(|site| site.rule.contains("--rcheck") || site.rule.contains(&set))
}
