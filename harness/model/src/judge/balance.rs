//! `balance`: Pearson's chi-squared test of an even spread.

use chainbreak_probe::wire::Outcome;
use indexmap::IndexMap;

use super::{Watch, chi, decided, samples::Samples, unknown};
use crate::{
    event::Event,
    verdict::{Evidence, PromiseVerdict, Span, Spread},
};

/// Below this many expected answers of an endpoint the test says nothing (Cochran's rule).
const LEAST_EXPECTED: f64 = 5.0;

/// The answers of one traffic.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    samples: Samples<'a>,
    over: u16,
    p_at_least: f64,
}

impl<'a> Seen<'a> {
    pub(super) fn new(samples: Samples<'a>, over: u16, p_at_least: f64) -> Self {
        Self {
            samples,
            over,
            p_at_least,
        }
    }
}

impl Watch for Seen<'_> {
    fn see(&mut self, event: &Event) {
        self.samples.see(event);
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        let mut backends: IndexMap<String, u64> = IndexMap::new();
        for (_, outcome) in self.samples.within(window) {
            if let Outcome::Answered { backend, .. } = outcome {
                *backends.entry(backend.clone()).or_default() += 1;
            }
        }
        backends.sort_by(|_, a, _, b| b.cmp(a));
        if backends.contains_key("") {
            return unknown("the server does not say which endpoint it is");
        }
        let answers: u64 = backends.values().sum();
        let expected = answers as f64 / f64::from(self.over);
        if expected < LEAST_EXPECTED {
            let over = self.over;
            return unknown(format!(
                "{answers} answers of {over} endpoints say nothing of balance"
            ));
        }
        let (chi_squared, p) = against_even(&backends, self.over, expected);
        let evidence = Spread {
            traffic: self.samples.traffic.clone(),
            over: self.over,
            backends,
            chi_squared,
            p,
            p_at_least: self.p_at_least,
        };
        decided(p >= self.p_at_least, Evidence::Balance(evidence))
    }
}

/// χ² and its probability. Endpoints that answered nothing count; one too many is impossible.
fn against_even(backends: &IndexMap<String, u64>, over: u16, expected: f64) -> (f64, f64) {
    let silent = usize::from(over).saturating_sub(backends.len());
    let counts = backends
        .values()
        .copied()
        .chain(std::iter::repeat_n(0, silent));
    let squared: f64 = counts
        .map(|n| (n as f64 - expected).powi(2) / expected)
        .sum();
    if backends.len() > usize::from(over) {
        return (squared, 0.0);
    }
    (squared, chi::probability(squared, over - 1))
}
