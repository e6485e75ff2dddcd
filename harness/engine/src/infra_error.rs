//! What the engine could not do.

use std::fmt;

/// The world failed, not the product.
#[derive(Debug, Clone, thiserror::Error)]
#[error("could not {doing}: {why}")]
pub(crate) struct InfraError {
    doing: String,
    why: String,
}

impl InfraError {
    pub(crate) fn new(doing: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            doing: doing.into(),
            why: why.to_string(),
        }
    }

    /// The same with evidence on lines below.
    pub(crate) fn with(self, evidence: &str) -> Self {
        let why = format!("{}\n{}", self.why, evidence.trim_end());
        let why = why.trim_end().to_owned();
        Self { why, ..self }
    }
}
