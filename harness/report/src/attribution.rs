//! Who did it: the recorded command behind a broken promise, and the one that put right what it did. An answer is
//! given only when the history holds one; nobody is blamed by guess.

use std::{collections::BTreeSet, fmt};

use chainbreak_model::{
    case::{Case, Destination, IpFamily, Origin, Route, Traffic, Via},
    names::NodeName,
    verdict::{FirstEntry, Span},
};
use chainbreak_netfilter::{ChangeKind, Family};
use serde::Serialize;

use crate::{
    deeds::Verb,
    edits::{EditIndex, Effect, Link, RuleEdit},
    gaps::Gap,
};

/// A request is sent a little after it is due, and may be lost to a command that began in between: a
/// probe on a busy core is late by at most a few milliseconds.
pub(crate) const SENT_LATE_US: u64 = 20_000;

/// On a starved machine it is some tens. Looked into only when nothing was missing by [`SENT_LATE_US`],
/// and only where most of the gap comes after it.
pub(crate) const STARVED_US: u64 = 100_000;

/// An observer looks after a write, and a log line passes a pipe: both speak of a moment a little before
/// their own. A slow `iptables-nft-save` takes some tens of milliseconds.
pub(crate) const SEEN_LATE_US: u64 = 100_000;

/// The command that removed a link, or made one that was not to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cause {
    /// What it did something to.
    pub link: Link,
    /// What it did.
    pub verb: Verb,
    /// Who ran the command.
    pub who: String,
    /// With which program.
    pub program: String,
    /// Where.
    pub node: NodeName,
    /// When the command ended.
    pub at_us: u64,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.link, self.done())
    }
}

impl Cause {
    /// Of a command that says itself that it removes a link.
    pub(crate) fn removal(edit: &RuleEdit<'_>, link: Link) -> Self {
        let emptied = match &link {
            Link::Filled { table, chain } => {
                let whole = Link::Chain {
                    table: table.clone(),
                    chain: chain.clone(),
                };
                edit.effect(&whole) != Some(Effect::Removed)
            }
            Link::Jump { .. } | Link::Chain { .. } | Link::Asked(_) => false,
        };
        let verb = if emptied {
            Verb::Emptied
        } else {
            Verb::Deleted
        };
        Self::of(edit, link, verb)
    }

    /// Of a command of which it is known what it did.
    pub(crate) fn of(edit: &RuleEdit<'_>, link: Link, verb: Verb) -> Self {
        Self {
            link,
            verb,
            who: edit.command.who.clone(),
            program: edit.program().to_owned(),
            node: edit.command.node.clone(),
            at_us: edit.at_us,
        }
    }

    /// Without saying what: `deleted by felix (iptables-legacy-restore)`.
    pub fn done(&self) -> String {
        format!("{} by {} ({})", self.verb, self.who, self.program)
    }
}

/// The command that ended a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Heal {
    /// Who ran it.
    pub who: String,
    /// With which program.
    pub program: String,
    /// When it ended.
    pub at_us: u64,
    /// Whether it was part of a full sync of kube-proxy: those ensure jumps with `iptables` before they
    /// restore (kube-proxy 1.27 and later; before, every sync does).
    pub full_sync: bool,
}

impl fmt::Display for Heal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, program, .. } = self;
        if self.full_sync {
            write!(f, "healed by a full sync of {who}")
        } else {
            write!(f, "healed by {who} ({program})")
        }
    }
}

/// The node whose rules decide over the traffic: the one it starts on, or that it addresses from outside.
/// `None` when the case does not pin the pod to one.
pub fn node_of(case: &Case, traffic: &Traffic) -> Option<NodeName> {
    match (&traffic.from, &traffic.to) {
        (Origin::Node(node), _) | (Origin::Host(_), Destination::NodePort { node, .. }) => {
            Some(node.clone())
        }
        (Origin::Host(host), Destination::Host(to)) => entered(case, traffic, (host, to)),
        (Origin::Host(_), _) => None,
        (Origin::Pod { namespace, name }, _) => {
            let is = |pod: &&serde_json::Value| {
                let text = |path: &str| pod.pointer(path).and_then(serde_json::Value::as_str);
                text("/kind") == Some("Pod")
                    && text("/metadata/name") == Some(name)
                    && text("/metadata/namespace").unwrap_or("default") == namespace
            };
            let node = case.manifests.iter().find(is)?.pointer("/spec/nodeName")?;
            node.as_str().map(NodeName::from)
        }
    }
}

