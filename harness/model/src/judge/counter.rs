//! `counter`. That rules counted nothing is known only where there was a rule to count: a chain that nobody
//! has, or an expression that finds nothing in it, would keep every `at-most`.

use indexmap::IndexMap;

use super::{Watch, asked::Asked, coverage::Coverage, unknown};
use crate::{
    case::{Case, Counter, Limits, Origin, Query},
    event::{Event, EventKind, WatchTarget},
    verdict::{Counted, Evidence, PromiseVerdict, Span},
};

/// Counters are read with the first promise about them, long before the judged time; the first look may end
/// this much into it.
const FIRST_LOOK_US: u64 = 100_000;

/// One counter in the places that are asked for.
#[derive(Debug)]
pub(super) struct Seen {
    asked: Asked,
    /// Whether rules count it, which may be rewritten at any time. The kernel's numbers only grow.
    of_rules: bool,
    limits: Limits,
    places: IndexMap<Origin, Looks>,
}

/// What was read in one place.
#[derive(Debug)]
struct Looks {
    coverage: Coverage,
    readings: Vec<Reading>,
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
    pub(super) fn new(case: &Case, counter: &Counter, at: Option<&Origin>, limits: Limits) -> Self {
        let places: Vec<Origin> = match at {
            Some(place) => vec![place.clone()],
            None => case.cluster.node_names().map(Origin::Node).collect(),
        };
        let looks = |at: Origin| {
            let coverage = Coverage::of(WatchTarget::Rules { at: at.clone() });
            let readings = Vec::new();
            (at, Looks { coverage, readings })
        };
        Self {
            asked: Asked::new(case, Query::Counter(counter)),
            of_rules: matches!(counter, Counter::Rule(_)),
            limits,
            places: places.into_iter().map(looks).collect(),
        }
    }
}

impl Watch for Seen {
    fn see(&mut self, event: &Event) {
        for looks in self.places.values_mut() {
            looks.coverage.see(event);
        }
        if let EventKind::Counters {
            at,
            values,
            rewritten,
            unmatched,
        } = &event.what
            && let Some(looks) = self.places.get_mut(at)
            && let Some(value) = self.asked.among(values)
        {
            looks.readings.push(Reading {
                at_us: event.at_us,
                value: *value,
                rewritten: self.asked.among(rewritten).copied().unwrap_or_default(),
                unmatched: self.asked.among(unmatched).cloned(),
            });
        }
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        let mut counted = Counted {
            counter: self.asked.words.clone(),
            limits: self.limits,
            places: IndexMap::new(),
            rewritten: false,
        };
        for (place, looks) in &self.places {
            let Some((before, after)) = ends(&looks.readings, window) else {
                return unknown(format!(
                    "{} was not read in {place} when its time began",
                    self.asked.words
                ));
            };
            let rose = after.value.saturating_sub(before.value);
            counted.places.insert(place.to_string(), rose);
            counted.rewritten |= after.rewritten > before.rewritten;
        }
        let total = counted.total();
        let verdict = self.decide(counted);
        let is_kept = matches!(verdict, PromiseVerdict::Kept(_));
        let nothing = || self.nothing_to_count(window).filter(|_| is_kept);
        match self.unseen(total, window).or_else(nothing) {
            Some(cause) => unknown(cause),
            None => verdict,
        }
    }
}

impl Seen {
    /// What a rule that was rewritten counted just before is missing: then only what is too much, or
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
                "{counted}, and rules that count were rewritten meanwhile"
            ));
        }
        super::decided(self.limits.allow(total), Evidence::Counter(counted))
    }

    /// Why what was counted proves nothing. What is enough, or too much, is so whatever came later.
    fn unseen(&self, total: u64, window: Span) -> Option<String> {
        let Limits { at_least, at_most } = self.limits;
        let enough = at_most.is_none() && at_least.is_some_and(|least| total >= least);
        let settled = enough || at_most.is_some_and(|most| total > most);
        let gap = |looks: &Looks| {
            let (begin, end) = (window.from_us, window.to_us);
            match looks.coverage.gap_at(begin) {
                None if settled => None,
                None if self.of_rules => looks.coverage.gap(window),
                None => looks.coverage.gap_at(end),
                gap => gap,
            }
        };
        self.places.values().find_map(gap)
    }

    /// Why nothing could be counted: in no place and at no time of the window a rule matched.
    fn nothing_to_count(&self, window: Span) -> Option<String> {
        let mut instead = Vec::new();
        for (place, looks) in &self.places {
            let (begin, _) = ends(&looks.readings, window)?;
            let within = |reading: &&Reading| {
                (begin.at_us..=window.to_us.max(begin.at_us)).contains(&reading.at_us)
            };
            for reading in looks.readings.iter().filter(within) {
                instead.push((place, reading.unmatched.as_ref()?));
            }
        }
        let (place, text) = instead.last()?;
        let counter = &self.asked.words;
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
