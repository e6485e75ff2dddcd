//! Names of things, each its own type so that a pod's name cannot stand where a node's is wanted.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::agent::AgentName;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name!(
    /// A node of the cluster, `n1`, `n2`, ….
    NodeName
);
name!(
    /// A scenario's `name:`.
    ScenarioName
);
name!(
    /// A key of `variants:`.
    VariantName
);
name!(
    /// A key of `traffic:`.
    TrafficName
);
name!(
    /// What a step `mark:` calls its moment.
    MarkName
);
name!(
    /// A key of `promises:`.
    PromiseName
);
name!(
    /// What a history calls a query, [`crate::case::Case::query_id`]. Older ones call it by its words.
    QueryId
);

impl MarkName {
    /// The mark at the end of the step that is called so; the one at its beginning has the step's name. Nobody can
    /// write it.
    #[must_use]
    pub fn over(&self) -> Self {
        Self(format!("{self}.over"))
    }

    /// The step at whose end this mark is.
    pub fn of_over(&self) -> Option<Self> {
        self.0.strip_suffix(".over").map(Self::from)
    }
}