/// The node to which a host hands what it sends to another one's address, by a route to just that: to the others' addresses each host has one of
/// its own.
fn entered(case: &Case, traffic: &Traffic, (host, to): (&str, &str)) -> Option<NodeName> {
    let hosts = &case.cluster.hosts;
    let families = &case.cluster.ip_families;
    let family = traffic.family.or(families.first().copied())?;
    let address = family.address(*hosts.get(to)?.addresses.first()?);
    let is_to_it = |route: &&Route| {
        let net = family.net(route.to);
        net.is_some_and(|it| it.addr() == address && it.prefix_len() == it.max_prefix_len())
    };
    match &hosts.get(host)?.routes.iter().find(is_to_it)?.via {
        Via::Node(node) => Some(node.clone()),
        Via::Address(_) | Via::Host(_) => None,
    }
}

/// The case's node, where it has one only.
pub fn only_node(case: &Case) -> Option<NodeName> {
    let mut nodes = case.cluster.node_names();
    nodes.next().filter(|_| nodes.next().is_none())
}

/// The node through whose rules the traffic's requests are walked: [`node_of`], or the case's only one.
pub fn walked_node(case: &Case, traffic: &Traffic) -> Option<NodeName> {
    node_of(case, traffic).or_else(|| only_node(case))
}

/// Who caused a gap in the traffic: of everything its packets need that was missing when the gap began,
/// what was removed last.
pub fn of_gap(case: &Case, index: &EditIndex<'_>, traffic: &Traffic, gap: Span) -> Option<Cause> {
    let pinned = node_of(case, traffic);
    let nodes: Vec<&NodeName> = match &pinned {
        Some(node) => vec![node],
        None => index.nodes().into_iter().collect(),
    };
    let family = family(case, traffic);
    let removed_by = |by_us| {
        let mut causes: Vec<Cause> = Vec::new();
        for &node in &nodes {
            let links = links(index, node, traffic);
            causes.extend(links.into_iter().filter_map(|link| {
                let effect = |edit: &RuleEdit<'_>| edit.effect_in(family, &link);
                removal(index.on(node), effect, by_us, gap.from_us)
                    .map(|edit| Cause::removal(edit, link))
            }));
        }
        // Of links removed by the same command, the first is the most telling one.
        causes.into_iter().rev().max_by_key(|cause| cause.at_us)
    };
    let starved = STARVED_US.min(gap.len_us() / 4);
    removed_by(gap.from_us + SENT_LATE_US).or_else(|| removed_by(gap.from_us + starved))
}

/// Of which protocol the traffic's packets are.
fn family(case: &Case, traffic: &Traffic) -> Family {
    let mut first = case.cluster.ip_families.iter().copied();
    match traffic.family.or(first.next()) {
        Some(IpFamily::V6) => Family::V6,
        Some(IpFamily::V4) | None => Family::V4,
    }
}

/// What ended a gap: the last command before the first answer that restored anything the packets need.
pub fn healing(
    case: &Case,
    index: &EditIndex<'_>,
    (traffic, node): (&Traffic, &NodeName),
    gap: &Gap,
) -> Option<Heal> {
    if !gap.ended {
        return None;
    }
    let links = links(index, node, traffic);
    let family = family(case, traffic);
    let edits: Vec<&RuleEdit<'_>> = index.on(node).collect();
    let restores = |edit: &RuleEdit<'_>| {
        let during = edit.began_us() <= gap.answered_us && edit.at_us >= gap.span.from_us;
        during
            && links
                .iter()
                .any(|link| edit.effect_in(family, link) == Some(Effect::Restored))
    };
    let at = edits.iter().rposition(|edit| restores(edit))?;
    let edit = edits[at];
    Some(Heal {
        who: edit.command.who.clone(),
        program: edit.program().to_owned(),
        at_us: edit.at_us,
        full_sync: is_full_sync(&edits[..=at]),
    })
}

