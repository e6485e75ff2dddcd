//! `has-rule`.

use indexmap::IndexMap;

use crate::{
    case::{Case, RuleQuery},
    event::{Event, RulesSeen, What},
    names::NodeName,
    verdict::{Evidence, Presence, PromiseVerdict, Span},
};

/// When the rule is promised to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// All the time.
    Always,
    /// When the timeline is over.
    AtTheEnd,
}

/// Observers begin with the cluster, long before the judged time; the first look may end this much into
/// it, a look's own length on a busy machine. A rule that nobody looked at for longer is unknown.
const FIRST_LOOK_US: u64 = 100_000;

/// One rule on every node.
#[derive(Debug)]
pub(super) struct Seen {
    rule: String,
    when: When,
    /// When it was seen to be there or not, for each node of the cluster.
    nodes: IndexMap<NodeName, Vec<(u64, bool)>>,
}

impl Seen {
    pub(super) fn new(case: &Case, rule: &RuleQuery, when: When) -> Self {
        let nodes = case
            .cluster
            .node_names()
            .map(|node| (node, Vec::new()))
            .collect();
        Self {
            rule: rule.to_string(),
            when,
            nodes,
        }
    }

    pub(super) fn see(&mut self, event: &Event) {
        if let What::Rules(RulesSeen { node, query, count }) = &event.what
            && *query == self.rule
            && let Some(looks) = self.nodes.get_mut(node)
        {
            looks.push((event.at_us, *count > 0));
        }
    }

    pub(super) fn verdict(&self, window: Span) -> PromiseVerdict {
        let mut presence = Presence {
            rule: self.rule.clone(),
            absent: IndexMap::new(),
        };
        for (node, looks) in &self.nodes {
            let mut absent = absences(looks, window);
            if self.when == When::AtTheEnd {
                absent.retain(|span| span.to_us == window.to_us);
            }
            if !absent.is_empty() {
                presence.absent.insert(node.clone(), absent);
            }
        }
        if !presence.absent.is_empty() {
            return PromiseVerdict::Broken(Evidence::Rule(presence));
        }
        match self
            .nodes
            .iter()
            .find_map(|(node, looks)| self.unseen(node, looks, window))
        {
            Some(cause) => PromiseVerdict::Unknown { cause },
            None => PromiseVerdict::Kept(Evidence::Rule(presence)),
        }
    }

    /// Why a node's looks do not prove that the rule was there.
    fn unseen(&self, node: &NodeName, looks: &[(u64, bool)], window: Span) -> Option<String> {
        let first = looks.iter().map(|(at_us, _)| *at_us).min();
        let Some(first) = first.filter(|at_us| *at_us < window.to_us) else {
            return Some(format!("the rules of {node} were never looked at"));
        };
        let late = first.saturating_sub(window.from_us);
        (self.when == When::Always && late > FIRST_LOOK_US).then(|| {
            let seconds = late as f64 / 1e6;
            format!("the rules of {node} were not looked at for the first {seconds:.1} s")
        })
    }
}

/// When the rule was not there, within the judged time. A look holds until the next one.
fn absences(looks: &[(u64, bool)], window: Span) -> Vec<Span> {
    let mut looks = looks.to_vec();
    looks.sort_by_key(|(at_us, _)| *at_us);
    let mut absences: Vec<Span> = Vec::new();
    let mut since = None;
    for (at_us, present) in looks {
        match (since, present) {
            (None, false) => since = Some(at_us),
            (Some(from_us), true) => {
                absences.extend(
                    Span {
                        from_us,
                        to_us: at_us,
                    }
                    .within(window),
                );
                since = None;
            }
            (None, true) | (Some(_), false) => {}
        }
    }
    let open = since.map(|from_us| Span {
        from_us,
        to_us: window.to_us,
    });
    absences.extend(open.and_then(|span| span.within(window)));
    absences
}
