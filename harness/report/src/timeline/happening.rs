//! What an entry of the story is about, and its words.

use std::fmt;

use chainbreak_model::names::MarkName;
use serde::Serialize;

use crate::{
    deeds::Deeds,
    log_finding::LogFinding,
    text::{count, length},
};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Happening {
    /// The world failed. What that rests on is not part of the story.
    Trouble(String),
    /// A moment went by before all observers had looked.
    Unanswered {
        /// The moment.
        moment: String,
        /// How many did not look.
        silent: usize,
        /// Of how many.
        observers: usize,
        /// How long they had.
        waited_us: u64,
    },
    /// The judged time begins.
    JudgingBegins,
    /// It ends.
    JudgingEnds,
    /// A step of the scenario's timeline, as it says itself.
    Step(String),
    /// The step of that name is over.
    StepOver(MarkName),
    /// The timeline passed a mark.
    Mark(MarkName),
    /// Commands took away what belongs to another agent.
    Cut(Deeds),
    /// Restores failed.
    Failed(FailedRestore),
    /// An agent logged a warning or worse.
    Logged {
        /// The first one.
        finding: LogFinding,
        /// How many more belong to it.
        more: usize,
    },
    /// Commands changed rules.
    Wrote {
        /// What they come to.
        deeds: Deeds,
        /// Whether they are a full sync.
        full_sync: bool,
    },
    /// Requests are not answered any more.
    GapBegan {
        /// What is lost, where nothing is answered up to the end.
        to_the_end: Option<Loss>,
    },
    /// Requests are answered again.
    GapEnded(Loss),
}

/// Restores of one agent that failed one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FailedRestore {
    /// Of the first one.
    pub program: String,
    /// How many failed.
    pub times: usize,
    /// The exit code of the first one.
    pub exit: i32,
    /// What it says itself.
    pub why: String,
    /// The chain that it misses, where it names one.
    pub missing: Option<String>,
}

/// What a gap cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Loss {
    /// How long it lasted.
    pub lasted_us: u64,
    /// How many requests were lost.
    pub lost: usize,
}

/// The kinds of happenings, in the order in which those of the same time are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The world failed.
    Trouble,
    /// The judged time begins or ends.
    Phase,
    /// A step of the scenario's timeline.
    Step,
    /// A command took away what belongs to another agent.
    Cut,
    /// A restore failed.
    Failed,
    /// An agent logged a warning or worse.
    Log,
    /// A command changed rules.
    Wrote,
    /// Requests are not answered any more.
    GapBegan,
    /// Requests are answered again.
    GapEnded,
}

impl Happening {
    /// Of which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Trouble(_) | Self::Unanswered { .. } => Kind::Trouble,
            Self::JudgingBegins | Self::JudgingEnds => Kind::Phase,
            Self::Step(_) | Self::StepOver(_) | Self::Mark(_) => Kind::Step,
            Self::Cut(_) => Kind::Cut,
            Self::Failed(_) => Kind::Failed,
            Self::Logged { .. } => Kind::Log,
            Self::Wrote { .. } => Kind::Wrote,
            Self::GapBegan { .. } => Kind::GapBegan,
            Self::GapEnded(_) => Kind::GapEnded,
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trouble(text) | Self::Step(text) => f.write_str(text),
            Self::Unanswered {
                moment,
                silent,
                observers,
                waited_us,
            } => {
                let waited = length(*waited_us);
                write!(
                    f,
                    "{silent} of {observers} observers had not looked {waited} later: {moment}"
                )
            }
            Self::JudgingBegins => f.write_str("judging begins"),
            Self::JudgingEnds => f.write_str("judging ends"),
            Self::StepOver(step) => write!(f, "{step} is over"),
            Self::Mark(name) => write!(f, "mark {name}"),
            Self::Cut(deeds) => deeds.fmt(f),
            Self::Failed(failed) => failed.fmt(f),
            Self::Logged { finding, more: 0 } => write!(f, "logs: {finding}"),
            Self::Logged { finding, more } => write!(f, "logs: {finding} (and {more} more)"),
            Self::Wrote { deeds, full_sync } => {
                let full = if *full_sync { "full sync: " } else { "" };
                write!(f, "{full}{deeds}")
            }
            Self::GapBegan { to_the_end: None } => f.write_str("no answers any more"),
            Self::GapBegan {
                to_the_end: Some(loss),
            } => write!(f, "no answers any more, to the end: {loss}"),
            Self::GapEnded(loss) => write!(f, "answers again after {loss}"),
        }
    }
}

impl fmt::Display for FailedRestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            times,
            exit,
            why,
            ..
        } = self;
        write!(f, "{program} failed")?;
        if *times > 1 {
            write!(f, " {times} times")?;
        }
        write!(f, " (exit {exit}): {why}")
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = count(self.lost, "request");
        write!(f, "{}, {lost} lost", length(self.lasted_us))
    }
}
