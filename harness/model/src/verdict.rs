//! What a case came to: for each promise kept, broken or unknown, with the evidence; for the case,
//! whether that is what its scenario expects.

mod counted;
mod requests;
mod seen;

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::names::PromiseName;
pub use counted::Counted;
pub use requests::{Recovery, Requests, Resets};
pub use seen::{Entries, FirstEntry, PortsSeen, Presence, Sources, Spread};

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
    /// Every promise came out as the scenario expects, because of whom it says.
    AsExpected,
    /// Some promise did not: broken where it should be kept, or kept where the incident should show, or broken because of others.
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
    /// Of `has-rule` and `has-element`.
    Rule(Presence),
    /// Of `counter`.
    Counter(Counted),
    /// Of `source`.
    Sources(Sources),
    /// Of `source-ports`.
    Ports(PortsSeen),
    /// Of `balance`.
    Balance(Spread),
    /// Of `resets`.
    Resets(Resets),
    /// Of `recovers`.
    Recovery(Recovery),
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(requests) => requests.fmt(f),
            Self::Log(entries) => entries.fmt(f),
            Self::Rule(presence) => presence.fmt(f),
            Self::Counter(counted) => counted.fmt(f),
            Self::Sources(sources) => sources.fmt(f),
            Self::Ports(ports) => ports.fmt(f),
            Self::Balance(spread) => spread.fmt(f),
            Self::Resets(resets) => resets.fmt(f),
            Self::Recovery(recovery) => recovery.fmt(f),
        }
    }
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
