//! What stands around the verdicts: who played the agents, and what they asked the API in vain.

use std::collections::BTreeSet;

use chainbreak_model::{
    event::{Event, EventKind},
    names::AgentName,
};
use indexmap::IndexMap;

use crate::{
    summary::Summary,
    text::{count, one_line},
};

/// More unknown requests than these are one missing part that is asked for again and again.
const UNKNOWN: usize = 8;

/// What the cases of a run say of that, gathered one after the other.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Facts, and in how many cases.
    facts: IndexMap<(String, String), usize>,
    unknown: BTreeSet<String>,
}

impl Head {
    pub(crate) fn add(&mut self, summary: &Summary) {
        for fact in &summary.facts {
            *self.facts.entry(fact.clone()).or_default() += 1;
        }
        self.unknown.extend(summary.unknown.iter().cloned());
    }

    /// Who played the agents, a line for each of them: source, version and hash as the history has them, and
    /// in how many cases where that differs.
    pub(crate) fn played(&self) -> Vec<String> {
        let mut players = Vec::new();
        for agent in AgentName::ALL {
            let of_agent = |((name, _), _): &(&(String, String), &usize)| {
                let rest = name.strip_prefix(agent.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let mut told: Vec<_> = self.facts.iter().filter(of_agent).collect();
            told.sort_by(|((one, _), _), ((other, _), _)| one.cmp(other));
            players.extend(told);
        }
        let names: Vec<&str> = players.iter().map(|((name, _), _)| &**name).collect();
        let wide = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let line = |((name, value), cases): &(&(String, String), &usize)| {
            let alone = names.iter().filter(|other| *other == name).count() == 1;
            let cases = if alone {
                String::new()
            } else {
                format!(", in {}", count(**cases, "case"))
            };
            format!("  {name:wide$}  {value}{cases}")
        };
        players.iter().map(line).collect()
    }

    /// What no case's API server knew, a line for each request; nothing when everything was known.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let texts = &self.unknown;
        if texts.is_empty() {
            return Vec::new();
        }
        let mut lines = vec!["! the API server does not know what it was asked for:".to_owned()];
        lines.extend(texts.iter().take(UNKNOWN).map(|text| format!("  {text}")));
        if let Some(more) = texts.len().checked_sub(UNKNOWN + 1) {
            lines.push(format!("  … and {} more in run.jsonl", more + 1));
        }
        lines
    }
}

/// The unknown requests of a history, each once: one that came again is told of at the end, with how
/// often.
pub(crate) fn unknown_requests(events: &[Event]) -> Vec<String> {
    let mut requests: Vec<String> = Vec::new();
    for event in events {
        let EventKind::UnknownRequest { text } = &event.what else {
            continue;
        };
        let text = one_line(text);
        let again = |known: &&mut String| {
            let rest = text.strip_prefix(known.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
        };
        match requests.iter_mut().find(again) {
            Some(known) => *known = text,
            None => requests.push(text),
        }
    }
    requests
}
