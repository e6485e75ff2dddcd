//! `available`.

use std::time::Duration;

use indexmap::IndexMap;

use crate::{
    event::{Event, What},
    names::TrafficName,
    verdict::{Evidence, PromiseVerdict, Requests, Span},
};

/// What is promised.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Least share of answered requests, in percent.
    pub(super) at_least: f64,
    /// Longest allowed gap.
    pub(super) longest_gap: Option<Duration>,
}

/// The requests of one traffic.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    traffic: &'a TrafficName,
    every: Option<Duration>,
    limits: Limits,
    /// When each was due, and how it ended.
    samples: Vec<(u64, &'static str, bool)>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(traffic: &'a TrafficName, every: Option<Duration>, limits: Limits) -> Self {
        Self {
            traffic,
            every,
            limits,
            samples: Vec::new(),
        }
    }

    pub(super) fn see(&mut self, event: &Event) {
        if let What::Sample { traffic, sample } = &event.what
            && traffic == self.traffic
        {
            let outcome = &sample.outcome;
            self.samples
                .push((event.at_us, outcome.word(), outcome.is_answered()));
        }
    }

    pub(super) fn verdict(&self, window: Span) -> PromiseVerdict {
        let requests = self.requests(window);
        if requests.sent == 0 {
            let cause = format!("no request of {} was seen", self.traffic);
            return PromiseVerdict::Unknown { cause };
        }
        let gap = requests.longest_gap.map(Span::len_us).unwrap_or_default();
        let allowed = self
            .limits
            .longest_gap
            .map_or(u128::MAX, |gap| gap.as_micros());
        if requests.percent() < self.limits.at_least || u128::from(gap) > allowed {
            return PromiseVerdict::Broken(Evidence::Requests(requests));
        }
        match self.too_few(&requests, window) {
            Some(cause) => PromiseVerdict::Unknown { cause },
            None => PromiseVerdict::Kept(Evidence::Requests(requests)),
        }
    }

    /// Requests that nobody sent were not answered either: a probe that died early proves nothing.
    /// One in a hundred and two more may be missing: the judged time need not begin and end with a
    /// due time, and the last ones may not have been sent when the traffic was stopped.
    fn too_few(&self, requests: &Requests, window: Span) -> Option<String> {
        let every = u64::try_from(self.every?.as_micros())
            .ok()
            .filter(|every| *every > 0)?;
        let due = window.len_us() / every;
        (requests.sent + 2 < due - due / 100).then(|| {
            format!(
                "{} requests were seen of {due} that were due",
                requests.sent
            )
        })
    }

    fn requests(&self, window: Span) -> Requests {
        let mut samples: Vec<_> = self
            .samples
            .iter()
            .filter(|(due, ..)| window.contains(*due))
            .copied()
            .collect();
        samples.sort_by_key(|(due, ..)| *due);
        let mut outcomes: IndexMap<String, u64> = IndexMap::new();
        for (_, word, _) in &samples {
            *outcomes.entry((*word).to_owned()).or_default() += 1;
        }
        outcomes.sort_by(|_, a, _, b| b.cmp(a));
        let gaps = gaps(
            samples.iter().map(|(due, _, answered)| (*due, *answered)),
            window.to_us,
        );
        let longest = |longest: Option<Span>, gap: &Span| match longest {
            Some(known) if known.len_us() >= gap.len_us() => Some(known),
            _ => Some(*gap),
        };
        Requests {
            traffic: self.traffic.clone(),
            sent: samples.len() as u64,
            answered: samples.iter().filter(|(_, _, answered)| *answered).count() as u64,
            outcomes,
            longest_gap: gaps.iter().fold(None, longest),
            gaps: gaps.len() as u64,
        }
    }
}

/// The stretches without an answer: each from the due time of the first unanswered request to the due
/// time of the next answered one, the last one perhaps to the end.
fn gaps(samples: impl Iterator<Item = (u64, bool)>, end_us: u64) -> Vec<Span> {
    let mut gaps = Vec::new();
    let mut since = None;
    for (due, answered) in samples {
        match (since, answered) {
            (None, false) => since = Some(due),
            (Some(from_us), true) => {
                gaps.push(Span {
                    from_us,
                    to_us: due,
                });
                since = None;
            }
            (None, true) | (Some(_), false) => {}
        }
    }
    gaps.extend(since.map(|from_us| Span {
        from_us,
        to_us: end_us,
    }));
    gaps
}
