//! Which command changed what becomes of a traffic's packets: the first packet of a request is walked through the rules of its node as
//! they were before and after each command that was at work when a gap began. What is not known for sure names nobody.

use std::fmt;

use chainbreak_model::{
    case::{Case, Fault, Step, Traffic},
    event::Event,
    names::{AgentName, NodeName, TrafficName},
    verdict::Span,
};
use chainbreak_netfilter::{replay::Replay, walk::Walk};
use chainbreak_probe::wire::Connections;
use serde::Serialize;

use crate::{
    attribution::{self, SENT_LATE_US, STARVED_US},
    edits::{self, EditIndex, RuleEdit},
    flight::{self, Flight},
    gaps::Beginning,
    network::{self, Network},
};

pub use crate::flight::aim;

/// So many commands are walked by while a gap goes on.
const MOST: usize = 400;

/// A command after which packets end that went on before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Turned {
    /// Who ran it.
    pub who: String,
    /// With which program.
    pub program: String,
    /// Where.
    pub node: NodeName,
    /// When it ended.
    pub at_us: u64,
    /// What becomes of packets since: `is dropped by filter FORWARD 3: DROPPED`.
    pub end: String,
}

impl fmt::Display for Turned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who, program, end, ..
        } = self;
        write!(f, "a request's first packet {end}, since {who} ({program})")
    }
}

/// The command by which all requests of a traffic were lost, from the beginning of the gap on and for most of it.
pub(crate) fn of_gap(
    case: &Case,
    events: &[Event],
    index: &EditIndex<'_>,
    (name, traffic): (&TrafficName, &Traffic),
    gap: Span,
) -> Option<Turned> {
    // What goes on over a connection that is there is decided by its entry, and by no rule that is written later.
    if traffic.connections == Connections::Kept {
        return None;
    }
    let node = attribution::walked_node(case, traffic)?;
    // Where kube-proxy's commands are not recorded there are rules that nobody knows.
    index.on(&node).find(|it| it.is_by(AgentName::KubeProxy))?;
    let begun = Beginning::of(events, name, gap)?;
    let search = Search {
        case,
        edits: index.on(&node).collect(),
        flight: Flight::of(events, (name, traffic), begun.local)?,
        gap: Span {
            from_us: begun.lost_us,
            to_us: gap.to_us,
        },
        begun,
    };
    let lost_us = search.begun.lost_us;
    let network = Network::at(events, &case.timeline, reroutes, &node, lost_us)?;
    if network.doubt.is_some() {
        return None;
    }
    let texts = [network.text]
        .into_iter()
        .chain(network.later.map(|it| it.0));
    let mut found = texts.map(|text| search.turned(text));
    let first = found.next()??;
    found
        .all(|other| other.as_ref() == Some(&first))
        .then_some(first)
}

/// As [`network::reroutes`], but for a command that a step runs once: what it changes is there still when it is told again, and by either
/// text the same is found, or nothing.
fn reroutes(step: &Step) -> bool {
    let runs_once = matches!(
        step,
        Step::Fault {
            fault: Fault::Run(_),
            duration: None,
        }
    );
    network::reroutes(step) && !runs_once
}

struct Search<'a> {
    case: &'a Case,
    /// On the node, in the order of their ends.
    edits: Vec<&'a RuleEdit<'a>>,
    flight: Flight,
    gap: Span,
    begun: Beginning<'a>,
}

impl Search<'_> {
    /// The first command that turned packets off their way, of those that were at work when the gap began.
    fn turned(&self, network: &str) -> Option<Turned> {
        self.edits
            .iter()
            .find(|edit| self.at_work(edit) && edit.writes())?;
        let mut replay = edits::before(self.case, &self.edits);
        let mut before: Option<Walk> = None;
        for (place, edit) in self.edits.iter().enumerate() {
            if !self.at_work(edit) || !edit.writes() {
                before = before.filter(|_| !edit.writes());
                replay.take(edit.ran()).ok()?;
                continue;
            }
            let earlier = match before.take() {
                Some(walk) => walk,
                None => self.flight.walk(&replay, network)?,
            };
            replay.take(edit.ran()).ok()?;
            let later = self.flight.walk(&replay, network)?;
            if self.flight.goes_on(&earlier) && self.flight.is_lost(&later) {
                let rest = &self.edits[place + 1..];
                let is_it = flight::is_seen(&later, self.begun.outcome)
                    && !self
                        .edits
                        .iter()
                        .any(|other| edit.is_beside(other) && !other.changes.is_empty())
                    && self.lasts(edit.at_us, rest, replay, network)?;
                return is_it.then(|| Turned {
                    who: edit.command.who.clone(),
                    program: edit.program().to_owned(),
                    node: edit.command.node.clone(),
                    at_us: edit.at_us,
                    end: later.ends().join("; "),
                });
            }
            before = Some(later);
        }
        None
    }

    /// Whether a command may have taken effect after the last answer and before the first failure.
    fn at_work(&self, edit: &RuleEdit<'_>) -> bool {
        let until_us = (self.begun.lost_us + SENT_LATE_US).min(self.begun.failed_us);
        edit.began_us() <= until_us
            && edit.at_us >= self.begun.answered_us
            && edit.at_us <= until_us + STARVED_US
    }

    /// Whether packets stay lost for most of the gap, whatever ran later.
    fn lasts(
        &self,
        since_us: u64,
        rest: &[&RuleEdit<'_>],
        mut replay: Replay,
        network: &str,
    ) -> Option<bool> {
        let (mut lost_since, mut lost_us) = (Some(since_us.max(self.gap.from_us)), 0);
        let later = rest.iter().take_while(|it| it.at_us < self.gap.to_us);
        let mut walks = 0;
        for edit in later {
            replay.take(edit.ran()).ok()?;
            if !edit.writes() {
                continue;
            }
            walks += 1;
            if walks > MOST {
                return None;
            }
            let walk = self.flight.walk(&replay, network);
            let is_lost = walk.is_some_and(|walk| self.flight.is_lost(&walk));
            let at_us = edit.at_us.max(self.gap.from_us);
            match lost_since {
                Some(since_us) if !is_lost => {
                    lost_us += at_us.saturating_sub(since_us);
                    lost_since = None;
                }
                None if is_lost => lost_since = Some(at_us),
                _ => {}
            }
        }
        lost_us += lost_since.map_or(0, |since_us| self.gap.to_us.saturating_sub(since_us));
        Some(2 * lost_us >= self.gap.len_us())
    }
}
