//! The requests of a traffic as a strip: how long the slowest answer of each cell took, and how many requests of it were lost.
//! Where there are few requests each has a cell of its own.

use chainbreak_model::{
    case::{Destination, Traffic},
    event::{Event, EventKind},
    names::TrafficName,
};
use chainbreak_probe::wire::{Connections, Protocol, Sample};
use indexmap::IndexMap;

use super::axis::Scale;
use crate::{finding::ExplainedGap, gaps::Gap, text::length};

/// A strip has so many cells at most.
const CELLS: u64 = 240;

/// The requests of a traffic.
#[derive(Debug)]
pub(super) struct Strip {
    pub(super) name: TrafficName,
    /// Where from, where to, how.
    pub(super) way: String,
    /// From edge to edge of the axis; `None` where nothing was due.
    pub(super) cells: Vec<Option<Cell>>,
    /// How many cells the axis is long.
    pub(super) cells_long: f64,
    /// Where on it the first cell begins, in cells: requests are due at its beginning, so that each begins a cell.
    pub(super) begins: f64,
    /// How many ended how while it was judged.
    pub(super) ended: IndexMap<&'static str, usize>,
    /// Of those that were answered.
    pub(super) latency: Option<Latency>,
    /// The times in which nothing was answered, but for single requests.
    pub(super) dead: Vec<Gap>,
    /// How many of all gaps there were: single lost requests, too.
    pub(super) gaps: usize,
    /// The longest of them, and who cut and who healed them, in order of time.
    pub(super) told: Vec<ExplainedGap>,
}

/// The requests that were due in the same part of a strip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) sent: u32,
    pub(super) lost: u32,
    /// How long the slowest answer took.
    pub(super) slowest_us: u64,
}

/// How long answers took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Latency {
    /// Half of them took no longer.
    pub(super) median: u64,
    /// 99 of 100 took no longer.
    pub(super) p99: u64,
    /// None took longer.
    pub(super) longest: u64,
}

impl Strip {
    /// Of the traffic's requests in that history; `judged` are those that count.
    pub(super) fn of(
        (name, traffic): (&TrafficName, &Traffic),
        events: &[Event],
        scale: &Scale,
        judged: impl Fn(u64) -> bool,
    ) -> Self {
        let cell_us = cell_us(traffic, scale);
        let shown = samples(events, name).filter(|(at_us, _)| scale.shows(*at_us));
        let first = shown.map(|(at_us, _)| scale.offset(at_us)).min();
        let phase = first.unwrap_or(0) % cell_us;
        let cells = usize::try_from(scale.total_us().div_ceil(cell_us)).unwrap_or(0);
        let mut strip = Self {
            name: name.clone(),
            way: way(traffic),
            cells: vec![None; cells],
            cells_long: scale.total_us() as f64 / cell_us as f64,
            begins: phase as f64 / cell_us as f64,
            ended: IndexMap::new(),
            latency: None,
            dead: Vec::new(),
            gaps: 0,
            told: Vec::new(),
        };
        let mut took = Vec::new();
        for (at_us, sample) in samples(events, name) {
            if judged(at_us) {
                *strip.ended.entry(sample.outcome.word()).or_default() += 1;
                took.extend(sample.outcome.is_answered().then_some(sample.took_us));
            }
            let at = scale.offset(at_us).saturating_sub(phase) / cell_us;
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            if scale.shows(at_us)
                && let Some(cell) = strip.cells.get_mut(at)
            {
                cell.get_or_insert_default().take(sample);
            }
        }
        strip.latency = Latency::of(took);
        strip
    }

    /// The same, with the times in which nothing was answered.
    pub(super) fn with_gaps(mut self, gaps: &[Gap], mut told: Vec<ExplainedGap>) -> Self {
        told.sort_by_key(|it| it.gap.span.from_us);
        let dead = gaps.iter().filter(|gap| gap.lost > 1);
        self.dead = dead.copied().collect();
        self.gaps = gaps.len();
        self.told = told;
        self
    }
}

impl Cell {
    fn take(&mut self, sample: &Sample) {
        self.sent += 1;
        if sample.outcome.is_answered() {
            self.slowest_us = self.slowest_us.max(sample.took_us);
        } else {
            self.lost += 1;
        }
    }
}

impl Latency {
    fn of(mut took: Vec<u64>) -> Option<Self> {
        took.sort_unstable();
        let longest = *took.last()?;
        let at = |share: usize| took.get((took.len() - 1) * share / 100).copied();
        Some(Self {
            median: at(50)?,
            p99: at(99)?,
            longest,
        })
    }
}

/// How long a cell is: as long as the traffic waits from request to request, where that makes not too many.
fn cell_us(traffic: &Traffic, scale: &Scale) -> u64 {
    let every_us = u64::try_from(traffic.every.as_micros()).unwrap_or(u64::MAX);
    every_us.max(scale.total_us().div_ceil(CELLS)).max(1)
}

