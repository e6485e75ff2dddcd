//! `no-log` and `has-log`.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use regex::Regex;

use super::{Watch, coverage::Coverage};
use crate::{
    case::Case,
    event::{Event, EventKind, LogEntry, WatchTarget},
    names::{AgentName, NodeName},
    verdict::{Entries, Evidence, FirstEntry, PromiseVerdict, Span},
};

/// How many matching entries are promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Not one.
    None,
    /// One or more.
    Some,
}

/// The log of one agent, on every node.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    case: &'a Case,
    agent: AgentName,
    matches: Result<Regex, regex::Error>,
    wanted: Wanted,
    /// Nodes whose log said anything at all, at any time.
    alive: BTreeSet<NodeName>,
    /// Of each node's log, where the case runs the agent: one that it does not run has no log to read.
    coverage: Vec<Coverage>,
    found: Vec<FirstEntry>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(case: &'a Case, agent: AgentName, matches: &str, wanted: Wanted) -> Self {
        let (alive, found) = (BTreeSet::new(), Vec::new());
        let coverage = |node| Coverage::of(WatchTarget::Log { agent, node });
        let runs = case.cluster.source(agent).is_some();
        let nodes = runs.then(|| case.cluster.node_names());
        Self {
            coverage: nodes.into_iter().flatten().map(coverage).collect(),
            case,
            agent,
            matches: Regex::new(matches),
            wanted,
            alive,
            found,
        }
    }
}

impl Watch for Seen<'_> {
    fn see(&mut self, event: &Event) {
        for coverage in &mut self.coverage {
            coverage.see(event);
        }
        let EventKind::Log(LogEntry { agent, node, text }) = &event.what else {
            return;
        };
        if *agent != self.agent {
            return;
        }
        if !self.alive.contains(node) {
            self.alive.insert(node.clone());
        }
        if self
            .matches
            .as_ref()
            .is_ok_and(|matches| matches.is_match(text))
        {
            let (node, text) = (node.clone(), text.clone());
            self.found.push(FirstEntry {
                at_us: event.at_us,
                node,
                text,
            });
        }
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        if let Err(error) = &self.matches {
            return PromiseVerdict::Unknown {
                cause: format!("no regular expression: {error}"),
            };
        }
        let entries = self.entries(window);
        match (self.wanted, entries.count) {
            (Wanted::None, 1..) => PromiseVerdict::Broken(Evidence::Log(entries)),
            (Wanted::Some, 1..) => PromiseVerdict::Kept(Evidence::Log(entries)),
            (wanted, 0) => match (self.unseen(window), wanted) {
                (Some(cause), _) => PromiseVerdict::Unknown { cause },
                (None, Wanted::None) => PromiseVerdict::Kept(Evidence::Log(entries)),
                (None, Wanted::Some) => PromiseVerdict::Broken(Evidence::Log(entries)),
            },
        }
    }
}

impl Seen<'_> {
    fn entries(&self, window: Span) -> Entries {
        let found: Vec<&FirstEntry> = self
            .found
            .iter()
            .filter(|entry| window.contains(entry.at_us))
            .collect();
        let mut nodes: IndexMap<NodeName, u64> = IndexMap::new();
        for entry in &found {
            *nodes.entry(entry.node.clone()).or_default() += 1;
        }
        nodes.sort_keys();
        let first = found
            .iter()
            .min_by_key(|entry| entry.at_us)
            .copied()
            .cloned();
        Entries {
            agent: self.agent,
            count: found.len() as u64,
            nodes,
            first,
        }
    }

    /// Why silence says nothing: some node's log never said anything, or was not followed all the time.
    fn unseen(&self, window: Span) -> Option<String> {
        self.case.cluster.source(self.agent)?;
        let mut nodes = self.case.cluster.node_names();
        if let Some(silent) = nodes.find(|node| !self.alive.contains(node)) {
            return Some(format!(
                "not one entry of {}'s log on {silent} was seen",
                self.agent
            ));
        }
        let mut gaps = self.coverage.iter().map(|coverage| coverage.gap(window));
        gaps.find_map(|gap| gap)
    }
}
