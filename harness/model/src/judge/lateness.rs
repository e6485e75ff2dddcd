//! Whether the machine kept up. What it had too little time for says nothing of the cluster: a promise that may be about that is
//! unknown, whatever was seen. Histories that do not tell of lateness are judged without.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    case::{Case, Claim, Promise},
    event::{Event, EventKind, Starved},
    names::TrafficName,
    verdict::Span,
};

/// How late a request may be begun, where its traffic has many in that time. In a catalogue of two cores that were busy for most of the time
/// the latest was begun 20 ms after it was due.
const LATE: Duration = Duration::from_millis(250);
/// And of traffic with few: so many times the distance of two.
const DISTANCES: u32 = 10;
/// For how long something of the case may wait for a processor, in all: what is short-lived waits a little each, and its agent for all of it.
/// In 620 cases of two cores the longest was 0.81 s, where conntrack tables were filled. With a tenth of a core a full sync of kube-proxy took
/// two seconds in place of a quarter of one, of which it was told to have waited 0.99 s: it healed too late for its promise. Of 877 cases with a
/// tenth or a fifth of a core 7 were wrong without any bound, and none with this one.
const STARVED_US: u64 = 900_000;

/// What the history says of lateness.
#[derive(Debug)]
pub(super) struct Lateness {
    /// When each traffic's requests were due, and how late they were begun.
    requests: BTreeMap<TrafficName, Vec<(u64, u64)>>,
    starved: Vec<Starved>,
}

impl Lateness {
    pub(super) fn new(case: &Case) -> Self {
        let names = case.traffic.keys().cloned();
        Self {
            requests: names.map(|name| (name, Vec::new())).collect(),
            starved: Vec::new(),
        }
    }

    pub(super) fn see(&mut self, event: &Event) {
        match &event.what {
            EventKind::Starved(starved) => self.starved.push(starved.clone()),
            EventKind::Sample { traffic, sample } => {
                let known = self.requests.get_mut(traffic).zip(sample.late_us);
                if let Some((requests, late_us)) = known {
                    requests.push((event.at_us, late_us));
                }
            }
            _ => {}
        }
    }

    /// Why a promise about that window cannot be judged. What the agents were too late for before it, in the judged time, may come out in
    /// it.
    pub(super) fn doubt(
        &self,
        case: &Case,
        promise: &Promise,
        judged: Span,
        window: Span,
    ) -> Option<String> {
        let consequential = Span {
            from_us: judged.from_us,
            to_us: window.to_us,
        };
        let why = self
            .waited(consequential)
            .or_else(|| self.late(case, &promise.claim, window))?;
        Some(format!("too little machine: {why}"))
    }

    /// How long there was something that waited for a processor, if that was too long.
    fn waited(&self, span: Span) -> Option<String> {
        let within = |starved: &Starved| {
            let all = Span {
                from_us: starved.from_us,
                to_us: starved.to_us,
            };
            let part = all.within(span)?;
            Some((starved.waited_us.min(part.len_us()), part.from_us))
        };
        let known = self.starved.iter().filter_map(|it| Some((within(it)?, it)));
        let known: Vec<_> = known.collect();
        let all_us = known.iter().map(|((waited_us, _), _)| waited_us).sum();
        let ((longest_us, from_us), longest) =
            known.iter().max_by_key(|((waited_us, _), _)| *waited_us)?;
        (all_us > STARVED_US).then(|| {
            let who = &longest.who;
            let [waited, all] = seconds([*longest_us, all_us]);
            let [from, most] = seconds([*from_us, STARVED_US]);
            let had = longest.ran_us.map_or_else(String::new, |ran_us| {
                let [ran] = seconds([ran_us]);
                format!(", and had one for {ran:.2} s")
            });
            let others = match known.len() {
                1 => String::new(),
                _ => format!(", others before or after it, {all:.2} s in all"),
            };
            format!(
                "{who} waited {waited:.2} s for a processor, from {from:.2} s on{had}{others} (at most {most:.2} s)"
            )
        })
    }

    /// The latest request of that time, if it was too late.
    fn late(&self, case: &Case, claim: &Claim, window: Span) -> Option<String> {
        let name = claim.traffic()?;
        let most_us = bound_us(case.traffic.get(name)?.every, claim);
        let touches = |(due_us, late_us): &&(u64, u64)| {
            *due_us < window.to_us && due_us.saturating_add(*late_us) >= window.from_us
        };
        let touching = self.requests.get(name)?.iter().filter(touches);
        let (due_us, late_us) = touching.copied().max_by_key(|(_, late_us)| *late_us)?;
        (late_us > most_us).then(|| {
            let [due, late, most] = seconds([due_us, late_us, most_us]);
            format!(
                "the request of {name} due at {due:.2} s was sent {late:.2} s late (at most {most:.2} s)"
            )
        })
    }
}

/// How late requests may be for what is promised of them.
fn bound_us(every: Duration, claim: &Claim) -> u64 {
    let own = match claim {
        Claim::Available { longest_gap, .. } => *longest_gap,
        Claim::Recovers { within, .. } => Some(*within),
        _ => None,
    };
    let general = every.saturating_mul(DISTANCES).max(LATE);
    let bound = own.map_or(general, |own| own.min(general));
    u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)
}

fn seconds<const N: usize>(us: [u64; N]) -> [f64; N] {
    us.map(|us| us as f64 / 1e6)
}
