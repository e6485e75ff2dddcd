//! Who did it: the recorded command behind a broken promise, and the one that mended it. An answer is
//! given only when the history holds one; nobody is blamed by guess.

use std::{collections::BTreeSet, fmt};

use chainbreak_model::{
    case::{Case, Family, From, RuleQuery, To, Traffic},
    names::NodeName,
    verdict::{FirstEntry, Span},
};
use chainbreak_netfilter::ChangeKind;

use crate::{
    deeds::{Deed, Effect, Ledger, Link},
    gaps::Gap,
};

/// A request is sent a little after it is due, and may be lost to a command that began in between: a
/// probe on a busy core is late by at most a few milliseconds.
const SENT_LATE_US: u64 = 20_000;

/// On a starved machine it is some tens. Looked into only when nothing was missing by [`SENT_LATE_US`],
/// and only where most of the gap comes after it.
const STARVED_US: u64 = 100_000;

/// An observer looks after a write, and a log line passes a pipe: both speak of a moment a little before
/// their own. A slow `iptables-nft-save` takes some tens of milliseconds.
const SEEN_LATE_US: u64 = 100_000;

/// The command that cut a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What was cut.
    pub link: Link,
    /// Whether the chain is still there, but empty.
    pub emptied: bool,
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
    fn new(deed: &Deed<'_>, link: Link) -> Self {
        let emptied = match &link {
            Link::Filled { table, chain } => {
                let whole = Link::Chain {
                    table: table.clone(),
                    chain: chain.clone(),
                };
                deed.effect(&whole) != Some(Effect::Cut)
            }
            Link::Jump { .. } | Link::Chain { .. } => false,
        };
        Self {
            link,
            emptied,
            who: deed.command.who.clone(),
            program: deed.program().to_owned(),
            node: deed.command.node.clone(),
            at_us: deed.at_us,
        }
    }

    /// What was done to the link: `deleted`, `emptied`.
    pub fn verb(&self) -> &'static str {
        if self.emptied { "emptied" } else { "deleted" }
    }

    /// Without saying what: `deleted by felix (iptables-legacy-restore)`.
    pub fn done(&self) -> String {
        format!("{} by {} ({})", self.verb(), self.who, self.program)
    }
}

/// The command that ended a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        (From::Node(node), _) | (From::Host(_), To::NodePort { node, .. }) => Some(node.clone()),
        (From::Host(_), _) => None,
        (From::Pod { namespace, name }, _) => {
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

/// Who cut a gap into the traffic: of everything its packets need that was missing when the gap began,
/// what was cut last.
pub fn of_gap(case: &Case, ledger: &Ledger<'_>, traffic: &Traffic, gap: Span) -> Option<Cause> {
    let pinned = node_of(case, traffic);
    let nodes: Vec<&NodeName> = match &pinned {
        Some(node) => vec![node],
        None => ledger.nodes().into_iter().collect(),
    };
    let cut_by = |by_us| {
        let mut causes: Vec<Cause> = Vec::new();
        for &node in &nodes {
            let links = links(ledger, node, traffic);
            causes.extend(links.into_iter().filter_map(|link| {
                cut(ledger, node, &link, by_us, gap.from_us).map(|deed| Cause::new(deed, link))
            }));
        }
        // Of links cut by the same command, the first is the most telling one.
        causes.into_iter().rev().max_by_key(|cause| cause.at_us)
    };
    let starved = STARVED_US.min(gap.len_us() / 4);
    cut_by(gap.from_us + SENT_LATE_US).or_else(|| cut_by(gap.from_us + starved))
}

/// What ended a gap: the last command before the first answer that mended anything the packets need.
pub fn healing(ledger: &Ledger<'_>, traffic: &Traffic, node: &NodeName, gap: &Gap) -> Option<Heal> {
    if !gap.ended {
        return None;
    }
    let links = links(ledger, node, traffic);
    let deeds: Vec<&Deed<'_>> = ledger.on(node).collect();
    let mends = |deed: &Deed<'_>| {
        let during = deed.began_us() <= gap.answered_us && deed.at_us >= gap.span.from_us;
        during
            && links
                .iter()
                .any(|link| deed.effect(link) == Some(Effect::Mended))
    };
    let at = deeds.iter().rposition(|deed| mends(deed))?;
    let deed = deeds[at];
    Some(Heal {
        who: deed.command.who.clone(),
        program: deed.program().to_owned(),
        at_us: deed.at_us,
        full_sync: is_full_sync(&deeds[..=at]),
    })
}

