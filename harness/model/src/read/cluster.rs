//! `cluster:`.

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    fields::{Fields, duration, items, note, number, text, word},
    network, proxy_config,
    words::{IPTABLES, KUBE_PROXY_VERSION},
};
use crate::{
    case::{
        AgentSource, CalicoSpec, ClusterSpec, IpFamily, IptablesVariant, KubeProxySpec, PodOwner,
        ProxyMode,
    },
    diagnostic::{Diagnostic, Gathered},
    language::{Field, Kind, Mapping, default, needed, optional, words},
    names::AgentName,
    version,
    yaml::Node,
};

pub(super) mod calico;

/// Nodes that a cluster can have. A node is a handful of processes and namespaces: more than this
/// asks for more than one machine.
const NODES: (u64, u64) = (1, 200);

/// Periods that the agents accept and a run can live with.
const PERIOD: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(24 * 3600));

pub(super) static CLUSTER: Mapping = Mapping {
    called: "cluster",
    doc: "",
    fields: &[
        &[
            default(
                "nodes",
                Kind::Whole(NODES.0, NODES.1),
                "1",
                "How many nodes: `n1`, `n2`, ….",
            ),
            optional(
                "ip-families",
                Kind::Set(&Kind::Word(|| words(&IpFamily::ALL)), 2),
                "`[IPv4]` (when not given), `[IPv6]` or both; the first is the one of Services that name none.",
            ),
            optional(
                "iptables",
                Kind::Word(|| words(&IPTABLES)),
                "Which iptables every node has; kube-proxy's when not given, else `legacy`.",
            ),
        ],
        &AGENTS,
        &[
            optional(
                "hosts",
                network::HOSTS,
                "Hosts outside the cluster, on the nodes' network.",
            ),
            optional(
                "sysctls",
                Kind::Settings(network::SETTING),
                "Kernel settings of every node, set before agents start: only `net.…`, as net.netfilter.nf_conntrack_tcp_be_liberal. One that the kernel does not have, or not in a namespace, is inconclusive.",
            ),
            optional(
                "host-sysctls",
                Kind::Fields(&network::HOST_SYSCTLS),
                "Kernel settings of the machine while the case runs; needs the capability `host-sysctl`, and so `--allow-host-changes`.",
            ),
            optional(
                "cni",
                Kind::OrNone(&Kind::Fields(&network::CNI)),
                "What the CNI does that owns the pods' interfaces; nothing without it, or with `none`.",
            ),
        ],
    ],
};

/// The agents, as a cluster and a variant have them.
pub(super) static AGENTS: [Field; 3] = [
    optional(
        "kube-proxy",
        KUBE_PROXY_OR_NONE,
        "kube-proxy's settings; without them, or with `none`, there is none.",
    ),
    optional(
        "calico",
        CALICO_OR_NONE,
        "Calico's settings; without them, or with `none`, there is none.",
    ),
    optional(
        "felix",
        Kind::Felix,
        "The spec of FelixConfiguration `default`, as Calico documents it.",
    ),
];

pub(super) const KUBE_PROXY_OR_NONE: Kind = Kind::OrNone(&Kind::Fields(&KUBE_PROXY));
pub(super) const CALICO_OR_NONE: Kind = Kind::OrNone(&Kind::Fields(&calico::CALICO));

static KUBE_PROXY: Mapping = Mapping {
    called: "kube-proxy",
    doc: "",
    fields: &[&[
        default(
            "mode",
            Kind::Word(|| words(&ProxyMode::ALL)),
            "iptables",
            "What it programs services with; `nftables` from 1.31 on, `ipvs` on real clusters whose nodes' kernel has it.",
        ),
        optional(
            "iptables",
            Kind::Word(|| words(&IPTABLES)),
            "Which iptables every node has, the same as the cluster's `iptables`.",
        ),
        needed(
            "version",
            KUBE_PROXY_VERSION,
            "Its version, 1.20 and later; without a patch the newest one that `clusters/versions.yaml` pins.",
        ),
        SOURCE,
        default(
            "min-sync-period",
            Kind::Time,
            "1s",
            "`--iptables-min-sync-period`, in nftables mode too.",
        ),
        default(
            "sync-period",
            Kind::Time,
            "30s",
            "`--iptables-sync-period`, in nftables mode too.",
        ),
        default(
            "full-sync-period",
            Kind::Time,
            "1h",
            "The model's: the age of the last full sync at which 1.33 and later make another; a real one has an hour.",
        ),
        optional(
            "config",
            Kind::ProxyConfig,
            "Further settings, as KubeProxyConfiguration (v1alpha1) has them.",
        ),
    ]],
};

const SOURCE: Field = default(
    "source",
    Kind::Text,
    "model",
    "`model`, or the real one: `build` (kube-proxy: of upstream's modules), `image` (of the version), `image:NAME`, or the path of a binary or of an image's unpacked root file system.",
);

/// Reads `cluster:`. Agents' sources are relative to `folder`. Nodes of a variant without kube-proxy have the scenario's iptables.
pub(super) fn read(
    gathered: &Gathered,
    node: &Node,
    folder: &Path,
    inherited: Option<IptablesVariant>,
) -> Option<ClusterSpec> {
    let fields = Fields::of(gathered, node, &CLUSTER)?;
    let nodes = fields.or_default("nodes", |node| number(gathered, node, "nodes", NODES));
    let ip_families = fields.maybe("ip-families", |node| ip_families(gathered, node));
    let own = fields.maybe("iptables", |node| iptables(gathered, node));
    let kube_proxy = fields.maybe("kube-proxy", |node| {
        agent(node, |node| kube_proxy(gathered, node, folder))
    });
    let calico = fields.maybe("calico", |node| {
        agent(node, |node| calico::read(gathered, node, folder))
    });
    let felix = fields.or_empty("felix", |node| calico::felix_spec(gathered, node));
    let hosts = fields.or_empty("hosts", |node| network::hosts(gathered, node, nodes));
    let sysctls = fields.or_empty("sysctls", |node| network::sysctls(gathered, node));
    let host_sysctls =
        fields.or_empty("host-sysctls", |node| network::host_sysctls(gathered, node));
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
        ip_families: ip_families?.unwrap_or_else(|| vec![IpFamily::V4]),
        kube_proxy,
        calico,
        felix: Arc::new(felix?),
        hosts: Arc::new(hosts?),
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
    word(gathered, node, "iptables", &IPTABLES)
}

/// kube-proxy's settings, and its iptables where it says one.
fn kube_proxy(
    gathered: &Gathered,
    node: &Node,
    folder: &Path,
) -> Option<(KubeProxySpec, Option<IptablesVariant>)> {
    let fields = Fields::of(gathered, node, &KUBE_PROXY)?;
    let mode = fields.or_default("mode", |node| word(gathered, node, "mode", &ProxyMode::ALL));
    let iptables = fields.maybe("iptables", |node| iptables(gathered, node));
    let version = fields.need("version", |node| known(gathered, node, version::kube_proxy));
    let source = fields.or_default("source", |node| {
        source(gathered, node, AgentName::KubeProxy, folder)
    });
    // Their defaults are kube-proxy's own.
    let period = |name| fields.or_default(name, |node| duration(gathered, node, name, PERIOD));
    let (min_sync_period, sync_period) = (period("min-sync-period"), period("sync-period"));
    let full_sync_period = period("full-sync-period");
    let config = fields.or_empty("config", |node| proxy_config::read(gathered, node));
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
