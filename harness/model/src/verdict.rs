//! What a case came to: for each promise kept, broken or unknown, with the evidence; for the case,
//! whether that is what its scenario expects.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::names::{AgentName, NodeName, PromiseName, TrafficName};

/// What a case came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Verdict {
    /// What is said of the case as a whole.
    pub case: CaseVerdict,
    /// What is said of each promise, in the scenario's order.
    pub promises: IndexMap<PromiseName, Judged>,
    /// What failed in the world; not empty means inconclusive.
    pub trouble: Vec<String>,
    /// The time that was judged; `None` when the case did not get that far.
    pub window: Option<Span>,
}

/// What is said of a case as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseVerdict {
    /// Every promise came out as the scenario expects.
    AsExpected,
    /// Some promise did not: broken where it should be kept, or kept where the incident should show.
    NotAsExpected,
    /// The world failed, not the product; or some promise could not be judged.
    Inconclusive,
}

impl fmt::Display for CaseVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AsExpected => "as expected",
            Self::NotAsExpected => "not as expected",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// One promise, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Judged {
    /// What it came to.
    pub verdict: PromiseVerdict,
    /// What the scenario expects.
    pub expected: Expected,
}

impl Judged {
    /// Whether it came out as expected; an unknown one did not.
    pub fn is_as_expected(&self) -> bool {
        match self.verdict {
            PromiseVerdict::Kept(_) => self.expected == Expected::Kept,
            PromiseVerdict::Broken(_) => self.expected == Expected::Broken,
            PromiseVerdict::Unknown { .. } => false,
        }
    }
}

/// What the scenario expects of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// To be kept.
    Kept,
    /// To be broken.
    Broken,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kept => "kept",
            Self::Broken => "broken",
        })
    }
}

/// What a promise came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromiseVerdict {
    /// It held, and this is what was seen.
    Kept(Evidence),
    /// It did not, and this is what was seen.
    Broken(Evidence),
    /// What was seen does not decide it.
    Unknown {
        /// Why not.
        cause: String,
    },
}

impl PromiseVerdict {
    /// What was seen; nothing when it could not be judged.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Kept(evidence) | Self::Broken(evidence) => Some(evidence),
            Self::Unknown { .. } => None,
        }
    }

    /// `kept`, `broken` or `unknown`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Kept(_) => "kept",
            Self::Broken(_) => "broken",
            Self::Unknown { .. } => "unknown",
        }
    }
}

impl fmt::Display for PromiseVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(evidence) | Self::Broken(evidence) => {
                write!(f, "{}: {evidence}", self.word())
            }
            Self::Unknown { cause } => write!(f, "unknown: {cause}"),
        }
    }
}

/// What was seen of a promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Of `available`.
    Requests(Requests),
    /// Of `no-log` and `has-log`.
    Log(Entries),
    /// Of `has-rule`.
    Rule(Presence),
}

/// A stretch of a case's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Span {
    /// Its beginning, in microseconds since the case began.
    pub from_us: u64,
    /// Its end.
    pub to_us: u64,
}

impl Span {
    /// How long it is, in microseconds.
    pub fn len_us(self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }

    /// Whether the moment lies in it; the beginning does, the end does not.
    pub fn contains(self, at_us: u64) -> bool {
        (self.from_us..self.to_us).contains(&at_us)
    }

    /// The part of it that lies in the other as well; `None` when that is empty.
    pub fn within(self, other: Self) -> Option<Self> {
        let span = Self {
            from_us: self.from_us.max(other.from_us),
            to_us: self.to_us.min(other.to_us),
        };
        (span.from_us < span.to_us).then_some(span)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} s from {:.2} s",
            Seconds(self.len_us()),
            self.from_us as f64 / 1e6
        )
    }
}

/// Seconds with the digits that a person reads: `3.2`, `0.054`.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 as f64 / 1e6;
        let digits = if self.0 < 1_000_000 { 3 } else { 1 };
        write!(f, "{seconds:.digits$}")
    }
}

/// How requests ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Requests {
    /// Which traffic.
    pub traffic: TrafficName,
    /// How many were due in the judged time.
    pub sent: u64,
    /// How many of them were answered.
    pub answered: u64,
    /// How many ended how, by [`chainbreak_probe::wire::Outcome::word`].
    pub outcomes: IndexMap<String, u64>,
    /// The longest stretch in which every request due was unanswered: from the first of them to the
    /// next answered one, or to the end of the judged time. `None` when every request was answered.
    pub longest_gap: Option<Span>,
    /// How many such stretches there were.
    pub gaps: u64,
}

impl Requests {
    /// The share of answered requests in percent; 0 when none was sent.
    pub fn percent(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        self.answered as f64 * 100.0 / self.sent as f64
    }
}

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

/// When a rule was not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Presence {
    /// The rule, as [`crate::case::RuleQuery`]'s `Display` prints it.
    pub rule: String,
    /// When it was absent, node by node, in the order of time; a node that always had it has none.
    pub absent: IndexMap<NodeName, Vec<Span>>,
}

impl Presence {
    /// The first absence and its node.
    pub fn first(&self) -> Option<(&NodeName, Span)> {
        let firsts = self
            .absent
            .iter()
            .filter_map(|(node, spans)| Some((node, *spans.first()?)));
        firsts.min_by_key(|(_, span)| span.from_us)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(requests) => requests.fmt(f),
            Self::Log(entries) => entries.fmt(f),
            Self::Rule(presence) => presence.fmt(f),
        }
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded down: 100.00 % is said only of traffic that lost nothing.
        let percent = (self.percent() * 100.0).floor() / 100.0;
        write!(
            f,
            "{percent:.2} % answered ({} of {})",
            self.answered, self.sent
        )?;
        self.longest_gap
            .iter()
            .try_for_each(|gap| write!(f, ", longest gap {gap}"))
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
        let Some((node, span)) = self.first() else {
            return write!(f, "{} was there on every node", self.rule);
        };
        let times: usize = self.absent.values().map(Vec::len).sum();
        write!(f, "{} absent on {node} for {span}", self.rule)?;
        if times > 1 {
            let nodes = self.absent.len();
            write!(
                f,
                "; {times} times on {nodes} node{} in all",
                if nodes == 1 { "" } else { "s" }
            )?;
        }
        Ok(())
    }
}
