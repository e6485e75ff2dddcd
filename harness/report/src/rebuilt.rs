//! The rules of a node at one moment after another, as its commands left them, and the way of a request's first packet through them.

use std::{
    collections::BTreeMap,
    iter::Peekable,
    net::{IpAddr, SocketAddr},
    vec,
};

use chainbreak_model::{
    case::{Case, Traffic},
    event::{Event, EventKind},
    names::{AgentName, NodeName, TrafficName},
};
use chainbreak_netfilter::{Site, replay::Replay, walk::Walk};
use chainbreak_probe::wire::Outcome;

use crate::{
    edits::{self, EditIndex, RuleEdit},
    flight::{self, Flight},
    network::{Network, reroutes},
};

/// A traffic's way through a node, from one moment to a later one.
pub(crate) struct Rebuilt<'a> {
    case: &'a Case,
    events: &'a [Event],
    index: &'a EditIndex<'a>,
    node: &'a NodeName,
    flight: Flight,
    edits: Peekable<vec::IntoIter<&'a RuleEdit<'a>>>,
    replay: Replay,
    /// Whether each command so far could be followed.
    is_known: bool,
}

impl<'a> Rebuilt<'a> {
    /// From before the first command on. None where kube-proxy's are not recorded: there are rules then that nobody knows; and none where
    /// Felix's programs may have packets before any rule.
    pub(crate) fn of(
        case: &'a Case,
        events: &'a [Event],
        index: &'a EditIndex<'a>,
        (name, traffic): (&TrafficName, &Traffic),
        node: &'a NodeName,
    ) -> Option<Self> {
        if case.loads_programs() {
            return None;
        }
        let edits: Vec<&RuleEdit<'_>> = index.on(node).collect();
        edits.iter().find(|it| it.is_by(AgentName::KubeProxy))?;
        let replay = edits::before(case, &edits);
        Some(Self {
            flight: Flight::of(events, (name, traffic), sender(events, name)?)?,
            replay,
            edits: edits.into_iter().peekable(),
            is_known: true,
            case,
            events,
            index,
            node,
        })
    }

    /// Its way at a moment no earlier than the one before, where that is known; by what the node routed by before and after, where that is
    /// not the same.
    pub(crate) fn walks(&mut self, at_us: u64) -> Option<Vec<Walk>> {
        let walks = self.ways(at_us)?;
        walks.iter().all(Walk::decided).then_some(walks)
    }

    /// As [`Rebuilt::walks`], and where its way depends on what is not known, each that it may be.
    pub(crate) fn ways(&mut self, at_us: u64) -> Option<Vec<Walk>> {
        while let Some(edit) = self.edits.next_if(|edit| edit.at_us <= at_us) {
            if edit.writes() {
                self.is_known &= self.replay.take(edit.ran()).is_ok();
            }
        }
        let (events, timeline) = (self.events, &self.case.timeline);
        let network = Network::at(events, timeline, reroutes, self.node, at_us)?;
        if !self.is_known || network.doubt.is_some() {
            return None;
        }
        let later = network.later.map(|(text, _)| text);
        let texts = [network.text].into_iter().chain(later);
        texts
            .map(|text| self.flight.ways(&self.replay, text))
            .collect()
    }

    /// Who alone wrote the rules of a chain that say this and are there at a moment ([`EditIndex::author`]).
    pub(crate) fn author(&self, at_us: u64, site: &Site, says: &str) -> Option<&'a str> {
        let family = self.flight.family();
        self.index.author((self.node, family, at_us), site, says)
    }

    /// Who alone wrote the rules that lead there, each of them.
    pub(crate) fn leader(&self, at_us: u64, led: &BTreeMap<IpAddr, Site>) -> Option<&'a str> {
        let mut leaders = led
            .iter()
            .map(|(to, site)| self.author(at_us, site, &to.to_string()));
        let first = leaders.next()??;
        leaders.all(|other| other == Some(first)).then_some(first)
    }

    /// The packet that goes it.
    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Where rules lead it at such a moment, and which, where by either of what the node routed by it is the same.
    pub(crate) fn led(&mut self, at_us: u64) -> Option<BTreeMap<IpAddr, Site>> {
        let walks = self.walks(at_us)?;
        self.led_by(&walks)
    }

    /// The same of walks that are known.
    pub(crate) fn led_by(&self, walks: &[Walk]) -> Option<BTreeMap<IpAddr, Site>> {
        let mut ways = walks.iter().map(|walk| self.flight.led_to(walk));
        let led = ways.next()?;
        ways.all(|other| other == led).then_some(led)
    }
}

/// A port of those that clients draw from, where it is not known which one it was.
const SOME_PORT: u16 = 40_000;

/// Who sends the requests of a traffic, by the first that was answered; where none was, by what its probe asked the kernel.
fn sender(events: &[Event], name: &TrafficName) -> Option<SocketAddr> {
    let mut answered = events.iter().filter_map(|event| match &event.what {
        EventKind::Sample { traffic, sample } if traffic == name => match sample.outcome {
            Outcome::Answered { local, .. } => Some(local),
            _ => None,
        },
        _ => None,
    });
    answered.next().or_else(|| {
        let from = flight::sent_from(events, name)?;
        Some(SocketAddr::new(from, SOME_PORT))
    })
}
