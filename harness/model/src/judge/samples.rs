//! The requests of one traffic, as every promise about traffic looks at them.
//!
//! A request counts where it was due and begun within the window, as it ended, also after it.

use std::mem;

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
    all: Vec<Request>,
    coverage: Coverage,
}

/// One request.
#[derive(Debug)]
struct Request {
    due_us: u64,
    begun_us: u64,
    outcome: Outcome,
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
            self.all.push(Request {
                due_us: event.at_us,
                begun_us: event
                    .at_us
                    .saturating_add(sample.late_us.unwrap_or_default()),
                outcome: sample.outcome.clone(),
            });
        }
    }

    /// Those that count within the window, by when they were due.
    pub(super) fn within(&self, window: Span) -> Vec<(u64, &Outcome)> {
        told(&self.counted(window))
    }

    /// Of those the ones that say how it was when they were due. One that was due while requests were lost, and begun by a late probe when
    /// they were answered again, says nothing of that time: as answered it would shorten the outage.
    pub(super) fn in_time(&self, window: Span) -> Vec<(u64, &Outcome)> {
        let every_us = self.every_us.unwrap_or(u64::MAX);
        let mut lost = false;
        let mut answered_from = 0;
        let mut requests = self.counted(window);
        requests.retain(|request| {
            if !request.outcome.is_answered() {
                lost = true;
                return true;
            }
            if mem::take(&mut lost) {
                answered_from = request.begun_us;
            }
            request.due_us.saturating_add(every_us) > answered_from
        });
        told(&requests)
    }

    fn counted(&self, window: Span) -> Vec<&Request> {
        let counts = |request: &&Request| {
            window.contains(request.due_us) && window.contains(request.begun_us)
        };
        let mut counted: Vec<&Request> = self.all.iter().filter(counts).collect();
        counted.sort_by_key(|request| request.due_us);
        counted
    }

    /// Why the requests prove nothing: requests that nobody sent were not answered either, a probe that
    /// died early was not reset. One in a hundred and two more may be missing: the judged time need not begin
    /// and end with a due time, and the last ones may not have been sent when the traffic was stopped.
    pub(super) fn too_few(&self, window: Span) -> Option<String> {
        let due = |request: &&Request| window.contains(request.due_us);
        let seen = self.all.iter().filter(due).count() as u64;
        if seen == 0 {
            return Some(format!("no request of {} was seen", self.traffic));
        }
        let due = self
            .every_us
            .map_or(0, |every| window.len_us() / every.max(1));
        if seen + 2 < due - due / 100 {
            return Some(format!("{seen} requests were seen of {due} that were due"));
        }
        if self.counted(window).is_empty() {
            return Some(format!("no request of {} began in its time", self.traffic));
        }
        self.coverage.gap(window)
    }
}

/// When each was due, and how it ended.
fn told<'a>(requests: &[&'a Request]) -> Vec<(u64, &'a Outcome)> {
    let requests = requests.iter();
    requests.map(|it| (it.due_us, &it.outcome)).collect()
}
