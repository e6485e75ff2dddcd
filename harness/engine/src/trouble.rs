//! What the engine could not do.

use std::fmt;

/// The world failed, not the product.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing}: {why}")]
pub(crate) struct Trouble {
    doing: String,
    why: String,
}

impl Trouble {
    pub(crate) fn new(doing: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            doing: doing.into(),
            why: why.to_string(),
        }
    }
}
