//! `counter`. That rules counted nothing is known only where there was a rule to count: a chain that nobody
//! has, or an expression that finds nothing in it, would keep every `at-most`.

use indexmap::IndexMap;

use super::{Watch, unknown};
use crate::{
    case::{Case, Counter, From, Limits},
    event::{Event, What},
    verdict::{Counted, Evidence, PromiseVerdict, Span},
};

/// Counters are read with the first promise about them, long before the judged time; the first look may end
/// this much into it.
const FIRST_LOOK_US: u64 = 100_000;

/// One counter in the places that are asked for.
#[derive(Debug)]
pub(super) struct Seen {
    counter: String,
    limits: Limits,
    places: IndexMap<From, Vec<Reading>>,
}

/// A look at a counter.
#[derive(Debug, Clone)]
struct Reading {
    at_us: u64,
    value: u64,
    rewritten: u64,
    /// What was there instead of a rule that counts.
    unmatched: Option<String>,
}

impl Seen {
    pub(super) fn new(case: &Case, counter: &Counter, at: Option<&From>, limits: Limits) -> Self {
        let places: Vec<From> = match at {
            Some(place) => vec![place.clone()],
            None => case.cluster.node_names().map(From::Node).collect(),
        };
        Self {
            counter: counter.to_string(),
            limits,
            places: places
                .into_iter()
                .map(|place| (place, Vec::new()))
                .collect(),
        }
    }
}

impl Watch for Seen {
    fn see(&mut self, event: &Event) {
        if let What::Counters {
            at,
            values,
            rewritten,
            unmatched,
        } = &event.what
            && let Some(readings) = self.places.get_mut(at)
            && let Some(value) = values.get(&self.counter)
        {
            readings.push(Reading {
                at_us: event.at_us,
                value: *value,
                rewritten: rewritten.get(&self.counter).copied().unwrap_or_default(),
                unmatched: unmatched.get(&self.counter).cloned(),
            });
        }
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        let mut counted = Counted {
            counter: self.counter.clone(),
            limits: self.limits,
            places: IndexMap::new(),
            rewritten: false,
        };
        for (place, readings) in &self.places {
            let Some((before, after)) = ends(readings, window) else {
                return unknown(format!(
                    "{} was not read in {place} when its time began",
                    self.counter
                ));
            };
            let rose = after.value.saturating_sub(before.value);
            counted.places.insert(place.to_string(), rose);
            counted.rewritten |= after.rewritten > before.rewritten;
        }
        match self.decide(counted) {
            PromiseVerdict::Kept(evidence) => match self.nothing_to_count(window) {
                Some(cause) => unknown(cause),
                None => PromiseVerdict::Kept(evidence),
            },
            verdict => verdict,
        }
    }
}

impl Seen {
    /// What a rule that was written anew counted just before is missing: then only what is too much, or
    /// enough, is certain.
    fn decide(&self, counted: Counted) -> PromiseVerdict {
        let total = counted.total();
        let Limits { at_least, at_most } = self.limits;
        let doubtful = match (at_least, at_most) {
            (_, Some(most)) if total > most => false,
            (Some(least), None) => total < least,
            _ => true,
        };
        if counted.rewritten && doubtful {
            return unknown(format!(
                "{counted}, and rules that count were written anew meanwhile"
            ));
        }
        super::decided(self.limits.allow(total), Evidence::Counter(counted))
    }

    /// Why nothing could be counted: in no place and at no time of the window a rule matched.
    fn nothing_to_count(&self, window: Span) -> Option<String> {
        let mut instead = Vec::new();
        for (place, readings) in &self.places {
            let (begin, _) = ends(readings, window)?;
            let within = |reading: &&Reading| {
                (begin.at_us..=window.to_us.max(begin.at_us)).contains(&reading.at_us)
            };
            for reading in readings.iter().filter(within) {
                instead.push((place, reading.unmatched.as_ref()?));
            }
        }
        let (place, text) = instead.last()?;
        let counter = &self.counter;
        Some(format!("nothing could count {counter}: in {place} {text}"))
    }
}

/// The looks with which a window begins and ends: the last ones before. A look holds until the next one.
fn ends(readings: &[Reading], window: Span) -> Option<(&Reading, &Reading)> {
    let last = |until_us: u64| {
        let before = readings
            .iter()
            .filter(move |reading| reading.at_us <= until_us);
        before.max_by_key(|reading| reading.at_us)
    };
    let begin = last(window.from_us).or_else(|| last(window.from_us + FIRST_LOOK_US))?;
    Some((begin, last(window.to_us)?))
}
