//! What was seen of logs, of rules and of answers.

use std::{fmt, net::IpAddr};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::Span;
use crate::{
    case::Ports,
    names::{AgentName, NodeName, TrafficName},
};

/// Log entries that match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Entries {
    /// Whose log.
    pub agent: AgentName,
    /// How many entries match.
    pub count: u64,
    /// How many of them on each node that had any.
    pub nodes: IndexMap<NodeName, u64>,
    /// The first of them.
    pub first: Option<FirstEntry>,
}

/// The first log entry that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FirstEntry {
    /// When it was written, in microseconds since the case began.
    pub at_us: u64,
    /// Where.
    pub node: NodeName,
    /// The whole entry.
    pub text: String,
}

/// When a rule, a chain or an element was not as promised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Presence {
    /// What was looked for, as the query's `Display` prints it.
    pub rule: String,
    /// It was promised not to be there.
    pub forbidden: bool,
    /// The only node that was asked, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// When it was absent (forbidden: when it was there), node by node, in the order of time; a node where
    /// all was as promised has none.
    pub wrong: IndexMap<NodeName, Vec<Span>>,
}

impl Presence {
    /// The first such time and its node.
    pub fn first(&self) -> Option<(&NodeName, Span)> {
        let firsts = self
            .wrong
            .iter()
            .filter_map(|(node, spans)| Some((node, *spans.first()?)));
        firsts.min_by_key(|(_, span)| span.from_us)
    }

    /// `absent`, or `present` where it was forbidden.
    pub fn word(&self) -> &'static str {
        if self.forbidden { "present" } else { "absent" }
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = &self.first else {
            return write!(f, "no entry of {}'s log matches", self.agent);
        };
        let noun = if self.count == 1 { "entry" } else { "entries" };
        write!(
            f,
            "{} {noun} of {}'s log, the first on {} at {:.2} s",
            self.count,
            self.agent,
            first.node,
            first.at_us as f64 / 1e6
        )
    }
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, wrong, .. } = self;
        let Some((node, span)) = self.first() else {
            let there = if self.forbidden {
                "was not there"
            } else {
                "was there"
            };
            let place = match (&self.node, self.forbidden) {
                (Some(node), _) => node.as_str(),
                (None, true) => "any node",
                (None, false) => "every node",
            };
            return write!(f, "{rule} {there} on {place}");
        };
        let times: usize = wrong.values().map(Vec::len).sum();
        write!(f, "{rule} {} on {node} for {span}", self.word())?;
        if times > 1 {
            let nodes = wrong.len();
            let plural = if nodes == 1 { "" } else { "s" };
            write!(f, "; {times} times on {nodes} node{plural} in all")?;
        }
        Ok(())
    }
}

/// Which client addresses a server saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sources {
    /// Which traffic.
    pub traffic: TrafficName,
    /// What was promised, in words.
    pub promised: String,
    /// How many requests came from each address, the most frequent first.
    pub seen: IndexMap<IpAddr, u64>,
    /// How many came from an address that was not promised.
    pub wrong: u64,
    /// The first of these: when it was due, and its address.
    pub first_wrong: Option<(u64, IpAddr)>,
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answered: u64 = self.seen.values().sum();
        match &self.first_wrong {
            None => write!(
                f,
                "the server saw {} in all {answered} answers",
                self.promised
            )?,
            Some((at_us, address)) => {
                let at = *at_us as f64 / 1e6;
                let Self {
                    promised, wrong, ..
                } = self;
                write!(
                    f,
                    "the server saw another address than {promised} in {wrong} of {answered} answers, "
                )?;
                write!(f, "the first at {at:.2} s: {address}")?;
            }
        }
        let seen: Vec<String> = self
            .seen
            .iter()
            .take(4)
            .map(|(ip, n)| format!("{ip} × {n}"))
            .collect();
        write!(f, " (seen: {})", seen.join(", "))
    }
}

/// Which client ports a server saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PortsSeen {
    /// Which traffic.
    pub traffic: TrafficName,
    /// What was promised.
    pub promised: Ports,
    /// How many answers there were.
    pub answered: u64,
    /// How many different ports.
    pub different: u64,
    /// The lowest and the highest.
    pub seen: Ports,
    /// How many answers went to a port that was not promised.
    pub wrong: u64,
}

impl fmt::Display for PortsSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            promised,
            answered,
            different,
            seen,
            wrong,
            ..
        } = self;
        write!(
            f,
            "the server saw ports {seen} (promised: {promised}), {different} different ones in "
        )?;
        write!(f, "{answered} answers, {wrong} outside")
    }
}

/// How requests were spread over endpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Spread {
    /// Which traffic.
    pub traffic: TrafficName,
    /// Over how many endpoints it was promised to be.
    pub over: u16,
    /// How many requests each endpoint answered, the most first.
    pub backends: IndexMap<String, u64>,
    /// Pearson's χ² against an even spread over the promised number.
    pub chi_squared: f64,
    /// How probable one at least as uneven is, when each request is as likely to go to any.
    pub p: f64,
    /// The least probability that was promised.
    pub p_at_least: f64,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            over,
            chi_squared,
            p,
            p_at_least,
            ..
        } = self;
        let counts: Vec<String> = self.backends.values().map(u64::to_string).collect();
        let seen = self.backends.len();
        write!(
            f,
            "{} answers from {seen} of {over} endpoints, ",
            counts.join(" + ")
        )?;
        write!(
            f,
            "χ² {chi_squared:.2}, p {} (promised: at least {p_at_least})",
            Probability(*p)
        )
    }
}

/// A probability with the digits that a person reads.
struct Probability(f64);

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            p if p < 1e-9 => f.write_str("below 1e-9"),
            p if p < 0.001 => write!(f, "{p:.1e}"),
            p => write!(f, "{p:.3}"),
        }
    }
}
