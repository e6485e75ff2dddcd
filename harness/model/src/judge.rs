//! The verdict of a case: a pure function of the case and its history.
//!
//! Judged is the time from [`Phase::Judging`] to [`Phase::Judged`], requests by the time at which they
//! were due. What was not seen is unknown, never kept: a promise is kept only on the strength of
//! something that was watched all the time. What was seen broken stays broken, however the run ended, unless the machine was
//! too slow to tell ([`lateness`]).

mod asked;
mod balance;
mod chi;
mod counter;
mod coverage;
mod lateness;
mod log;
mod presence;
mod recovers;
mod requests;
mod resets;
mod samples;
mod source;

use std::{collections::BTreeMap, fmt};

use indexmap::IndexMap;

pub use asked::Asked;

use crate::{
    case::{Case, Claim, Expect, Promise, Query},
    event::{Event, EventKind, Phase},
    names::{MarkName, PromiseName},
    verdict::{CaseVerdict, Evidence, Expected, Judged, PromiseVerdict, Span, Verdict},
};

/// The verdict of a whole history.
pub fn judge<'a>(case: &Case, history: impl IntoIterator<Item = &'a Event>) -> Verdict {
    let mut judge = Judge::new(case);
    history.into_iter().for_each(|event| judge.see(event));
    judge.verdict()
}

/// Judges a history event by event, keeping only what the verdict needs. Events may come in any order.
#[derive(Debug)]
pub struct Judge<'a> {
    case: &'a Case,
    promises: Vec<Watched<'a>>,
    from_us: Option<u64>,
    to_us: Option<u64>,
    last_us: u64,
    marks: BTreeMap<MarkName, u64>,
    lateness: lateness::Lateness,
    trouble: Vec<String>,
}

/// A promise, and what was seen of it.
#[derive(Debug)]
struct Watched<'a> {
    name: &'a PromiseName,
    promise: &'a Promise,
    watch: Box<dyn Watch + 'a>,
}

/// Watches a history for one promise.
trait Watch: fmt::Debug {
    /// Takes note of an event.
    fn see(&mut self, event: &Event);

    /// What the events so far come to within the window.
    fn verdict(&self, window: Span) -> PromiseVerdict;
}

impl<'a> Judge<'a> {
    /// A judge who has seen nothing.
    pub fn new(case: &'a Case) -> Self {
        let watched = |(name, promise): (&'a PromiseName, &'a Promise)| Watched {
            name,
            promise,
            watch: watch(case, &promise.claim),
        };
        Self {
            case,
            promises: case.promises.iter().map(watched).collect(),
            from_us: None,
            to_us: None,
            last_us: 0,
            marks: BTreeMap::new(),
            lateness: lateness::Lateness::new(case),
            trouble: Vec::new(),
        }
    }

    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        self.last_us = self.last_us.max(event.at_us);
        match &event.what {
            EventKind::Phase(Phase::Judging) => self.from_us = Some(event.at_us),
            EventKind::Phase(Phase::Judged) => self.to_us = Some(event.at_us),
            EventKind::Mark { name } => {
                self.marks.entry(name.clone()).or_insert(event.at_us);
            }
            EventKind::Trouble { text } => self.trouble.push(text.clone()),
            _ => {}
        }
        self.lateness.see(event);
        for watched in &mut self.promises {
            watched.watch.see(event);
        }
    }

    /// When the latest event so far was, in µs.
    pub fn last_us(&self) -> u64 {
        self.last_us
    }

    /// The part of the judged time so far that a promise is about; `None` while the timeline has not come to it.
    pub fn time_of(&self, promise: &Promise) -> Option<Span> {
        self.window(promise, self.judged()?).ok()
    }

    /// The judged time so far.
    fn judged(&self) -> Option<Span> {
        self.from_us.map(|from_us| Span {
            from_us,
            to_us: self.to_us.unwrap_or(self.last_us),
        })
    }

    /// What the events so far come to.
    pub fn verdict(&self) -> Verdict {
        let window = self.judged();
        let judged = |watched: &Watched<'a>| {
            let judged = Judged {
                verdict: self.promise(watched, window),
                expected: self.expected(watched.name),
            };
            (watched.name.clone(), judged)
        };
        let promises: IndexMap<PromiseName, Judged> = self.promises.iter().map(judged).collect();
        Verdict {
            case: self.sum(&promises),
            promises,
            trouble: self.trouble.clone(),
            window,
        }
    }

    fn promise(&self, watched: &Watched<'_>, judged: Option<Span>) -> PromiseVerdict {
        let Some(judged) = judged else {
            return unknown("the timeline never began");
        };
        let window = match self.window(watched.promise, judged) {
            Ok(window) => window,
            Err(cause) => return unknown(cause),
        };
        let doubt = self
            .lateness
            .doubt(self.case, watched.promise, judged, window);
        if let Some(cause) = doubt {
            return unknown(cause);
        }
        match watched.watch.verdict(window) {
            PromiseVerdict::Kept(_) if self.to_us.is_none() => {
                unknown("the run ended before its timeline; until then it was kept")
            }
            verdict => verdict,
        }
    }

    /// The part of the judged time that the promise is about.
    fn window(&self, promise: &Promise, judged: Span) -> Result<Span, String> {
        let at = |mark: &MarkName| {
            let at = self.marks.get(mark).copied();
            at.ok_or_else(|| format!("the timeline never came to the mark {mark}"))
        };
        let (from, until) = (promise.begins(), &promise.window.until);
        let from_us = from.map_or(Ok(judged.from_us), at)?;
        let to_us = until.as_ref().map_or(Ok(judged.to_us), at)?;
        let window = Span { from_us, to_us }.within(judged);
        window.ok_or_else(|| "its time ended before it began".to_owned())
    }

    fn expected(&self, name: &PromiseName) -> Expected {
        match &self.case.expect {
            Expect::Broken(names) if names.contains(name) => Expected::Broken,
            Expect::Broken(_) | Expect::Healthy => Expected::Kept,
        }
    }

    /// Trouble makes everything doubtful. Without it a promise that came out otherwise than expected
    /// decides, whatever else is unknown.
    fn sum(&self, promises: &IndexMap<PromiseName, Judged>) -> CaseVerdict {
        let unknown = |judged: &&Judged| matches!(judged.verdict, PromiseVerdict::Unknown { .. });
        let some_unknown = promises.values().any(|judged| unknown(&judged));
        if !self.trouble.is_empty() || promises.is_empty() {
            CaseVerdict::Inconclusive
        } else if promises
            .values()
            .filter(|judged| !unknown(judged))
            .any(|j| !j.is_as_expected())
        {
            CaseVerdict::NotAsExpected
        } else if some_unknown {
            CaseVerdict::Inconclusive
        } else {
            CaseVerdict::AsExpected
        }
    }
}