fn samples<'a>(
    events: &'a [Event],
    of: &'a TrafficName,
) -> impl Iterator<Item = (u64, &'a Sample)> {
    events.iter().filter_map(move |event| match &event.what {
        EventKind::Sample { traffic, sample } if traffic == of => Some((event.at_us, sample)),
        _ => None,
    })
}

fn way(traffic: &Traffic) -> String {
    let (from, to, port) = (&traffic.from, to(&traffic.to), traffic.port);
    let protocol = traffic.protocol.as_str();
    let connections = match (traffic.connections, traffic.protocol) {
        (Connections::New, Protocol::Tcp) => "a new connection for each request",
        (Connections::New, Protocol::Udp) => "a new port for each request",
        (Connections::Kept, Protocol::Tcp) => "one connection as long as it lives",
        (Connections::Kept, Protocol::Udp) => "one port for all requests",
    };
    let every = length(u64::try_from(traffic.every.as_micros()).unwrap_or(u64::MAX));
    format!("{from} → {to}, port {port}, {protocol}, every {every}, {connections}")
}

/// As scenarios write it.
fn to(destination: &Destination) -> String {
    match destination {
        Destination::Service { namespace, name } => format!("service/{namespace}/{name}"),
        Destination::Pod { namespace, name } => format!("pod/{namespace}/{name}"),
        Destination::NodePort {
            node,
            namespace,
            name,
        } => format!("node-port/{node}/{namespace}/{name}"),
        Destination::Host(name) => format!("host/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::{case::Origin, verdict::Span};
    use chainbreak_probe::wire::Outcome;

    use super::*;
    use crate::{
        html::axis::Axis,
        summary::{Summary, of_skipped},
    };

    fn strip(every_ms: u64, requests: &[(u64, bool)]) -> Strip {
        let judged = Span {
            from_us: 1_000_000,
            to_us: 11_000_000,
        };
        let case = Summary {
            judged: Some(judged),
            ..of_skipped("a/b", "")
        };
        let traffic = Traffic {
            from: Origin::Host("outside".to_owned()),
            to: Destination::Host("db".to_owned()),
            protocol: Protocol::Tcp,
            port: 80,
            family: None,
            every: Duration::from_millis(every_ms),
            connections: Connections::New,
            timeout: Duration::from_secs(1),
        };
        let event = |&(at_us, answered)| {
            let local = ([10, 20, 1, 2], 40_000).into();
            let answer = Outcome::Answered {
                backend: String::new(),
                seen_as: None,
                local,
            };
            let sample = Sample {
                at_us,
                took_us: at_us / 1_000,
                late_us: None,
                outcome: if answered { answer } else { Outcome::TimedOut },
            };
            let traffic = "asks".into();
            Event {
                at_us,
                what: EventKind::Sample { traffic, sample },
            }
        };
        let events: Vec<Event> = requests.iter().map(event).collect();
        let scale = Axis::of(std::iter::once(&case)).scale(&case);
        let counts = |at_us| judged.contains(at_us);
        Strip::of((&"asks".into(), &traffic), &events, &scale, counts)
    }

    #[test]
    fn few_requests_have_a_cell_each_which_begins_when_one_is_due() {
        let requests = [(1_030_000, true), (1_530_000, false), (2_030_000, true)];
        let strip = strip(500, &requests);
        assert_eq!((strip.cells.len(), strip.cells_long), (22, 21.5));
        // Half a second of lead, and 30 ms.
        assert_eq!(format!("{:.2}", strip.begins), "0.06");
        let lost = strip
            .cells
            .iter()
            .flatten()
            .map(|cell| (cell.sent, cell.lost));
        assert_eq!(lost.collect::<Vec<_>>(), [(1, 0), (1, 1), (1, 0)]);
        assert_eq!(strip.ended[Outcome::ANSWERED], 2);
    }

    #[test]
    fn many_requests_share_cells_and_the_slowest_answer_is_seen() {
        let due = (0..10_000).map(|n| (1_000_000 + n * 1_000, n % 10 != 0));
        let strip = strip(1, &due.collect::<Vec<_>>());
        assert_eq!(strip.cells.len(), 240);
        let cells = strip.cells.iter().flatten();
        let (sent, lost) = cells.fold((0, 0), |sum, it| (sum.0 + it.sent, sum.1 + it.lost));
        assert_eq!((sent, lost), (10_000, 1_000));
        let slowest = strip
            .cells
            .iter()
            .flatten()
            .map(|cell| cell.slowest_us)
            .max();
        assert_eq!(slowest, Some(10_999));
    }

    #[test]
    fn of_a_hundred_answers_one_may_take_longer_than_what_99_took() {
        let latency = Latency::of((1..=101).rev().collect()).unwrap();
        let Latency {
            median,
            p99,
            longest,
        } = latency;
        assert_eq!((median, p99, longest), (51, 100, 101));
        assert_eq!(Latency::of(Vec::new()), None);
    }
}
