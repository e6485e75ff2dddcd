//! `resets`.

use chainbreak_probe::wire::Outcome;

use super::{Watch, decided, samples::Samples, unknown};
use crate::{
    case::Limits,
    event::Event,
    verdict::{Evidence, PromiseVerdict, Resets, Span},
};

/// The requests of one traffic.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    samples: Samples<'a>,
    limits: Limits,
}

impl<'a> Seen<'a> {
    pub(super) fn new(samples: Samples<'a>, limits: Limits) -> Self {
        Self { samples, limits }
    }
}

impl Watch for Seen<'_> {
    fn see(&mut self, event: &Event) {
        self.samples.see(event);
    }

    /// More than promised is broken whatever was not seen; anything else needs all requests.
    fn verdict(&self, window: Span) -> PromiseVerdict {
        let samples = self.samples.within(window);
        let resets: Vec<u64> = samples
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Reset))
            .map(|(due, _)| *due)
            .collect();
        let seen = Resets {
            traffic: self.samples.traffic.clone(),
            limits: self.limits,
            sent: samples.len() as u64,
            resets: resets.len() as u64,
            first_us: resets.first().copied(),
        };
        let too_many = self.limits.at_most.is_some_and(|most| seen.resets > most);
        match self.samples.too_few(window) {
            Some(cause) if !too_many => unknown(cause),
            _ => decided(self.limits.allow(seen.resets), Evidence::Resets(seen)),
        }
    }
}
