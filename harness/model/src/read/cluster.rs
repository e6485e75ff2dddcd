//! `cluster:`.

use std::{collections::BTreeMap, path::Path, time::Duration};

use indexmap::IndexMap;
use serde_json::Map;

use super::{
    fields::{Fields, duration, entries, items, note, number, text, word},
    network, proxy_config, words,
};
use crate::{
    case::{
        AgentSource, CalicoSpec, ClusterSpec, IpFamily, IptablesVariant, KubeProxySpec, PodOwner,
        ProxyMode,
    },
    diagnostic::{Diagnostic, Gathered},
    felix,
    names::AgentName,
    nearest::nearest,
    version,
    yaml::Node,
};

/// Nodes that a cluster can have. A node is a handful of processes and namespaces: more than this
/// asks for more than one machine.
pub(crate) const NODES: (u64, u64) = (1, 200);

/// Periods that the agents accept and a run can live with.
const PERIOD: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(24 * 3600));

/// Reads `cluster:`. Agents' sources are relative to `folder`. Nodes of a variant without kube-proxy have the scenario's iptables.
pub(super) fn read(
    gathered: &Gathered,
    node: &Node,
    folder: &Path,
    inherited: Option<IptablesVariant>,
) -> Option<ClusterSpec> {
    let fields = Fields::of(gathered, node, "cluster", words::CLUSTER)?;
    let nodes = fields.or("nodes", 1, |node| number(gathered, node, "nodes", NODES));
    let ip_families = fields.or("ip-families", vec![IpFamily::V4], |node| {
        ip_families(gathered, node)
    });
    let own = fields.maybe("iptables", |node| iptables(gathered, node));
    let kube_proxy = fields.maybe("kube-proxy", |node| {
        agent(node, |node| kube_proxy(gathered, node, folder))
    });
    let calico = fields.maybe("calico", |node| {
        agent(node, |node| calico(gathered, node, folder))
    });
    let felix = fields.or("felix", Map::new(), |node| felix_spec(gathered, node));
    let hosts = fields.or("hosts", IndexMap::new(), |node| {
        network::hosts(gathered, node, nodes)
    });
    let sysctls = fields.or("sysctls", BTreeMap::new(), |node| {
        network::sysctls(gathered, node)
    });
    let host_sysctls = fields.or("host-sysctls", BTreeMap::new(), |node| {
        network::host_sysctls(gathered, node)
    });
    let cni = fields.maybe("cni", |node| {
        agent(node, |node| network::cni(gathered, node))
    });
    let (own, kube_proxy, calico) = (own?, kube_proxy?.flatten(), calico?.flatten());
    let kube_proxys = kube_proxy.as_ref().and_then(|(_, iptables)| *iptables);
    if own.is_some() && kube_proxys.is_some() && own != kube_proxys {
        let message = "the nodes and their kube-proxy have the same iptables";
        gathered.add(Diagnostic::new(fields.key("iptables"), message));
    }
    let cni = cni?.flatten();
    has_one_owner(&fields, cni.is_some(), calico.as_ref());
    if calico.is_none() && fields.get("felix").is_some() {
        let message = "there is no Felix without calico";
        note(
            gathered,
            &fields.key("felix"),
            message,
            Some("add `calico: { version: … }`".into()),
        );
    }
    let iptables = own
        .or(kube_proxys)
        .or(inherited)
        .unwrap_or(IptablesVariant::Legacy);
    let kube_proxy = kube_proxy.map(|(spec, _)| KubeProxySpec { iptables, ..spec });
    Some(ClusterSpec {
        ip_families: ip_families?,
        kube_proxy,
        calico,
        felix: felix?,
        hosts: hosts?,
        sysctls: sysctls?,
        host_sysctls: host_sysctls?,
        cni,
        ..ClusterSpec::new(nodes?, iptables)
    })
}

/// One family or both, each once.
fn ip_families(gathered: &Gathered, node: &Node) -> Option<Vec<IpFamily>> {
    let mut families = Vec::new();
    for item in items(gathered, node, "ip-families")? {
        let family = word(gathered, item, "an IP family", &IpFamily::ALL)?;
        if families.contains(&family) {
            let message = format!("{family} is given twice");
            note(gathered, &item.place, message, None);
        } else {
            families.push(family);
        }
    }
    if families.is_empty() {
        let hint = "write ip-families: [IPv4], [IPv6] or [IPv4, IPv6]".to_owned();
        let message = "a cluster has an IP family";
        note(gathered, &node.place, message, Some(hint));
    }
    (!families.is_empty()).then_some(families)
}

/// Pods' interfaces are Calico's or the other CNI's.
fn has_one_owner(fields: &Fields<'_>, has_cni: bool, calico: Option<&CalicoSpec>) {
    if has_cni && calico.is_some_and(|calico| calico.pods == PodOwner::Calico) {
        let message = "Calico owns the pods' interfaces: there is no other CNI";
        let hint = "say whose they are: `calico: { pods: third-party }`";
        note(
            fields.gathered,
            &fields.key("cni"),
            message,
            Some(hint.into()),
        );
    }
}

