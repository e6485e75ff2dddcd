//! What a case is judged by.

mod subject;

use std::{borrow::Cow, fmt, time::Duration};

use chainbreak_netfilter::names::{PortName, ServiceChain};
use serde::{Deserialize, Serialize};

use super::{
    Family, Origin, RuleBackend,
    address::{Network, Ports},
};
use crate::names::{AgentName, MarkName, NodeName, TrafficName};

pub(crate) use subject::OfFamily;

/// One health criterion over the run, or over a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// What is promised.
    #[serde(flatten)]
    pub claim: Claim,
    /// When it is judged.
    #[serde(flatten)]
    pub window: Window,
}

impl Promise {
    /// The mark with which its time begins; none when that is the beginning of the judged time.
    pub fn begins(&self) -> Option<&MarkName> {
        match &self.claim {
            Claim::Recovers { after, .. } => Some(after),
            _ => self.window.from.as_ref(),
        }
    }
}

/// The part of the judged time that a promise is about: from one mark of the timeline to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Window {
    /// It begins with the judged time unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<MarkName>,
    /// It ends with the judged time unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<MarkName>,
}

/// What is promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Claim {
    /// Requests are answered.
    Available {
        /// Which traffic.
        traffic: TrafficName,
        /// Least share of answered requests, 0–100 (percent).
        at_least: f64,
        /// Longest allowed time without an answer to any request sent.
        longest_gap: Option<Duration>,
    },
    /// No log entry matches.
    NoLog {
        /// Whose log.
        agent: AgentName,
        /// A regular expression.
        matches: String,
    },
    /// Some log entry matches.
    HasLog {
        /// Whose log.
        agent: AgentName,
        /// A regular expression.
        matches: String,
    },
    /// A rule or a chain is there, or is not.
    HasRule {
        /// Which rule.
        rule: RuleQuery,
        /// Whether it is to be there or not, when and where.
        #[serde(flatten)]
        presence: Presence,
    },
    /// An element of a set or map of nftables is there, or is not.
    HasElement {
        /// Which element.
        element: ElementQuery,
        /// Whether it is to be there or not, when and where.
        #[serde(flatten)]
        presence: Presence,
    },
    /// A counter of the kernel rises by so much.
    Counter {
        /// Which counter.
        counter: Counter,
        /// Whose; every node's without it, taken together.
        at: Option<Origin>,
        /// How much.
        limits: Limits,
    },
    /// The server sees this client address in every request that it answers.
    Source {
        /// Which traffic.
        traffic: TrafficName,
        /// Which address.
        is: SourceAddress,
    },
    /// The server sees a client port within these in every request that it answers.
    SourcePorts {
        /// Which traffic.
        traffic: TrafficName,
        /// Which ports.
        within: Ports,
    },
    /// Requests are spread evenly over the endpoints, as far as chance allows.
    Balance {
        /// Which traffic.
        traffic: TrafficName,
        /// How many endpoints there are.
        over: u16,
        /// Least probability that an even spread looks as uneven as this (Pearson's chi-squared test).
        p_at_least: f64,
    },
    /// So many connections are reset.
    Resets {
        /// Which traffic.
        traffic: TrafficName,
        /// How many.
        limits: Limits,
    },
    /// No request is answered.
    Unreachable {
        /// Which traffic.
        traffic: TrafficName,
    },
    /// Some time after a mark, every request is answered.
    Recovers {
        /// Which traffic.
        traffic: TrafficName,
        /// The mark.
        after: MarkName,
        /// The time.
        within: Duration,
    },
}

/// Whether something is to be there, when, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Presence {
    /// At all times; else at the end.
    pub always: bool,
    /// It is not to be there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// On this node; else on every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
}

/// Bounds of a number. At least one of them is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Limits {
    /// The least allowed.
    pub at_least: Option<u64>,
    /// The most allowed.
    pub at_most: Option<u64>,
}

impl Limits {
    /// Whether the number is allowed.
    pub fn allow(self, number: u64) -> bool {
        self.at_least.is_none_or(|least| number >= least)
            && self.at_most.is_none_or(|most| number <= most)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) if least == most => write!(f, "exactly {least}"),
            (Some(least), Some(most)) => write!(f, "{least} to {most}"),
            (Some(least), None) => write!(f, "at least {least}"),
            (None, Some(0)) => f.write_str("none"),
            (None, Some(most)) => write!(f, "at most {most}"),
            (None, None) => f.write_str("any"),
        }
    }
}

