//! The verdict of a case: a pure function of the case and its history.
//!
//! Judged is the time from [`Phase::Judging`] to [`Phase::Judged`], requests by the time at which they
//! were due. What was not seen is unknown, never kept: a promise is kept only on the strength of
//! something that was watched all the time. What was seen broken stays broken, however the run ended.

mod log;
mod requests;
mod rule;

use indexmap::IndexMap;

use crate::{
    case::{Case, Expect, Promise},
    event::{Event, Phase, What},
    names::PromiseName,
    verdict::{CaseVerdict, Expected, Judged, PromiseVerdict, Span, Verdict},
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
    promises: Vec<(&'a PromiseName, Watch<'a>)>,
    from_us: Option<u64>,
    to_us: Option<u64>,
    last_us: u64,
    trouble: Vec<String>,
}

/// What is watched for a promise.
#[derive(Debug)]
enum Watch<'a> {
    Requests(requests::Seen<'a>),
    Log(log::Seen<'a>),
    Rule(rule::Seen),
}

impl<'a> Judge<'a> {
    /// A judge who has seen nothing.
    pub fn new(case: &'a Case) -> Self {
        let watch = |(name, promise)| (name, Watch::of(case, promise));
        Self {
            case,
            promises: case.promises.iter().map(watch).collect(),
            from_us: None,
            to_us: None,
            last_us: 0,
            trouble: Vec::new(),
        }
    }

    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        self.last_us = self.last_us.max(event.at_us);
        match &event.what {
            What::Phase(Phase::Judging) => self.from_us = Some(event.at_us),
            What::Phase(Phase::Judged) => self.to_us = Some(event.at_us),
            What::Trouble { text } => self.trouble.push(text.clone()),
            _ => {}
        }
        for (_, watch) in &mut self.promises {
            match watch {
                Watch::Requests(seen) => seen.see(event),
                Watch::Log(seen) => seen.see(event),
                Watch::Rule(seen) => seen.see(event),
            }
        }
    }

    /// What the events so far come to.
    pub fn verdict(&self) -> Verdict {
        let window = self.from_us.map(|from_us| Span {
            from_us,
            to_us: self.to_us.unwrap_or(self.last_us),
        });
        let promises: IndexMap<PromiseName, Judged> = self
            .promises
            .iter()
            .map(|(name, watch)| {
                let verdict = self.promise(watch, window);
                (
                    (*name).clone(),
                    Judged {
                        verdict,
                        expected: self.expected(name),
                    },
                )
            })
            .collect();
        Verdict {
            case: self.sum(&promises),
            promises,
            trouble: self.trouble.clone(),
            window,
        }
    }

    fn promise(&self, watch: &Watch<'_>, window: Option<Span>) -> PromiseVerdict {
        let Some(window) = window else {
            return PromiseVerdict::Unknown {
                cause: "the timeline never began".to_owned(),
            };
        };
        let verdict = match watch {
            Watch::Requests(seen) => seen.verdict(window),
            Watch::Log(seen) => seen.verdict(window),
            Watch::Rule(seen) => seen.verdict(window),
        };
        match verdict {
            PromiseVerdict::Kept(_) if self.to_us.is_none() => PromiseVerdict::Unknown {
                cause: "the run ended before its timeline; until then it was kept".to_owned(),
            },
            verdict => verdict,
        }
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

impl<'a> Watch<'a> {
    fn of(case: &'a Case, promise: &'a Promise) -> Self {
        match promise {
            Promise::Available {
                traffic,
                at_least,
                longest_gap,
            } => {
                let every = case.traffic.get(traffic).map(|traffic| traffic.every);
                let limits = requests::Limits {
                    at_least: *at_least,
                    longest_gap: *longest_gap,
                };
                Self::Requests(requests::Seen::new(traffic, every, limits))
            }
            Promise::NoLog { agent, matches } => {
                Self::Log(log::Seen::new(case, *agent, matches, log::Wanted::None))
            }
            Promise::HasLog { agent, matches } => {
                Self::Log(log::Seen::new(case, *agent, matches, log::Wanted::Some))
            }
            Promise::HasRule { rule, always } => {
                let when = if *always {
                    rule::When::Always
                } else {
                    rule::When::AtTheEnd
                };
                Self::Rule(rule::Seen::new(case, rule, when))
            }
        }
    }
}
