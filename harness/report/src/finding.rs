//! What is found of a promise, as values: what was seen, who did it, what put it right. `words` says it.

use chainbreak_model::{
    case::Destination,
    names::NodeName,
    verdict::{Entries, Evidence, Presence, Requests, Span},
};
use serde::Serialize;

use crate::{
    astray::Astray,
    attribution::{Cause, Heal},
    gaps::Gap,
    log_finding::LogFinding,
    programs::Programs,
    ruled::Ruled,
    standing::Standing,
    undone::Undone,
    unwritten::Unwritten,
    walked::Turned,
};

pub use crate::{done::Done, meanwhile::Dropped};

/// What is found of a promise.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// It could not be judged.
    Unknown {
        /// Why not.
        cause: String,
    },
    /// It was kept, and this is what was seen.
    Kept(Evidence),
    /// Requests were not answered that should be, or the other way round.
    Lost(Box<Lost>),
    /// An agent logged what it should not, or did not what it should.
    Logged(Box<Logged>),
    /// A rule, a chain or an element was not as promised.
    Rule(Box<RuleFound>),
    /// The server saw another source than the client's, requests were spread unevenly, or a host was not asked, by rules.
    Ruled {
        /// What was seen.
        evidence: Evidence,
        /// The rules behind it.
        by: Box<Ruled>,
    },
    /// It was broken, and what was seen is all there is to say.
    Broken(Evidence),
}

/// Requests that were lost.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lost {
    /// How requests ended.
    pub requests: Requests,
    /// When and where they were lost; nothing where none was.
    pub outage: Option<Outage>,
}

/// When, where and because of whom requests were lost.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Outage {
    /// Where the requests went.
    pub to: Destination,
    /// The node whose rules decide over them, where it is known.
    pub node: Option<NodeName>,
    /// The longest time without an answer.
    pub longest: Span,
    /// Whether nothing was answered before it.
    pub from_the_first: bool,
    /// Whether that is what there is to tell; else requests were lost one here, one there.
    pub in_one: bool,
    /// The command that began the longest gap, where it was not the programs.
    pub cause: Option<Cause>,
    /// What Felix's programs did to its requests.
    pub programs: Option<Box<Programs>>,
    /// The command that turned its requests off their way, where neither of these says why, or only that kube-proxy did.
    pub turned: Option<Turned>,
    /// Where no command is named and nothing was answered before: what was there all the time.
    pub standing: Option<Standing>,
    /// What was done just before, where no command is named, or that of an agent; where requests were lost one here, one there, before the
    /// first of them.
    pub done: Option<Done>,
    /// Who put back an old copy of a table meanwhile, of what no command explains.
    pub undone: Option<Undone>,
    /// Where rules led requests that were lost, where nobody else is found behind that.
    pub astray: Option<Astray>,
    /// Where packets ended meanwhile, of what no command explains.
    pub dropped: Option<Dropped>,
    /// Who answered last before it, where conntrack may lead the client's port there still.
    pub answered_last: Option<String>,
    /// How many gaps there were.
    pub gaps: usize,
    /// How long all of them were together.
    pub gaps_us: u64,
    /// The longest ones, the longest first.
    pub told: Vec<ExplainedGap>,
}

/// A gap, who cut and who healed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExplainedGap {
    /// When.
    pub gap: Gap,
    /// Whether nothing was answered before it.
    pub from_the_first: bool,
    /// The command that began it, where it was not the programs.
    pub cause: Option<Cause>,
    /// What Felix's programs did to its requests.
    pub programs: Option<Box<Programs>>,
    /// The command that turned its requests off their way, in place of these. Looked for of the longest one.
    pub turned: Option<Turned>,
    /// The command that ended it.
    pub heal: Option<Heal>,
}

/// Log entries that should not be there, or the lack of some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Logged {
    /// Those that match.
    pub entries: Entries,
    /// What the first of them finds wrong, where it is a warning or worse.
    pub finding: Option<LogFinding>,
    /// The command that deleted the chain that it misses.
    pub cause: Option<Cause>,
}

/// When a rule, a chain or an element was not as promised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleFound {
    /// All such times.
    pub presence: Presence,
    /// What began the first of them.
    pub cause: Option<Cause>,
    /// Whether it was never seen to be otherwise before.
    pub from_the_first: bool,
    /// Who made the chain that it was to lead to, where nobody ever wrote it.
    pub unwritten: Option<Unwritten>,
    /// The first nodes, in the order of [`RuleFound::presence`], with the first times on each.
    pub told: Vec<Vec<ExplainedTime>>,
}

/// When a rule was not as promised, and because of whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExplainedTime {
    /// When.
    pub span: Span,
    /// The command that began it.
    pub cause: Option<Cause>,
}
