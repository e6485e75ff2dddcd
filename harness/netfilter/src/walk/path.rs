//! What a walk comes to: its ways with their shares, and what happened on each.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::packet::{Packet, Tracking};
use crate::{conntrack::Flow, counters::Site, owner::Owner};

/// Every way that a packet can take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Walk {
    /// The packet as it came.
    pub packet: Packet,
    /// Its ways, those of one choice beside each other. Shares of ways that assume the same add up to 1.
    pub paths: Vec<Path>,
    /// There are more ways than are told ([`MOST_PATHS`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// How many ways of one packet are told at most.
pub const MOST_PATHS: usize = 4096;

/// One way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Path {
    /// How probable it is among those that assume the same, 0 to 1.
    pub share: f64,
    /// In order.
    pub steps: Vec<Step>,
    /// The packet as it was at the end. A source port or an identifier that the kernel draws by chance is 0.
    pub packet: Packet,
    /// The connection as conntrack keeps it afterwards; none where it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
    /// How it ended.
    pub end: End,
}

/// How a way ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum End {
    /// A program on the node gets it.
    Delivered,
    /// It leaves the node.
    Sent {
        /// By this interface; none where no routes are known.
        interface: Option<String>,
        /// To this gateway; none where the destination itself is next.
        via: Option<IpAddr>,
    },
    /// A rule or a policy drops it.
    Dropped,
    /// A rule rejects it.
    Rejected {
        /// What the sender is told: `icmp-port-unreachable`, `tcp-reset`.
        with: String,
    },
    /// The kernel drops it without a rule.
    Refused {
        /// Why.
        why: String,
    },
    /// What becomes of it is not known here.
    Undecided {
        /// Why.
        why: String,
    },
}

impl End {
    /// Whether it goes on to somebody.
    pub fn arrives(&self) -> bool {
        matches!(self, Self::Delivered | Self::Sent { .. })
    }
}

/// Something that happened on the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// A hook of netfilter was entered: `prerouting`, by `eth0`.
    Hook {
        /// Which one.
        hook: Hook,
        /// The packet as it was.
        packet: Packet,
    },
    /// A rule matched.
    Rule {
        /// Where it stands; the rule is [`crate::Rule::text`].
        site: Site,
        /// Which one of its chain, from 1.
        number: usize,
        /// What it did.
        effect: Effect,
    },
    /// No rule of a base chain decided.
    Policy {
        /// The table.
        table: String,
        /// The chain.
        chain: String,
        /// Whether it drops.
        drops: bool,
    },
    /// Conntrack looked at it.
    Tracked {
        /// What it made of it.
        tracking: Tracking,
        /// Why.
        why: String,
    },
    /// Addresses were changed as the connection's entry says.
    Translated {
        /// Before.
        from: Packet,
        /// After.
        to: Packet,
    },
    /// Felix's eBPF programs led it to a Service's endpoint, or to nobody.
    Programs {
        /// Where, in words.
        what: String,
    },
    /// A route was chosen.
    Routed {
        /// What was found, in words.
        what: String,
    },
    /// Chance decided.
    Chance {
        /// How probable what follows is, 0 to 1.
        share: f64,
        /// Of what: the rule's text.
        what: String,
    },
    /// It is not known what happens, and what follows assumes something.
    Assumed {
        /// What cannot be told.
        question: String,
        /// What is assumed.
        answer: String,
    },
}

/// A hook of netfilter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Whatever is received.
    Prerouting,
    /// What is for the node.
    Input,
    /// What goes through the node.
    Forward,
    /// What is made on the node.
    Output,
    /// Whatever leaves.
    Postrouting,
}

impl Hook {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Prerouting,
        Self::Input,
        Self::Forward,
        Self::Output,
        Self::Postrouting,
    ];

    /// As nft names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }

    /// A hook by the name that nft (`prerouting`) or iptables (`PREROUTING`) has for it.
    pub fn parse(name: &str) -> Option<Self> {
        let is = |hook: &Self| hook.as_str().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(is)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a rule that matched did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Effect {
    /// It has no target, or one that only tells somebody.
    Counted,
    /// To this chain, and back.
    Jump(String),
    /// To this chain, and not back.
    Goto(String),
    /// Back to where the chain was called.
    Return,
    /// The table is done with it.
    Accept,
    /// It ends.
    Drop,
    /// It ends, and the sender is told so.
    Reject(String),
    /// The packet's mark, or (`ct`) its connection's, is this now.
    Mark {
        /// Whether it is the connection's.
        of_connection: bool,
        /// The mark.
        mark: u32,
    },
    /// Conntrack does not look at it.
    Untrack,
    /// The destination is this now.
    Dnat(IpAddr, u16),
    /// The source is this now. Port 0 is one that the kernel draws; no address, one of the output interface that is
    /// not known here.
    Snat(Option<IpAddr>, u16),
    /// Addresses stay, as the entry for this direction was made already.
    Unchanged,
    /// What it does is not known here.
    Unknown,
}

impl Step {
    /// Whose rule it is; none for a step that is no rule's.
    pub fn owner(&self) -> Option<Owner> {
        match self {
            Self::Rule { site, .. } => Some(site.owner()),
            _ => None,
        }
    }
}

impl Path {
    /// The rule or policy that ended it; none where no rule did.
    pub fn decided(&self) -> Option<&Step> {
        if !matches!(self.end, End::Dropped | End::Rejected { .. }) {
            return None;
        }
        self.steps.last()
    }

    /// The rules that matched, in order.
    pub fn rules(&self) -> impl Iterator<Item = (&Site, usize, &Effect)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Rule {
                site,
                number,
                effect,
            } => Some((site, *number, effect)),
            _ => None,
        })
    }

    /// What it assumes, question and answer.
    pub fn assumes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Assumed { question, answer } => Some((question.as_str(), answer.as_str())),
            _ => None,
        })
    }
}

impl Walk {
    /// Whether what becomes of the packet depends on nothing that is not known here.
    pub fn decided(&self) -> bool {
        let open = |path: &Path| {
            path.assumes().next().is_some() || matches!(path.end, End::Undecided { .. })
        };
        !self.more && !self.paths.iter().any(open)
    }
}
