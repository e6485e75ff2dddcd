//! What became of traffic: when for how long no request was answered.

use std::{collections::BTreeMap, net::SocketAddr, ops::Range};

use chainbreak_model::{
    event::{Event, EventKind},
    names::TrafficName,
    verdict::Span,
};
use chainbreak_probe::wire::Outcome;
use indexmap::IndexMap;
use serde::Serialize;

/// A time in which every request was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Gap {
    /// From the first lost request to the next answered one (both when due), or to the end of the judged
    /// time.
    pub span: Span,
    /// When that one had its answer: what healed the gap happened before.
    pub answered_us: u64,
    /// How many requests were lost.
    pub lost: usize,
    /// Whether a request was answered afterwards.
    pub ended: bool,
}

/// So many times as long as some requests passed are all of them lost, before and after.
const SOME_PASS: u64 = 4;

/// And no longer than this.
const A_MOMENT_US: u64 = 100_000;

/// How a gap began, also where that was before what is judged.
#[derive(Debug)]
pub(crate) struct Beginning<'a> {
    /// When the last request was due that was answered.
    pub(crate) answered_us: u64,
    /// Who sent it.
    pub(crate) local: SocketAddr,
    /// When the first one after it was due that was not.
    pub(crate) lost_us: u64,
    /// When that was known.
    pub(crate) failed_us: u64,
    /// How it ended.
    pub(crate) outcome: &'a Outcome,
}

impl<'a> Beginning<'a> {
    /// As the history has it; none where nothing was answered before.
    pub(crate) fn of(events: &'a [Event], name: &TrafficName, gap: Span) -> Option<Self> {
        let samples = events.iter().filter_map(|event| match &event.what {
            EventKind::Sample { traffic, sample } if traffic == name => Some((event.at_us, sample)),
            _ => None,
        });
        let until: Vec<_> = samples.filter(|it| it.0 <= gap.from_us).collect();
        let answers = until
            .iter()
            .filter_map(|(at_us, sample)| match &sample.outcome {
                Outcome::Answered { local, .. } => Some((*at_us, *local)),
                _ => None,
            });
        let (answered_us, local) = answers.max_by_key(|it| it.0)?;
        let lost = until.iter().filter(|it| it.0 > answered_us);
        let (lost_us, sample) = lost.min_by_key(|it| it.0)?;
        Some(Self {
            answered_us,
            local,
            lost_us: *lost_us,
            failed_us: lost_us.saturating_add(sample.took_us),
            outcome: &sample.outcome,
        })
    }
}

/// Where the outage began that a gap is the end of: requests that pass for a moment in between, while all before and after them are
/// lost, do not end an outage.
pub(crate) fn outage_before(all: &[Gap], gap: Span) -> Span {
    let before = all.iter().rev().map(|it| it.span);
    let mut outage = gap;
    for span in before.filter(|span| span.to_us <= gap.from_us) {
        let passed_us = outage.from_us - span.to_us;
        let shorter_us = span.len_us().min(outage.len_us());
        if passed_us > A_MOMENT_US || SOME_PASS * passed_us > shorter_us {
            break;
        }
        outage.from_us = span.from_us;
    }
    outage
}

/// Whether a request was answered that was due in that time.
pub(crate) fn was_answered(events: &[Event], name: &TrafficName, due_us: Range<u64>) -> bool {
    let answered = |event: &Event| match &event.what {
        EventKind::Sample { traffic, sample } => {
            traffic == name && due_us.contains(&event.at_us) && sample.outcome.is_answered()
        }
        _ => false,
    };
    events.iter().any(answered)
}

/// Of so many requests that were lost the way is looked at.
const LOOKED_AT: usize = 12;

/// Some of the requests that were lost, from the first to the last of them: when they were due, and how they ended.
pub(crate) fn some_lost<'a>(
    events: &'a [Event],
    name: &TrafficName,
    within: Span,
) -> BTreeMap<u64, &'a Outcome> {
    let lost = events.iter().filter_map(|event| match &event.what {
        EventKind::Sample { traffic, sample }
            if traffic == name && within.contains(event.at_us) && !sample.outcome.is_answered() =>
        {
            Some((event.at_us, &sample.outcome))
        }
        _ => None,
    });
    let lost: BTreeMap<u64, &Outcome> = lost.collect();
    let every = lost.len().div_ceil(LOOKED_AT).max(1);
    lost.into_iter().step_by(every).collect()
}

/// A request: when it was due, when it ended, whether it was answered.
type Request = (u64, u64, bool);

/// The gaps of each traffic in the judged time, in order of time.
pub fn gaps(events: &[Event], judged: Span) -> IndexMap<TrafficName, Vec<Gap>> {
    let mut requests: IndexMap<TrafficName, Vec<Request>> = IndexMap::new();
    for event in events.iter().filter(|event| judged.contains(event.at_us)) {
        if let EventKind::Sample { traffic, sample } = &event.what {
            let end = event.at_us.saturating_add(sample.took_us);
            let request = (event.at_us, end, sample.outcome.is_answered());
            requests.entry(traffic.clone()).or_default().push(request);
        }
    }
    requests
        .into_iter()
        .map(|(name, requests)| (name, of(requests, judged)))
        .collect()
}

fn of(mut requests: Vec<Request>, judged: Span) -> Vec<Gap> {
    // Requests come in order of their end; gaps are about when they were due.
    requests.sort_unstable();
    let mut gaps = Vec::new();
    let mut open: Option<Gap> = None;
    for (due, end, answered) in requests {
        if answered {
            gaps.extend(open.take().map(|gap| Gap {
                span: Span {
                    to_us: due,
                    ..gap.span
                },
                answered_us: end,
                ended: true,
                ..gap
            }));
            continue;
        }
        let gap = open.get_or_insert(Gap {
            span: Span {
                from_us: due,
                ..judged
            },
            answered_us: judged.to_us,
            lost: 0,
            ended: false,
        });
        gap.lost += 1;
    }
    gaps.extend(open);
    gaps
}
