//! The requests of one traffic, as every promise about traffic looks at them.

use chainbreak_probe::wire::Outcome;

use super::coverage::Coverage;
use crate::{
    case::Case,
    event::{Event, EventKind, WatchTarget},
    names::TrafficName,
    verdict::Span,
};

/// The requests of one traffic.
#[derive(Debug)]
pub(super) struct Samples<'a> {
    pub(super) traffic: &'a TrafficName,
    /// Distance of two requests, in microseconds.
    every_us: Option<u64>,
    /// When each was due, and how it ended.
    all: Vec<(u64, Outcome)>,
    coverage: Coverage,
}

impl<'a> Samples<'a> {
    pub(super) fn new(case: &Case, traffic: &'a TrafficName) -> Self {
        let every = case.traffic.get(traffic).map(|traffic| traffic.every);
        let every_us = every.and_then(|every| u64::try_from(every.as_micros()).ok());
        Self {
            traffic,
            every_us,
            all: Vec::new(),
            coverage: Coverage::of(WatchTarget::Requests {
                traffic: traffic.clone(),
            }),
        }
    }

    pub(super) fn see(&mut self, event: &Event) {
        self.coverage.see(event);
        if let EventKind::Sample { traffic, sample } = &event.what
            && traffic == self.traffic
        {
            self.all.push((event.at_us, sample.outcome.clone()));
        }
    }

    /// Those that were due within the window, in that order.
    pub(super) fn within(&self, window: Span) -> Vec<(u64, &Outcome)> {
        let due = self.all.iter().filter(|(due, _)| window.contains(*due));
        let mut due: Vec<_> = due.map(|(due, outcome)| (*due, outcome)).collect();
        due.sort_by_key(|(due, _)| *due);
        due
    }

    /// Why so many requests prove nothing: requests that nobody sent were not answered either, a probe that
    /// died early was not reset. One in a hundred and two more may be missing: the judged time need not begin
    /// and end with a due time, and the last ones may not have been sent when the traffic was stopped.
    pub(super) fn too_few(&self, seen: usize, window: Span) -> Option<String> {
        let seen = seen as u64;
        if seen == 0 {
            return Some(format!("no request of {} was seen", self.traffic));
        }
        let due = self
            .every_us
            .map_or(0, |every| window.len_us() / every.max(1));
        if seen + 2 < due - due / 100 {
            return Some(format!("{seen} requests were seen of {due} that were due"));
        }
        self.coverage.gap(window)
    }
}
