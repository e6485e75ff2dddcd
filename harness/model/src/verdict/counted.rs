//! What was seen of a counter.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::case::Limits;

/// How much a counter rose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Counted {
    /// Which, as [`crate::case::Counter`]'s `Display` prints it.
    pub counter: String,
    /// How much was promised.
    pub limits: Limits,
    /// By how much it rose in each place.
    pub places: IndexMap<String, u64>,
    /// A rule that counts was rewritten meanwhile: it may have been more.
    pub rewritten: bool,
}

impl Counted {
    /// By how much it rose in all places.
    pub fn total(&self) -> u64 {
        self.places.values().sum()
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            counter, limits, ..
        } = self;
        let least = if self.rewritten { "at least " } else { "" };
        write!(
            f,
            "{counter} rose by {least}{} (promised: {limits})",
            self.total()
        )?;
        if self.places.len() > 1 {
            let places: Vec<String> = self
                .places
                .iter()
                .map(|(at, n)| format!("{at} {n}"))
                .collect();
            write!(f, ": {}", places.join(", "))?;
        }
        Ok(())
    }
}