/// A rule in a node's tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleQuery {
    /// `nat`, `filter`, …; of nftables any, as `kube-proxy`.
    pub table: String,
    /// The chain that holds it.
    pub chain: RuleChain,
    /// Its target.
    pub jump: Option<String>,
    /// A regular expression for its text, as `iptables-save` prints it after `-A CHAIN`, or `nft list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// Which protocol's.
    #[serde(default)]
    pub family: Family,
    /// Through which iptables backend; the node's own iptables without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<RuleBackend>,
}

impl RuleQuery {
    /// What the chain is called in the tables that are asked.
    pub fn chain_name(&self) -> Cow<'_, str> {
        match &self.chain {
            RuleChain::Named(name) => Cow::Borrowed(name.as_str()),
            RuleChain::OfService { which, of } => Cow::Owned(match self.backend {
                Some(RuleBackend::Nftables) => of.nftables_chain(*which),
                Some(RuleBackend::Legacy | RuleBackend::Nft) | None => of.iptables_chain(*which),
            }),
        }
    }
}

impl fmt::Display for RuleQuery {
    /// `nat PREROUTING → KUBE-SERVICES`; two queries that differ look different.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.chain_name())?;
        self.jump
            .iter()
            .try_for_each(|jump| write!(f, " → {jump}"))?;
        self.matches
            .iter()
            .try_for_each(|text| write!(f, " /{text}/"))?;
        through(f, self.family, self.backend)
    }
}

/// The chain that a query is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RuleChain {
    /// As it is written.
    Named(String),
    /// kube-proxy's for a service's port. Its name has a hash of the namespace, which is another one where a case is in
    /// namespaces of its run: it is computed from what is here whenever somebody asks for it.
    OfService {
        /// Which of the port's chains.
        which: ServiceChain,
        /// The port.
        of: PortName,
    },
}

impl Default for RuleChain {
    fn default() -> Self {
        Self::Named(String::new())
    }
}

/// What differs from a node's own iptables: ` (IPv6, legacy)`.
fn through(
    f: &mut fmt::Formatter<'_>,
    family: Family,
    backend: Option<RuleBackend>,
) -> fmt::Result {
    let backend = backend.map(|backend| match backend {
        RuleBackend::Legacy => "legacy",
        RuleBackend::Nft => "nft",
        RuleBackend::Nftables => "nftables",
    });
    let family = (family != Family::Ip).then(|| family.to_string());
    let words: Vec<&str> = family.as_deref().into_iter().chain(backend).collect();
    if words.is_empty() {
        return Ok(());
    }
    write!(f, " ({})", words.join(", "))
}

/// An element of a set or map of nftables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ElementQuery {
    /// `kube-proxy`.
    pub table: String,
    /// The set or map.
    pub set: String,
    /// As `nft list` prints it, or of a map its key alone: `10.96.0.10 . tcp . 80`.
    pub element: String,
    /// Which protocol's table.
    pub family: Family,
}

impl fmt::Display for ElementQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {{ {} }}", self.table, self.set, self.element)?;
        through(f, self.family, None)
    }
}

/// A counter of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counter {
    /// Of `conntrack -S`, summed over the processors: `drop`, `early_drop`, `insert_failed`, `invalid`.
    Conntrack(String),
    /// Of `/proc/net/snmp`, `netstat` and `snmp6`: `Tcp.OutRsts`, `TcpExt.TCPTimeouts`, `Ip6OutNoRoutes`.
    Snmp(String),
    /// Packets of the rules that match.
    Rule(RuleQuery),
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conntrack(name) => write!(f, "conntrack {name}"),
            Self::Snmp(name) => f.write_str(name),
            Self::Rule(rule) => write!(f, "packets of {rule}"),
        }
    }
}

/// A client address that a server may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceAddress {
    /// The client's own.
    Client,
    /// Any of that node's or off-cluster host's.
    Of(Origin),
    /// Any of that network's.
    Network(Network),
}

impl fmt::Display for SourceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the client's own"),
            Self::Of(place) => write!(f, "one of {place}'s"),
            Self::Network(network) => network.fmt(f),
        }
    }
}