/// An agent's settings, or `none` where it does not run.
#[expect(clippy::option_option, reason = "none and wrong are different")]
fn agent<T>(node: &Node, read: impl Fn(&Node) -> Option<T>) -> Option<Option<T>> {
    if node.text() == Some("none") {
        return Some(None);
    }
    read(node).map(Some)
}

fn iptables(gathered: &Gathered, node: &Node) -> Option<IptablesVariant> {
    let words = [
        ("legacy", IptablesVariant::Legacy),
        ("nft", IptablesVariant::Nft),
    ];
    word(gathered, node, "iptables", &words)
}

/// kube-proxy's settings, and its iptables where it says one.
fn kube_proxy(
    gathered: &Gathered,
    node: &Node,
    folder: &Path,
) -> Option<(KubeProxySpec, Option<IptablesVariant>)> {
    let fields = Fields::of(gathered, node, "kube-proxy", words::KUBE_PROXY)?;
    let modes = [
        ("iptables", ProxyMode::Iptables),
        ("nftables", ProxyMode::Nftables),
    ];
    let mode = fields.or("mode", ProxyMode::Iptables, |node| {
        word(gathered, node, "mode", &modes)
    });
    let iptables = fields.maybe("iptables", |node| iptables(gathered, node));
    let version = fields.need("version", |node| known(gathered, node, version::kube_proxy));
    let source = fields.or("source", AgentSource::Model, |node| {
        source(gathered, node, AgentName::KubeProxy, folder)
    });
    let period = |name, default| {
        fields.or(name, Duration::from_secs(default), |node| {
            duration(gathered, node, name, PERIOD)
        })
    };
    // kube-proxy's own defaults.
    let (min_sync_period, sync_period) = (period("min-sync-period", 1), period("sync-period", 30));
    let full_sync_period = period("full-sync-period", 3600);
    let config = fields.or("config", Map::new(), |node| {
        proxy_config::read(gathered, node)
    });
    let iptables = iptables?;
    let spec = KubeProxySpec {
        mode: mode?,
        iptables: iptables.unwrap_or(IptablesVariant::Legacy),
        version: version?,
        source: source?,
        min_sync_period: min_sync_period?,
        sync_period: sync_period?,
        full_sync_period: full_sync_period?,
        config: config?,
    };
    if spec.source != AgentSource::Model && fields.get("full-sync-period").is_some() {
        let message = "a real kube-proxy's full-sync-period is an hour, and cannot be set";
        gathered.add(Diagnostic::new(fields.key("full-sync-period"), message));
    }
    if spec.source.has_the_written_version()
        && let Some(message) = spec.unknown_mode()
    {
        gathered.add(Diagnostic::new(fields.key("mode"), message));
    }
    if spec.min_sync_period > spec.sync_period {
        let message = "min-sync-period is longer than sync-period: kube-proxy refuses to start";
        gathered.add(Diagnostic::new(fields.key("min-sync-period"), message));
    }
    Some((spec, iptables))
}

fn calico(gathered: &Gathered, node: &Node, folder: &Path) -> Option<CalicoSpec> {
    let fields = Fields::of(gathered, node, "calico", words::CALICO)?;
    let version = fields.need("version", |node| known(gathered, node, version::calico));
    let owners = [
        ("calico", PodOwner::Calico),
        ("third-party", PodOwner::ThirdParty),
    ];
    let source = fields.or("source", AgentSource::Model, |node| {
        source(gathered, node, AgentName::Felix, folder)
    });
    let pods = fields.or("pods", PodOwner::Calico, |node| {
        word(gathered, node, "pods", &owners)
    });
    Some(CalicoSpec {
        version: version?,
        source: source?,
        pods: pods?,
    })
}

/// Who stands for an agent. Whether anything is at the path is not looked at: it may be another
/// machine's.
fn source(
    gathered: &Gathered,
    node: &Node,
    agent: AgentName,
    folder: &Path,
) -> Option<AgentSource> {
    let written = text(gathered, node, "an agent's source")?;
    AgentSource::parse(agent, written, folder)
        .map_err(|message| note(gathered, &node.place, message, None))
        .ok()
}

fn known(
    gathered: &Gathered,
    node: &Node,
    check: impl Fn(&str) -> Result<(), String>,
) -> Option<String> {
    let written = text(gathered, node, "version")?;
    check(written)
        .map_err(|message| note(gathered, &node.place, message, None))
        .ok()?;
    Some(written.to_owned())
}

/// FelixConfiguration's `spec`. Values are Felix's to judge; names are checked, because Felix ignores
/// one that it does not know and the scenario would prove nothing.
pub(super) fn felix_spec(
    gathered: &Gathered,
    node: &Node,
) -> Option<Map<String, serde_json::Value>> {
    let entries = entries(gathered, node, "felix")?;
    for (field, entry) in entries {
        if felix::FIELDS.binary_search(&field.as_str()).is_err() {
            let message = format!("FelixConfiguration has no field {field:?}");
            let meant = nearest(field, felix::FIELDS.iter().copied());
            let hint = meant.map(|name| format!("did you mean {name:?}?"));
            note(gathered, &entry.key, message, hint);
        }
    }
    Some(
        entries
            .iter()
            .map(|(field, entry)| (field.clone(), entry.node.to_json()))
            .collect(),
    )
}