/// Whether the last of the edits belongs to a sync that ensured jumps one by one.
fn is_full_sync(edits: &[&RuleEdit<'_>]) -> bool {
    let Some((last, before)) = edits.split_last() else {
        return false;
    };
    let same = |edit: &&&RuleEdit<'_>| edit.command.who == last.command.who;
    let restores = |edit: &&&RuleEdit<'_>| edit.program().ends_with("-restore");
    let mut sync = before
        .iter()
        .rev()
        .filter(same)
        .take_while(|edit| !restores(edit));
    last.ensures() || sync.any(|edit| edit.ensures())
}

/// Who deleted the chain that a log entry says is missing.
pub fn of_entry(index: &EditIndex<'_>, entry: &FirstEntry) -> Option<Cause> {
    let chain = missing_chain(&entry.text)?;
    let since = entry.at_us.saturating_sub(SEEN_LATE_US);
    ["nat", "filter", "mangle", "raw"]
        .into_iter()
        .find_map(|table| {
            let link = Link::Chain {
                table: table.to_owned(),
                chain: chain.to_owned(),
            };
            let effect = |edit: &RuleEdit<'_>| edit.effect(&link);
            let edit = removal(index.on(&entry.node), effect, entry.at_us, since)?;
            Some(Cause::removal(edit, link))
        })
}

/// The chain that iptables says it cannot find: ``Couldn't load target `X'`` (legacy),
/// `Chain 'X' does not exist` (nft).
pub fn missing_chain(text: &str) -> Option<&str> {
    let after = |mark| {
        text.split_once(mark)
            .and_then(|(_, rest)| rest.split_once('\''))
    };
    let legacy = after("Couldn't load target `");
    let nft = after("Chain '").filter(|(_, rest)| rest.starts_with(" does not exist"));
    legacy.or(nft).map(|(chain, _)| chain)
}

/// The command of these begun by `by_us` that removed something for the last time, unless it was restored again by `since_us`. To remove what is
/// gone already does nothing.
pub(crate) fn removal<'l, 'a: 'l>(
    edits: impl DoubleEndedIterator<Item = &'l RuleEdit<'a>>,
    effect: impl Fn(&RuleEdit<'_>) -> Option<Effect>,
    by_us: u64,
    since_us: u64,
) -> Option<&'l RuleEdit<'a>> {
    let mut removed = None;
    for edit in edits.rev().filter(|edit| edit.began_us() <= by_us) {
        match effect(edit) {
            Some(Effect::Removed) => removed = Some(edit),
            Some(Effect::Restored) if removed.is_some() || edit.at_us <= since_us => break,
            Some(Effect::Restored) | None => {}
        }
    }
    removed
}

/// kube-proxy's table in nftables mode, and what every packet to a Service passes in it: a map is told as a chain.
const NFTABLES: (&str, [&str; 2]) = ("kube-proxy", ["services", "service-ips"]);

/// What the traffic's packets need on a node, the most telling first: the jump that catches them, the chain
/// it leads to, and the chains of the Service as kube-proxy named them in this history. In nftables mode the
/// chain that looks them up, what it looks them up in, and the Service's chains.
fn links(index: &EditIndex<'_>, node: &NodeName, traffic: &Traffic) -> Vec<Link> {
    let Some((namespace, name)) = traffic.to.service() else {
        return Vec::new();
    };
    let hook = match &traffic.from {
        Origin::Node(_) => "OUTPUT",
        Origin::Pod { .. } | Origin::Host(_) => "PREROUTING",
    };
    let nat = || "nat".to_owned();
    let services = || "KUBE-SERVICES".to_owned();
    let jump = Link::Jump {
        table: nat(),
        chain: hook.to_owned(),
        target: services(),
    };
    let mut links = vec![
        jump,
        Link::Filled {
            table: nat(),
            chain: services(),
        },
    ];
    let service = format!("{namespace}/{name}");
    let filled = |table: &str, chain: String| Link::Filled {
        table: table.to_owned(),
        chain,
    };
    let chains = service_chains(index, node, &service).into_iter();
    links.extend(chains.map(|chain| filled("nat", chain)));
    let (table, common) = NFTABLES;
    links.extend(common.map(|chain| filled(table, chain.to_owned())));
    let chains = service_chains_of_nftables(index, node, &service).into_iter();
    links.extend(chains.map(|chain| filled(table, chain)));
    links
}

/// kube-proxy's chains of a Service in nftables mode: their names have it in clear text.
fn service_chains_of_nftables(
    index: &EditIndex<'_>,
    node: &NodeName,
    service: &str,
) -> BTreeSet<String> {
    let changes = index.on(node).flat_map(|edit| &edit.changes);
    let ours = changes.filter(|change| change.table == NFTABLES.0);
    let part = format!("-{service}/");
    ours.filter(|change| change.chain.starts_with("service-") && change.chain.contains(&part))
        .map(|change| change.chain.clone())
        .collect()
}

/// kube-proxy's chains of a Service: it comments each jump to them with the Service's port name,
/// `namespace/name` or `namespace/name:port`.
fn service_chains(index: &EditIndex<'_>, node: &NodeName, service: &str) -> BTreeSet<String> {
    let mut chains = BTreeSet::new();
    for change in index.on(node).flat_map(|edit| &edit.changes) {
        let ChangeKind::RuleAdded {
            text,
            target: Some(target),
        } = &change.kind
        else {
            continue;
        };
        let names = |rest: &str| rest.starts_with([' ', ':', '"']);
        if change.chain == "KUBE-SERVICES"
            && target.starts_with("KUBE-SVC-")
            && text
                .split_once(service)
                .is_some_and(|(before, rest)| before.ends_with([' ', '"']) && names(rest))
        {
            chains.insert(target.clone());
        }
    }
    chains
}
