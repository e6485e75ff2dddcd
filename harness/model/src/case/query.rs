//! What promises ask observers about, and its id in the history.

use std::fmt;

use super::{Case, Claim, Counter, ElementQuery, Promise, RuleQuery};
use crate::names::QueryId;

/// What a promise asks observers about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query<'a> {
    /// A rule or a chain.
    Rule(&'a RuleQuery),
    /// An element of a set or map.
    Element(&'a ElementQuery),
    /// A counter.
    Counter(&'a Counter),
}

impl fmt::Display for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Element(element) => element.fmt(f),
            Self::Counter(counter) => counter.fmt(f),
        }
    }
}

impl Claim {
    /// What it asks observers about, if anything.
    pub fn query(&self) -> Option<Query<'_>> {
        match self {
            Self::HasRule { rule, .. } => Some(Query::Rule(rule)),
            Self::HasElement { element, .. } => Some(Query::Element(element)),
            Self::Counter { counter, .. } => Some(Query::Counter(counter)),
            Self::Available { .. }
            | Self::NoLog { .. }
            | Self::HasLog { .. }
            | Self::Source { .. }
            | Self::SourcePorts { .. }
            | Self::Balance { .. }
            | Self::Resets { .. }
            | Self::Unreachable { .. }
            | Self::Recovers { .. } => None,
        }
    }
}

impl Case {
    /// The id of a query in the case's history: the name of the first promise that asks it. It stays what it is, however
    /// the query is put into words. `None` when no promise asks it.
    pub fn query_id(&self, query: Query<'_>) -> Option<QueryId> {
        let asks = |promise: &Promise| promise.claim.query() == Some(query);
        let (name, _) = self.promises.iter().find(|(_, promise)| asks(promise))?;
        Some(QueryId::from(name.as_str()))
    }
}