/// What watches for a claim.
fn watch<'a>(case: &'a Case, claim: &'a Claim) -> Box<dyn Watch + 'a> {
    let samples = |traffic| samples::Samples::new(case, traffic);
    match claim {
        Claim::Available {
            traffic,
            at_least,
            longest_gap,
        } => {
            let limits = requests::Limits {
                at_least: *at_least,
                longest_gap: *longest_gap,
            };
            Box::new(requests::Seen::new(samples(traffic), limits))
        }
        Claim::NoLog { agent, matches } => {
            Box::new(log::Seen::new(case, *agent, matches, log::Wanted::None))
        }
        Claim::HasLog { agent, matches } => {
            Box::new(log::Seen::new(case, *agent, matches, log::Wanted::Some))
        }
        Claim::HasRule { rule, presence } => {
            Box::new(presence::Seen::new(case, Query::Rule(rule), presence))
        }
        Claim::HasElement { element, presence } => {
            Box::new(presence::Seen::new(case, Query::Element(element), presence))
        }
        Claim::Counter {
            counter,
            at,
            limits,
        } => Box::new(counter::Seen::new(case, counter, at.as_ref(), *limits)),
        Claim::Source { traffic, is } => Box::new(source::Addresses::new(samples(traffic), is)),
        Claim::SourcePorts { traffic, within } => {
            Box::new(source::PortsUsed::new(samples(traffic), *within))
        }
        Claim::Balance {
            traffic,
            over,
            p_at_least,
        } => Box::new(balance::Seen::new(samples(traffic), *over, *p_at_least)),
        Claim::Resets { traffic, limits } => Box::new(resets::Seen::new(samples(traffic), *limits)),
        Claim::Unreachable { traffic } => Box::new(requests::Unreachable(requests::Seen::new(
            samples(traffic),
            requests::Limits::default(),
        ))),
        Claim::Recovers {
            traffic,
            after,
            within,
        } => Box::new(recovers::Seen::new(samples(traffic), after, *within)),
    }
}

/// What was seen does not decide it.
fn unknown(cause: impl Into<String>) -> PromiseVerdict {
    let cause = cause.into();
    PromiseVerdict::Unknown { cause }
}

/// Kept when it is; what was seen either way.
fn decided(kept: bool, evidence: Evidence) -> PromiseVerdict {
    if kept {
        PromiseVerdict::Kept(evidence)
    } else {
        PromiseVerdict::Broken(evidence)
    }
}
