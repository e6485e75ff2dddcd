//! What a scenario does to a cluster: faults, which last and are undone, and actions of third parties,
//! which are done once and stay.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use chainbreak_probe::wire::craft::Segment;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{ApiWay, ClusterSpec, Destination, Origin, REBOOT};
use crate::names::{AgentName, NodeName, TrafficName};

/// What is done. Where a node or a place may be given, `None` is every node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Fault {
    /// An agent's command starts later than the agent wants.
    Slow {
        /// Whose command.
        agent: AgentName,
        /// The command's name: `iptables-restore` is that of both iptables backends.
        command: String,
        /// How much later each of them starts.
        by: Duration,
    },
    /// Kernel settings of a network namespace, `net.…`, have these values.
    Sysctl {
        /// Where.
        at: Option<Origin>,
        /// Name, with dots, to value.
        set: IndexMap<String, String>,
    },
    /// The conntrack table holds that many more established TCP connections, which nobody has.
    FillConntrack {
        /// Where.
        node: Option<NodeName>,
        /// How many.
        entries: Entries,
    },
    /// An interface is down.
    LinkDown {
        /// Where.
        at: Origin,
        /// Its name.
        interface: String,
    },
    /// An interface sends packets of so many bytes at most.
    Mtu {
        /// Where.
        at: Origin,
        /// Its name.
        interface: String,
        /// How many, with the header of IP.
        bytes: u32,
    },
    /// A share of the packets that arrive somewhere is lost there.
    Loss {
        /// Where.
        at: Origin,
        /// 0–100 (percent).
        share: f64,
    },
    /// Packets to somewhere take this way.
    Route {
        /// Where they are sent or forwarded.
        at: Origin,
        /// `default`, an address or a CIDR.
        to: String,
        /// The next hop; on the interface's own network when it is not given.
        via: Option<IpAddr>,
        /// The interface; where the next hop is when it is not given.
        dev: Option<String>,
    },
    /// Somebody holds the lock that all legacy iptables take.
    Lock {
        /// Where.
        node: Option<NodeName>,
    },
    /// An agent's process is gone, or it does nothing (SIGSTOP).
    Agent {
        /// Which.
        agent: AgentName,
        /// Where.
        node: Option<NodeName>,
        /// What is done to it.
        what: AgentFault,
    },
    /// A node's agents end, its kernel loses what it holds, and agents begin again when the fault is undone.
    Reboot {
        /// Where.
        node: Option<NodeName>,
        /// Who begins again, in that order; all, in an order that is drawn, when nobody is named.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        begin: Vec<AgentName>,
    },
    /// Agents are replaced by other versions of them, one after the other, node by node. What they have written stays.
    Upgrade {
        /// Which, and by which version.
        to: IndexMap<AgentName, String>,
        /// Where.
        node: Option<NodeName>,
        /// Kubernetes itself is upgraded, of which kube-proxy is a part: each node is drained and gets that version by kubeadm, where
        /// the backend has such nodes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        kubernetes: bool,
    },
    /// Felix is told to program with other means, on every node; it restarts for that.
    Switch {
        /// With which.
        dataplane: Dataplane,
    },
    /// Segments that nobody sent pass among those of some traffic.
    Craft(Craft),
    /// A third party's commands.
    Run(Run),
    /// A third party deletes every rule of a chain or of a whole table.
    Flush {
        /// Where.
        node: Option<NodeName>,
        /// Which.
        rules: TableRef,
        /// Only this chain.
        chain: Option<String>,
    },
    /// A third party deletes rules.
    DeleteRule {
        /// Where.
        node: Option<NodeName>,
        /// Whose.
        rules: TableRef,
        /// The chain that holds them.
        chain: String,
        /// A regular expression that finds them, as the iptables backend prints them.
        matches: String,
    },
}

impl Fault {
    /// The word that a timeline has for it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Slow { .. } => "slow",
            Self::Sysctl { .. } => "sysctl",
            Self::FillConntrack { .. } => "fill-conntrack",
            Self::LinkDown { .. } => "link-down",
            Self::Mtu { .. } => "mtu",
            Self::Loss { .. } => "loss",
            Self::Route { .. } => "route",
            Self::Lock { .. } => "lock",
            Self::Agent { what, .. } => match what {
                AgentFault::Stop => "stop",
                AgentFault::Pause => "pause",
                AgentFault::Restart => "restart",
                AgentFault::Recreate { .. } => "recreate",
            },
            Self::Reboot { .. } => REBOOT,
            Self::Upgrade { .. } => "upgrade",
            Self::Switch { .. } => "switch",
            Self::Craft(_) => "craft",
            Self::Run(_) => "run",
            Self::Flush { .. } => "flush",
            Self::DeleteRule { .. } => "delete-rule",
        }
    }

    /// Whether it is there until somebody undoes it: what third parties do, restarts and upgrades are done once.
    pub fn lasts(&self) -> bool {
        match self {
            Self::Slow { .. }
            | Self::Sysctl { .. }
            | Self::FillConntrack { .. }
            | Self::LinkDown { .. }
            | Self::Mtu { .. }
            | Self::Loss { .. }
            | Self::Route { .. }
            | Self::Lock { .. }
            | Self::Reboot { .. }
            | Self::Craft(_) => true,
            Self::Agent { what, .. } => *what != AgentFault::Restart,
            Self::Upgrade { .. }
            | Self::Switch { .. }
            | Self::Run(_)
            | Self::Flush { .. }
            | Self::DeleteRule { .. } => false,
        }
    }
}

