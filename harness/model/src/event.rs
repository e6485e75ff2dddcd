//! The history of a case: an append-only list of timestamped events, the only thing judged and
//! reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use chainbreak_probe::wire::Sample;
use serde::{Deserialize, Serialize};

use crate::{
    case::Origin,
    names::{AgentName, MarkName, NodeName, QueryId, TrafficName},
};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Event {
    /// Microseconds since the case began.
    pub at_us: u64,
    /// What happened.
    pub what: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The case went on to its next part.
    Phase(Phase),
    /// A fact about the world for the report's head: `("kube-proxy", "model 1.32 (no binary given)")`.
    Fact {
        /// What it is about.
        name: String,
        /// What is so.
        value: String,
    },
    /// A step of the timeline begins. Older histories do not say so.
    StepBegan {
        /// Its number in the case's timeline, from 0.
        step: usize,
    },
    /// It is over: a fault is undone, time has passed, objects are written. One that failed has no end.
    StepEnded {
        /// Its number.
        step: usize,
    },
    /// A step of the timeline, or the world, did something: "scale test/nginx to 3".
    Step {
        /// What was done.
        text: String,
    },
    /// The timeline passed a mark: promises may be judged from here on, or up to here.
    Mark {
        /// As the step `mark:` calls it; each comes once.
        name: MarkName,
    },
    /// A netfilter command ended. `at_us` is its end.
    Command(Command),
    /// An agent wrote a log entry (klog's multi-line entries joined by newlines).
    Log(LogEntry),
    /// A request came to its end. `at_us` is when it was due.
    Sample {
        /// Which traffic.
        traffic: TrafficName,
        /// The request.
        sample: Sample,
    },
    /// The rules of a node, as a promise asked for them, changed, or were seen first.
    Rules(RulesSeen),
    /// Packets ended in rules that drop or reject.
    Drops(DropsSeen),
    /// Counters of a place, as promises asked for them, rose, or were read first. What they count begins
    /// somewhere: only differences say something.
    Counters {
        /// Where.
        at: Origin,
        /// By query.
        values: BTreeMap<QueryId, u64>,
        /// Of packets of rules: how often a rule that had counted was seen to begin again. What it counted
        /// just before is missing.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        rewritten: BTreeMap<QueryId, u64>,
        /// Of packets of rules: what was there instead, where no rule that counts matched.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        unmatched: BTreeMap<QueryId, String>,
    },
    /// The addresses of a place, as promises asked for them, when the timeline began.
    Addresses {
        /// Where.
        at: Origin,
        /// All of them but the loopback's.
        addresses: Vec<IpAddr>,
    },
    /// Where the requests of a traffic go, said before the first. Older histories do not say so.
    Aimed {
        /// Which traffic.
        traffic: TrafficName,
        /// The address that is asked: a Service's, a pod's, a host's or a node's.
        at: SocketAddr,
        /// The address that they come from, where the kernel of the place has a route there. Older histories do not say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<IpAddr>,
    },
    /// What a node routes by, before the timeline and after it: addresses, routes of all tables, rules and settings, as `ip` and
    /// `sysctl` print them. Older histories do not say so.
    Network {
        /// Which node.
        node: NodeName,
        /// What they print, one after the other.
        text: String,
    },
    /// From here on the history says what was watched ([`EventKind::Watched`]): what it does not say so of was not. Older
    /// histories lack it, and say nothing about that.
    Watching {
        /// How long something may be there without being looked at, in microseconds: a shorter gap is none.
        within_us: u64,
        /// The same of pods and hosts, where no backend records who writes. Older histories held them to the other bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unrecorded_us: Option<u64>,
    },
    /// Something was watched without a gap.
    Watched(Watched),
    /// The endpoints of a Service that traffic goes to changed, or were seen first. Older histories tell it where Felix was to translate by its own
    /// map alone.
    Endpoints {
        /// `namespace/name`.
        service: String,
        /// The addresses that are ready; nothing where they are not known from here on, because the API could not be asked.
        ready: Option<BTreeSet<String>>,
        /// Those that end and serve still: kube-proxy leads to them where none is ready (1.26 and later). Older histories do not say so.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        draining: BTreeSet<String>,
    },
    /// Where a real Felix's eBPF programs led requests to a Service that traffic goes to, as a look at their map of a node showed. Older histories
    /// do not say so; of a model's programs the commands say it.
    NatMap {
        /// Whose map.
        node: NodeName,
        /// `namespace/name`.
        service: String,
        /// The addresses of its backends; nothing where the look did not show all of them.
        backends: Option<BTreeSet<String>>,
    },
    /// A moment went by before all observers had looked.
    Unanswered {
        /// The moment.
        moment: String,
        /// How many did not look, of how many.
        silent: usize,
        /// Of how many.
        observers: usize,
        /// How long they had, in microseconds.
        waited_us: u64,
    },
    /// Something of the case had work to do, and the machine no processor for it, or its hypervisor none for the machine. Older histories do not say so.
    Starved(Starved),
    /// An API request that the server did not know, with who asked.
    UnknownRequest {
        /// Method, path and user agent.
        text: String,
        /// How often it came, where that is told at the end. Older histories have it in the text: `…, 3 times`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        times: Option<u64>,
    },
    /// The world failed, not the product: the case becomes inconclusive.
    Trouble {
        /// What failed, as the person needs it.
        text: String,
    },
}

