//! What was seen of requests: answers, resets, recovery.

use std::fmt;

use chainbreak_probe::wire::Outcome;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{Seconds, Span};
use crate::{
    case::Limits,
    names::{MarkName, TrafficName},
};

/// How requests ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Requests {
    /// Which traffic.
    pub traffic: TrafficName,
    /// How many count: what was due in the judged time, but for what was begun too late.
    pub sent: u64,
    /// How many of them were answered.
    pub answered: u64,
    /// How many ended how, by [`chainbreak_probe::wire::Outcome::word`].
    pub outcomes: IndexMap<String, u64>,
    /// The longest stretch in which every request due was unanswered: from the first of them to the
    /// next answered one, or to the end of the judged time. `None` when every request was answered.
    pub longest_gap: Option<Span>,
    /// How many such stretches there were.
    pub gaps: u64,
}

impl Requests {
    /// The share of answered requests in percent; 0 when none was sent.
    pub fn percent(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        self.answered as f64 * 100.0 / self.sent as f64
    }

    /// How many ended how, of those that were not answered.
    pub fn unanswered(&self) -> impl Iterator<Item = (&str, u64)> {
        let outcomes = self.outcomes.iter();
        let lost = outcomes.filter(|(word, _)| *word != Outcome::ANSWERED);
        lost.map(|(word, n)| (word.as_str(), *n))
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded down: 100.00 % is said only of traffic that lost nothing.
        let percent = (self.percent() * 100.0).floor() / 100.0;
        write!(
            f,
            "{percent:.2} % answered ({} of {})",
            self.answered, self.sent
        )?;
        self.longest_gap
            .iter()
            .try_for_each(|gap| write!(f, ", longest gap {gap}"))
    }
}

/// How many connections were reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Resets {
    /// Which traffic.
    pub traffic: TrafficName,
    /// How many were promised.
    pub limits: Limits,
    /// How many requests were due in the judged time.
    pub sent: u64,
    /// How many of them ended in a reset.
    pub resets: u64,
    /// When the first of these was due, in microseconds since the case began.
    pub first_us: Option<u64>,
}

impl fmt::Display for Resets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            resets,
            limits,
            ..
        } = self;
        write!(f, "{resets} of {sent} requests reset (promised: {limits})")?;
        let first = self.first_us.map(|us| us as f64 / 1e6);
        first
            .iter()
            .try_for_each(|at| write!(f, ", the first at {at:.2} s"))
    }
}

/// When requests were answered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Recovery {
    /// Which traffic.
    pub traffic: TrafficName,
    /// The mark after which.
    pub after: MarkName,
    /// How long it may take, in microseconds.
    pub within_us: u64,
    /// From the mark to the first request from which on every one was answered, in microseconds; `None`
    /// when the last one was not.
    pub took_us: Option<u64>,
    /// How many requests were due after the mark.
    pub sent: u64,
    /// How many of them were not answered.
    pub lost: u64,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            after, sent, lost, ..
        } = self;
        match self.took_us {
            Some(0) => write!(f, "every request was answered from {after} on")?,
            Some(us) => write!(
                f,
                "every request was answered from {} s after {after} on",
                Seconds(us)
            )?,
            None => write!(f, "requests were still lost at the end")?,
        }
        let within = Seconds(self.within_us);
        write!(
            f,
            " (promised: {within} s; {lost} of {sent} lost after {after})"
        )
    }
}
