//! `available` and `unreachable`.

use std::time::Duration;

use chainbreak_probe::wire::Outcome;
use indexmap::IndexMap;

use super::{Watch, decided, samples::Samples, unknown};
use crate::{
    event::Event,
    verdict::{Evidence, PromiseVerdict, Requests, Span},
};

/// What is promised.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// Least share of answered requests, in percent.
    pub(super) at_least: f64,
    /// Longest allowed gap.
    pub(super) longest_gap: Option<Duration>,
}

/// The requests of one traffic.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    samples: Samples<'a>,
    limits: Limits,
}

impl Watch for Seen<'_> {
    fn see(&mut self, event: &Event) {
        self.samples.see(event);
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        let requests = self.requests(&self.samples.in_time(window), window);
        let too_few = self.samples.too_few(window);
        let gap = requests.longest_gap.map(Span::len_us).unwrap_or_default();
        let allowed = self
            .limits
            .longest_gap
            .map_or(u128::MAX, |gap| gap.as_micros());
        let broken = requests.percent() < self.limits.at_least || u128::from(gap) > allowed;
        match too_few {
            Some(cause) if requests.sent == 0 || !broken => unknown(cause),
            _ => decided(!broken, Evidence::Requests(requests)),
        }
    }
}

/// Requests of which none is to be answered.
#[derive(Debug)]
pub(super) struct Unreachable<'a>(pub(super) Seen<'a>);

impl Watch for Unreachable<'_> {
    fn see(&mut self, event: &Event) {
        self.0.see(event);
    }

    /// One answer breaks it whatever was not seen; that there was none needs all requests.
    fn verdict(&self, window: Span) -> PromiseVerdict {
        let requests = Requests {
            // That nobody answers is no gap here.
            longest_gap: None,
            gaps: 0,
            ..self.0.requests(&self.0.samples.within(window), window)
        };
        match self.0.samples.too_few(window) {
            Some(cause) if requests.answered == 0 => unknown(cause),
            _ => decided(requests.answered == 0, Evidence::Requests(requests)),
        }
    }
}

impl<'a> Seen<'a> {
    pub(super) fn new(samples: Samples<'a>, limits: Limits) -> Self {
        Self { samples, limits }
    }

    fn requests(&self, samples: &[(u64, &Outcome)], window: Span) -> Requests {
        let mut outcomes: IndexMap<String, u64> = IndexMap::new();
        for (_, outcome) in samples {
            *outcomes.entry(outcome.word().to_owned()).or_default() += 1;
        }
        outcomes.sort_by(|_, a, _, b| b.cmp(a));
        let answered = samples.iter().filter(|(_, outcome)| outcome.is_answered());
        let answered = answered.count() as u64;
        let gaps = gaps(
            samples
                .iter()
                .map(|(due, outcome)| (*due, outcome.is_answered())),
            window.to_us,
        );
        let longest = |longest: Option<Span>, gap: &Span| match longest {
            Some(known) if known.len_us() >= gap.len_us() => Some(known),
            _ => Some(*gap),
        };
        Requests {
            traffic: self.samples.traffic.clone(),
            sent: samples.len() as u64,
            answered,
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
