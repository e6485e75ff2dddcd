//! What becomes of a sequence that a pair lives through.

use std::{collections::BTreeSet, fmt};

/// What became of a sequence.
#[derive(Debug)]
pub(crate) struct Life {
    /// None when both ended every round alike and said the same.
    pub(crate) difference: Option<Difference>,
    /// What kinds of line each side said.
    pub(crate) kinds: [BTreeSet<String>; 2],
    /// Whether they parted and the left one had said that its node has no zone.
    pub(crate) without_zone: bool,
}

/// Where the two parted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// Rules differ after that round.
    Rules { round: usize, what: Vec<String> },
    /// Only kinds of log lines do, over the whole life.
    Logs { what: Vec<String> },
}

impl Difference {
    /// Whether shrinking may go from one to the other: another kind of line is another difference.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rules { .. }, Self::Rules { .. }) => true,
            (Self::Logs { what: these }, Self::Logs { what: those }) => {
                those.first().is_some_and(|first| these.contains(first))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Rules { round, what } => {
                writeln!(f, "they part after round {round}:")?;
                what
            }
            Self::Logs { what } => {
                writeln!(f, "their logs differ in kinds of lines:")?;
                what
            }
        };
        what.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// A sequence that cannot be lived through: the API refuses an object, or a world died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble(pub(crate) String);
