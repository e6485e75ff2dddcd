//! What observers were asked about, as the history names it.

use std::collections::BTreeMap;

use crate::{
    case::{Case, Query},
    names::QueryId,
};

/// A query that a promise is judged by.
#[derive(Debug)]
pub struct Asked {
    id: Option<QueryId>,
    /// Older histories name it by them. No id is like them: a promise's name has neither blanks nor capitals.
    pub(super) words: String,
}

impl Asked {
    /// As a case asks it.
    pub fn new(case: &Case, query: Query<'_>) -> Self {
        Self {
            id: case.query_id(query),
            words: query.to_string(),
        }
    }

    /// Whether the history means this one.
    pub fn is(&self, named: &QueryId) -> bool {
        self.id.as_ref() == Some(named) || self.words == named.as_str()
    }

    /// What is said of it there.
    pub(super) fn among<'a, T>(&self, all: &'a BTreeMap<QueryId, T>) -> Option<&'a T> {
        let mut all = all.iter();
        all.find_map(|(named, what)| self.is(named).then_some(what))
    }
}