/// For how long something was watched without a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Watched {
    /// What was watched.
    pub target: WatchTarget,
    /// From when on, in microseconds since the case began.
    pub from_us: u64,
    /// Until when.
    pub to_us: u64,
    /// Why it was not watched after that, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// A time in which a process or thread of the case, or the virtual processor on which it is, was kept waiting for a processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Starved {
    /// What waited longest at once.
    pub who: String,
    /// From when on, in microseconds since the case began.
    pub from_us: u64,
    /// Until when.
    pub to_us: u64,
    /// How much of that time was waiting, of one after the other where several waited.
    pub waited_us: u64,
    /// How much of it, had those that waited a processor: little work waited long, or much work had its share of a busy machine. Runs of before
    /// do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_us: Option<u64>,
}

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WatchTarget {
    /// Rules, elements and counters of a place.
    Rules {
        /// Where.
        at: Origin,
    },
    /// An agent's log.
    Log {
        /// Which agent.
        agent: AgentName,
        /// Of which node.
        node: NodeName,
    },
    /// The requests of a traffic.
    Requests {
        /// Which traffic.
        traffic: TrafficName,
    },
}

impl fmt::Display for WatchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules { at } => write!(f, "rules and counters of {at}"),
            Self::Log { agent, node } => write!(f, "log of {agent} on {node}"),
            Self::Requests { traffic } => write!(f, "requests of {traffic}"),
        }
    }
}

/// Parts of a case, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The cluster is being raised and the manifests applied.
    Raising,
    /// All pods answer and all agents have synced. Traffic starts.
    Ready,
    /// The timeline begins: promises are judged from here on.
    Judging,
    /// The timeline is over: promises are judged up to here.
    Judged,
    /// Nothing more is judged. Said only where something hangs on the verdict: whether the cluster is kept, or maps of eBPF programs are.
    Held,
    /// The cluster is kept for a person who looks at it.
    Kept,
    /// Everything was taken down.
    #[serde(rename = "razed")]
    Destroyed,
}

/// A netfilter command of an agent, as the recorder saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Command {
    /// Who ran it: an agent's name, or a pod's for a script.
    pub who: String,
    /// Where.
    pub node: NodeName,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// What it was given on standard input.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    /// Exit code; 128 + n for signal n.
    pub exit: i32,
    /// What it wrote on standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// How long it ran, in microseconds.
    pub took_us: u64,
    /// Tables of iptables that its input names, where it was given that line long before it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<Named>,
}

/// A line of an input that names a table (`*nat`). Legacy iptables reads the table then, and puts back what it has read at the `COMMIT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Named {
    /// Which table.
    pub table: String,
    /// How long before its end the command was given the line, in microseconds.
    pub before_us: u64,
}

/// An entry of an agent's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LogEntry {
    /// Whose log.
    pub agent: AgentName,
    /// On which node.
    pub node: NodeName,
    /// The whole entry.
    pub text: String,
}

/// Whether a rule that a promise asks for was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RulesSeen {
    /// Where.
    pub node: NodeName,
    /// Which rule, chain or element was asked for.
    pub query: QueryId,
    /// How many rules (or chains) match.
    pub count: usize,
}

/// Packets that ended in rules of a node since it was looked at before. At least: what a rule counted before
/// it was rewritten is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DropsSeen {
    /// Where.
    pub node: NodeName,
    /// What listed the rules: `iptables` is the node's own iptables backend, `iptables-legacy` or `iptables-nft` the
    /// other one, then `ip6tables`, `nft`, and `conntrack` for what ends without a rule.
    pub front: String,
    /// Each rule in which some ended.
    pub grown: Vec<Dropped>,
}

/// Packets that ended in one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Dropped {
    /// Whose rule: `kube-proxy`, `kubelet`, `felix`, `kernel`, `other`.
    pub owner: String,
    /// Its table; an nft table with its family, `inet mine`.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its text, or `policy DROP` for the chain's policy.
    pub rule: String,
    /// How many packets.
    pub packets: u64,
    /// How many bytes.
    pub bytes: u64,
}
