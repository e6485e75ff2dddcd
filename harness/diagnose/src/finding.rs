//! Something that does not fit together.

use chainbreak_model::case::Symptom;
use serde::Serialize;

use crate::reproduction::Made;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Requests are lost by it, where nobody else leads them.
    Breaks,
    /// It is not as it should be; whether anybody feels it depends on more than was attached.
    Odd,
}

impl Weight {
    /// It breaks something where that is so.
    pub(crate) fn where_so(breaks: bool) -> Self {
        if breaks { Self::Breaks } else { Self::Odd }
    }
}

/// Something that does not fit together, as one line and what it stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Finding {
    /// What kind of thing it is, for scripts.
    pub kind: Symptom,
    /// How bad it is.
    pub weight: Weight,
    /// What is found, and what follows.
    pub what: String,
    /// What it stands on, a line each.
    pub evidence: Vec<String>,
    /// What mends it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mends: Option<String>,
    /// How a scenario brings it about, where one does.
    #[serde(skip)]
    pub(crate) made: Option<Made>,
}

/// What an agent logged that nothing follows from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Complaint {
    /// Whose it is, or what it means.
    pub what: String,
    /// Entries, a line of each kind.
    pub lines: Vec<String>,
    /// What mends it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mends: Option<String>,
}

impl From<Finding> for Complaint {
    fn from(finding: Finding) -> Self {
        Self {
            what: finding.what,
            lines: finding.evidence,
            mends: finding.mends,
        }
    }
}

impl Finding {
    pub(crate) fn breaks(kind: Symptom, what: impl Into<String>) -> Self {
        Self::new(kind, Weight::Breaks, what)
    }

    pub(crate) fn odd(kind: Symptom, what: impl Into<String>) -> Self {
        Self::new(kind, Weight::Odd, what)
    }

    pub(crate) fn new(kind: Symptom, weight: Weight, what: impl Into<String>) -> Self {
        Self {
            kind,
            weight,
            what: what.into(),
            evidence: Vec::new(),
            mends: None,
            made: None,
        }
    }

    pub(crate) fn on(mut self, evidence: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    pub(crate) fn made_by(mut self, made: impl Into<Option<Made>>) -> Self {
        self.made = made.into();
        self
    }

    pub(crate) fn mended_by(mut self, what: impl Into<String>) -> Self {
        self.mends = Some(what.into());
        self
    }
}
