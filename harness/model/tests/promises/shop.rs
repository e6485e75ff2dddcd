//! A shop that is asked a hundred times a second, and what is said of a promise about it.

use std::collections::BTreeMap;

use chainbreak_model::{
    case::{Case, Origin},
    event::{Event, EventKind, Phase},
    judge,
    names::PromiseName,
    verdict::PromiseVerdict,
};
use chainbreak_probe::wire::{Outcome, Sample};

use crate::judged::{self, at};

/// Judged from 1 s to 5 s, with a mark at 2 s and one at 4 s; a request due every 10 ms.
fn case(promise: &str) -> Case {
    let text = format!(
        "
name: judged
about: what the judge is shown
cluster: {{ nodes: 2, kube-proxy: {{ version: '1.32' }} }}
manifests:
  - {{ apiVersion: v1, kind: Pod, metadata: {{ name: client }}, spec: {{ containers: [{{ name: c }}] }} }}
traffic:
  shop: {{ from: node/n1, to: pod/default/client, port: 80, every: 10ms }}
timeline: [settle: 1s, mark: cut, settle: 2s, mark: healed, settle: 1s]
promises:
  it: {promise}
variants:
  only: {{ expect: healthy }}
"
    );
    judged::case(&text, "only")
}

fn mark(ms: u64, name: &str) -> Event {
    at(ms, EventKind::Mark { name: name.into() })
}

/// A run whose requests end as told.
pub(crate) fn run(outcome: impl Fn(u64) -> Outcome) -> Vec<Event> {
    let mut events = vec![
        at(1000, EventKind::Phase(Phase::Judging)),
        mark(2000, "cut"),
        mark(4000, "healed"),
        at(5000, EventKind::Phase(Phase::Judged)),
    ];
    events.extend((90..520).map(|i| {
        let sample = Sample {
            at_us: i * 10_000,
            took_us: 500,
            late_us: None,
            outcome: outcome(i * 10),
        };
        let traffic = "shop".into();
        at(i * 10, EventKind::Sample { traffic, sample })
    }));
    events
}

pub(crate) fn seen_as(client: &str, backend: &str) -> Outcome {
    Outcome::Answered {
        backend: backend.to_owned(),
        seen_as: Some(client.parse().expect("an address")),
        local: "10.0.0.1:40000".parse().expect("an address"),
    }
}

pub(crate) fn answered(_: u64) -> Outcome {
    seen_as("10.0.0.1:40000", "web")
}

/// Lost in these milliseconds.
pub(crate) fn lost(hole: std::ops::Range<u64>) -> impl Fn(u64) -> Outcome {
    move |ms| {
        if hole.contains(&ms) {
            Outcome::Reset
        } else {
            answered(ms)
        }
    }
}

/// A look at the counter of a promise, on both nodes.
pub(crate) fn looks(ms: u64, value: u64, rewritten: u64) -> [Event; 2] {
    looks_at("it", ms, value, rewritten)
}

/// The same of the counter that the history calls so.
pub(crate) fn looks_at(counter: &str, ms: u64, value: u64, rewritten: u64) -> [Event; 2] {
    ["n1", "n2"].map(|node| {
        let of = |n: u64| BTreeMap::from([(counter.into(), n)]);
        let what = EventKind::Counters {
            at: Origin::Node(node.into()),
            values: of(value),
            rewritten: of(rewritten),
            unmatched: BTreeMap::new(),
        };
        at(ms, what)
    })
}

pub(crate) fn verdict(promise: &str, events: &[Event]) -> String {
    let judged = judge(&case(promise), events);
    let verdict: &PromiseVerdict = &judged.promises[&PromiseName::from("it")].verdict;
    verdict.to_string()
}