/// Whether the last of the deeds belongs to a sync that ensured jumps one by one.
fn is_full_sync(deeds: &[&Deed<'_>]) -> bool {
    let Some((last, before)) = deeds.split_last() else {
        return false;
    };
    let same = |deed: &&&Deed<'_>| deed.command.who == last.command.who;
    let restores = |deed: &&&Deed<'_>| deed.program().ends_with("-restore");
    let mut sync = before
        .iter()
        .rev()
        .filter(same)
        .take_while(|deed| !restores(deed));
    last.ensures() || sync.any(|deed| deed.ensures())
}

/// Who took away a rule or a chain that was seen missing.
pub fn of_absence(
    ledger: &Ledger<'_>,
    node: &NodeName,
    query: &RuleQuery,
    seen_us: u64,
) -> Option<Cause> {
    // Which rule of a text was deleted no command says; nor is it known whose front end wrote.
    if query.matches.is_some() || query.backend.is_some() || query.family != Family::Ip {
        return None;
    }
    let (table, chain) = (query.table.clone(), query.chain_name().into_owned());
    let link = match query.jump.clone() {
        Some(target) => Link::Jump {
            table,
            chain,
            target,
        },
        None => Link::Chain { table, chain },
    };
    let deed = cut(
        ledger,
        node,
        &link,
        seen_us,
        seen_us.saturating_sub(SEEN_LATE_US),
    )?;
    Some(Cause::new(deed, link))
}

/// Who deleted the chain that a log entry says is missing.
pub fn of_entry(ledger: &Ledger<'_>, entry: &FirstEntry) -> Option<Cause> {
    let chain = missing_chain(&entry.text)?;
    let since = entry.at_us.saturating_sub(SEEN_LATE_US);
    ["nat", "filter", "mangle", "raw"]
        .into_iter()
        .find_map(|table| {
            let link = Link::Chain {
                table: table.to_owned(),
                chain: chain.to_owned(),
            };
            let deed = cut(ledger, &entry.node, &link, entry.at_us, since)?;
            Some(Cause::new(deed, link))
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

/// The last command begun by `by_us` that cut the link, unless it was mended again by `since_us`.
fn cut<'l, 'a>(
    ledger: &'l Ledger<'a>,
    node: &NodeName,
    link: &Link,
    by_us: u64,
    since_us: u64,
) -> Option<&'l Deed<'a>> {
    for deed in ledger
        .on(node)
        .rev()
        .filter(|deed| deed.began_us() <= by_us)
    {
        match deed.effect(link) {
            Some(Effect::Cut) => return Some(deed),
            Some(Effect::Mended) if deed.at_us <= since_us => return None,
            Some(Effect::Mended) | None => {}
        }
    }
    None
}

/// kube-proxy's table in nftables mode, and what every packet to a Service passes in it: a map is told as a chain.
const NFTABLES: (&str, [&str; 2]) = ("kube-proxy", ["services", "service-ips"]);

/// What the traffic's packets need on a node, the most telling first: the jump that catches them, the chain
/// it leads to, and the chains of the Service as kube-proxy named them in this history. In nftables mode the
/// chain that looks them up, what it looks them up in, and the Service's chains.
fn links(ledger: &Ledger<'_>, node: &NodeName, traffic: &Traffic) -> Vec<Link> {
    let (To::Service { namespace, name }
    | To::NodePort {
        namespace, name, ..
    }) = &traffic.to
    else {
        return Vec::new();
    };
    let hook = match &traffic.from {
        From::Node(_) => "OUTPUT",
        From::Pod { .. } | From::Host(_) => "PREROUTING",
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
    let chains = service_chains(ledger, node, &service).into_iter();
    links.extend(chains.map(|chain| filled("nat", chain)));
    let (table, common) = NFTABLES;
    links.extend(common.map(|chain| filled(table, chain.to_owned())));
    let chains = service_chains_of_nftables(ledger, node, &service).into_iter();
    links.extend(chains.map(|chain| filled(table, chain)));
    links
}

/// kube-proxy's chains of a Service in nftables mode: their names have it in clear text.
fn service_chains_of_nftables(
    ledger: &Ledger<'_>,
    node: &NodeName,
    service: &str,
) -> BTreeSet<String> {
    let changes = ledger.on(node).flat_map(|deed| &deed.changes);
    let ours = changes.filter(|change| change.table == NFTABLES.0);
    let part = format!("-{service}/");
    ours.filter(|change| change.chain.starts_with("service-") && change.chain.contains(&part))
        .map(|change| change.chain.clone())
        .collect()
}

/// kube-proxy's chains of a Service: it comments each jump to them with the Service's port name,
/// `namespace/name` or `namespace/name:port`.
fn service_chains(ledger: &Ledger<'_>, node: &NodeName, service: &str) -> BTreeSet<String> {
    let mut chains = BTreeSet::new();
    for change in ledger.on(node).flat_map(|deed| &deed.changes) {
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