impl Fault {
    /// What it does to others than the case's own namespaces, where it does. What is done in a pod's own network is the
    /// pod's affair.
    pub(crate) fn disruption(&self) -> Option<&'static str> {
        let in_pod = |at: &Origin| matches!(at, Origin::Pod { .. });
        match self {
            Self::Sysctl { at: Some(at), .. } if in_pod(at) => None,
            Self::Run(run) if run.at.as_ref().is_some_and(in_pod) => None,
            Self::Loss { at, .. }
            | Self::LinkDown { at, .. }
            | Self::Mtu { at, .. }
            | Self::Route { at, .. }
                if in_pod(at) =>
            {
                None
            }
            Self::Agent { .. } => Some("stops an agent"),
            Self::Reboot { .. } => Some("reboots nodes"),
            Self::Upgrade {
                kubernetes: true, ..
            } => Some("upgrades nodes"),
            Self::Upgrade { .. } => Some("upgrades an agent"),
            Self::Switch { .. } => Some("switches Felix's dataplane"),
            Self::Slow { .. } => Some("slows an agent's commands"),
            Self::Sysctl { .. } => Some("changes kernel settings of nodes"),
            Self::FillConntrack { .. } => Some("fills nodes' conntrack tables"),
            Self::Lock { .. } => Some("holds nodes' iptables lock"),
            Self::Craft(_) => Some("sends crafted segments from nodes"),
            Self::Run(_) => Some("runs a third party's commands on nodes"),
            Self::Flush { .. } | Self::DeleteRule { .. } => Some("deletes rules of nodes"),
            Self::Loss { .. } | Self::LinkDown { .. } | Self::Mtu { .. } | Self::Route { .. } => {
                Some("changes nodes' links and routes")
            }
        }
    }
}

/// How many entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entries {
    /// So many.
    Number(u32),
    /// As many as fit in.
    Full,
}

/// What is done to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentFault {
    /// Its process ends; undone, it is started.
    Stop,
    /// It does nothing until it may go on.
    Pause,
    /// Its process ends and is started at once.
    Restart,
    /// Its pod is deleted; undone, it has another one.
    Recreate {
        /// How it reaches the API from then on, on whichever node it gets a new pod.
        api: Option<ApiWay>,
    },
}

impl AgentFault {
    /// Whether there is no process until somebody starts it.
    pub fn ends(self) -> bool {
        matches!(self, Self::Stop | Self::Recreate { .. })
    }
}

/// What Felix programs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dataplane {
    /// Rules of iptables.
    Iptables,
    /// eBPF programs: FelixConfiguration's `bpfEnabled`.
    Bpf,
}

impl Dataplane {
    /// As scenarios write them.
    pub const ALL: [(&'static str, Self); 2] = [("iptables", Self::Iptables), ("bpf", Self::Bpf)];
    /// The field of FelixConfiguration that chooses.
    pub const FIELD: &'static str = "bpfEnabled";

    /// Reads what a scenario writes.
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(known, _)| *known == word);
        found
            .map(|(_, dataplane)| *dataplane)
            .ok_or_else(|| format!("dataplane is iptables or bpf, not {word:?}"))
    }

    /// With which Felix begins; `None` where there is no Calico.
    pub fn of(cluster: &ClusterSpec) -> Option<Self> {
        cluster.calico.as_ref()?;
        Some(Self::said(cluster).unwrap_or(Self::Iptables))
    }

    /// Has Felix begin with it, unless FelixConfiguration says itself with which.
    pub(crate) fn choose(self, cluster: &mut ClusterSpec) {
        if cluster.calico.is_some() && Self::said(cluster).is_none() {
            let bpf = self == Self::Bpf;
            Arc::make_mut(&mut cluster.felix).insert(Self::FIELD.to_owned(), bpf.into());
        }
    }

    fn said(cluster: &ClusterSpec) -> Option<Self> {
        let bpf = cluster.felix.get(Self::FIELD)?.as_bool()?;
        Some(if bpf { Self::Bpf } else { Self::Iptables })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Bpf => "bpf",
        }
    }
}

impl fmt::Display for Dataplane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Segments that nobody sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Craft {
    /// The traffic into whose connections they are sent.
    pub traffic: TrafficName,
    /// Where its requests go.
    pub to: Destination,
    /// The port of that.
    pub port: u16,
    /// What is sent.
    pub segment: Segment,
    /// Where they are sent; without it from the backends' pods, a stray handshake from their nodes.
    pub from: Option<Origin>,
    /// Distance of two turns; in each, every live connection gets its segments.
    pub every: Duration,
}

/// A third party's commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Run {
    /// Where.
    pub at: Option<Origin>,
    /// Who does this, as reports say.
    pub who: String,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// A table of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TableRef {
    /// Who keeps it; `None` is the node's own iptables.
    pub backend: Option<RuleBackend>,
    /// Of which packets.
    pub family: Family,
    /// Its name.
    pub table: String,
}

/// Which of the kernel's rule sets, and through which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleBackend {
    /// `iptables-legacy`.
    Legacy,
    /// `iptables-nft`.
    Nft,
    /// Native tables, through `nft`.
    Nftables,
}

/// Of which packets a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    #[default]
    Ip,
    /// IPv6.
    Ip6,
    /// Both, with nftables.
    Inet,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
        })
    }
}
