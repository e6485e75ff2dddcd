//! `recovers`.

use std::time::Duration;

use chainbreak_probe::wire::Outcome;

use super::{Watch, decided, samples::Samples, unknown};
use crate::{
    event::Event,
    names::MarkName,
    verdict::{Evidence, PromiseVerdict, Recovery, Span},
};

/// The requests of one traffic.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    samples: Samples<'a>,
    after: &'a MarkName,
    within: Duration,
}

impl<'a> Seen<'a> {
    pub(super) fn new(samples: Samples<'a>, after: &'a MarkName, within: Duration) -> Self {
        Self {
            samples,
            after,
            within,
        }
    }
}

impl Watch for Seen<'_> {
    fn see(&mut self, event: &Event) {
        self.samples.see(event);
    }

    /// The window begins with the mark.
    fn verdict(&self, window: Span) -> PromiseVerdict {
        let samples = self.samples.in_time(window);
        let lost = |(_, outcome): &(u64, &Outcome)| !outcome.is_answered();
        let last_lost = samples.iter().rposition(lost);
        let well = |last: usize| samples.get(last + 1).map(|(due, _)| due - window.from_us);
        let took_us = last_lost.map_or(Some(0), well);
        let within_us = u64::try_from(self.within.as_micros()).unwrap_or(u64::MAX);
        let recovery = Recovery {
            traffic: self.samples.traffic.clone(),
            after: self.after.clone(),
            within_us,
            took_us,
            sent: samples.len() as u64,
            lost: samples.iter().filter(|sample| lost(sample)).count() as u64,
        };
        let kept = took_us.is_some_and(|took_us| took_us <= within_us);
        match self.samples.too_few(window) {
            Some(cause) if kept || samples.is_empty() => unknown(cause),
            _ if kept && window.len_us() <= within_us => {
                unknown("the run ended before its time to recover was over")
            }
            _ => decided(kept, Evidence::Recovery(recovery)),
        }
    }
}
