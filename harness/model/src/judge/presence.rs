//! `has-rule` and `has-element`.

use indexmap::IndexMap;

use super::{Watch, asked::Asked, coverage::Coverage, unknown};
use crate::{
    case::{self, Case, Origin, Query},
    event::{Event, EventKind, RulesSeen, WatchTarget},
    names::NodeName,
    verdict::{Evidence, Presence, PromiseVerdict, Span},
};

/// Observers begin with the cluster, long before the judged time; the first look may end this much into
/// it, a look's own length on a busy machine. A rule that nobody looked at for longer is unknown.
const FIRST_LOOK_US: u64 = 100_000;

/// One rule, chain or element on the nodes that were asked.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    asked: Asked,
    promised: &'a case::Presence,
    nodes: IndexMap<NodeName, Looks>,
}

/// What was seen on one node.
#[derive(Debug)]
struct Looks {
    coverage: Coverage,
    /// When it was seen to be there or not.
    seen: Vec<(u64, bool)>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(case: &Case, query: Query<'_>, promised: &'a case::Presence) -> Self {
        let asks = |node: &NodeName| promised.node.as_ref().is_none_or(|only| only == node);
        let nodes = case.cluster.node_names().filter(asks);
        let looks = |node: NodeName| {
            let at = Origin::Node(node.clone());
            let coverage = Coverage::of(WatchTarget::Rules { at });
            let seen = Vec::new();
            (node, Looks { coverage, seen })
        };
        Self {
            asked: Asked::new(case, query),
            promised,
            nodes: nodes.map(looks).collect(),
        }
    }
}

impl Watch for Seen<'_> {
    fn see(&mut self, event: &Event) {
        for looks in self.nodes.values_mut() {
            looks.coverage.see(event);
        }
        if let EventKind::Rules(RulesSeen { node, query, count }) = &event.what
            && self.asked.is(query)
            && let Some(looks) = self.nodes.get_mut(node)
        {
            looks.seen.push((event.at_us, *count > 0));
        }
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        let mut presence = Presence {
            rule: self.asked.words.clone(),
            forbidden: self.promised.absent,
            node: self.promised.node.clone(),
            wrong: IndexMap::new(),
        };
        for (node, looks) in &self.nodes {
            let mut wrong = times(&looks.seen, self.promised.absent, window);
            if !self.promised.always {
                wrong.retain(|span| span.to_us == window.to_us);
            }
            if !wrong.is_empty() {
                presence.wrong.insert(node.clone(), wrong);
            }
        }
        if !presence.wrong.is_empty() {
            return self.broken(presence, window);
        }
        let mut unseen = self.nodes.iter();
        match unseen.find_map(|(node, looks)| self.unseen(node, looks, window)) {
            Some(cause) => unknown(cause),
            None => PromiseVerdict::Kept(Evidence::Rule(presence)),
        }
    }
}

impl Seen<'_> {
    /// Without `always` the end decides, and somebody has to have looked then.
    fn broken(&self, presence: Presence, window: Span) -> PromiseVerdict {
        let gap_at_end = |node: &NodeName| self.nodes[node].coverage.gap_at(window.to_us);
        let gaps: Option<Vec<String>> = presence.wrong.keys().map(gap_at_end).collect();
        match gaps.and_then(|gaps| gaps.into_iter().next()) {
            Some(gap) if !self.promised.always => unknown(gap),
            _ => PromiseVerdict::Broken(Evidence::Rule(presence)),
        }
    }

    /// Why a node's looks do not prove that all was as promised.
    fn unseen(&self, node: &NodeName, looks: &Looks, window: Span) -> Option<String> {
        let first = looks.seen.iter().map(|(at_us, _)| *at_us).min();
        let Some(first) = first.filter(|at_us| *at_us < window.to_us) else {
            return Some(format!("the rules of {node} were never looked at"));
        };
        if !self.promised.always {
            return looks.coverage.gap_at(window.to_us);
        }
        let late = first.saturating_sub(window.from_us);
        if late > FIRST_LOOK_US {
            let seconds = late as f64 / 1e6;
            return Some(format!(
                "the rules of {node} were not looked at for the first {seconds:.1} s"
            ));
        }
        looks.coverage.gap(window)
    }
}

/// When it was seen to be there, or not to be, within the judged time. A look holds until the next one.
fn times(looks: &[(u64, bool)], there: bool, window: Span) -> Vec<Span> {
    let mut looks = looks.to_vec();
    looks.sort_by_key(|(at_us, _)| *at_us);
    let mut spans = Vec::new();
    let mut since = None;
    for (at_us, present) in looks {
        match since {
            None if present == there => since = Some(at_us),
            Some(from_us) if present != there => {
                spans.push(Span {
                    from_us,
                    to_us: at_us,
                });
                since = None;
            }
            _ => {}
        }
    }
    spans.extend(since.map(|from_us| Span {
        from_us,
        to_us: window.to_us,
    }));
    let within = spans.into_iter().filter_map(|span| span.within(window));
    within.collect()
}
