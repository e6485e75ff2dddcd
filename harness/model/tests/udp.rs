//! Traffic over UDP: what it can be, and what is said of what it cannot.

mod judged;

use std::{io, path::Path};

use chainbreak_model::{
    case::{Capabilities, Case},
    event::{Event, EventKind, Phase},
    judge,
    names::PromiseName,
    plan,
    plan::{Choice, Planned},
    read,
};
use chainbreak_probe::wire::{Connections, Outcome, Protocol, Sample};
use judged::at;

const GOOD: &str = "
name: good
about: questions over UDP
cluster: { nodes: 1, kube-proxy: { version: '1.32' } }
manifests:
  - { apiVersion: v1, kind: Pod, metadata: { name: client }, spec: { containers: [{ name: c }] } }
  - apiVersion: v1
    kind: Service
    metadata: { namespace: test, name: dns }
    spec: { type: NodePort, ports: [{ name: dns, port: 53, protocol: UDP }, { name: tcp, port: 53 }, { name: http, port: 80 }] }
traffic:
  asks: { from: pod/client, to: service/test/dns, port: 53, protocol: udp, every: 50ms, connections: kept }
timeline: [settle: 1s, mark: cut, settle: 2s]
promises:
  it: { available: { traffic: asks } }
variants:
  only: { expect: healthy }
";

fn case(text: &str) -> Case {
    judged::case(text, "only")
}

/// What is said of the good scenario with a text in it replaced.
fn said_of(good: &str, bad: &str) -> String {
    assert!(GOOD.contains(good), "{good}");
    said(&GOOD.replace(good, bad))
}

fn said(scenario: &str) -> String {
    let none = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    read(Path::new("scenarios/bad.yaml"), scenario.as_bytes(), &none)
        .expect_err("it is bad")
        .plain()
}

#[test]
fn traffic_goes_over_tcp_unless_it_says_udp() {
    let asks = |text: &str| case(text).traffic.values().next().cloned().unwrap();
    let udp = asks(GOOD);
    assert_eq!(
        (udp.protocol, udp.connections),
        (Protocol::Udp, Connections::Kept)
    );
    let tcp = asks(&GOOD.replace("protocol: udp, ", ""));
    assert_eq!(tcp.protocol, Protocol::Tcp);
}

#[test]
fn a_port_is_one_of_its_protocol() {
    let asked = "port: 53, protocol: udp";
    let to = "to: service/test/dns, port: 53, protocol: udp";
    let said = [
        said_of(asked, "port: 80, protocol: udp"),
        said_of(asked, "port: 54, protocol: udp"),
        said_of(asked, "port: 53, protocol: sctp"),
        said_of(
            "{ name: dns, port: 53, protocol: UDP }, { name: tcp, port: 53 }",
            "{ port: 54 }",
        ),
        said(
            &GOOD
                .replace("{ name: tcp, port: 53 }, ", "")
                .replace(", protocol: udp", ""),
        ),
        said(
            &GOOD
                .replace(
                    "version: '1.32' }",
                    "version: '1.32' }, hosts: { db: { nginx: 53 } }",
                )
                .replace(to, "to: host/db, port: 53, protocol: udp"),
        ),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn what_udp_has_not_is_neither_promised_nor_crafted() {
    let said = [
        said_of(
            "available: { traffic: asks }",
            "resets: { traffic: asks, at-most: 0 }",
        ),
        said_of(
            "settle: 1s,",
            "{ craft: { traffic: asks, segment: reset, for: 1s } },",
        ),
        said_of(
            "available: { traffic: asks }",
            "balance: { traffic: asks, over: 2 }",
        ),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

/// A run whose questions end as told, by when they were due in milliseconds.
fn run(outcome: impl Fn(u64) -> Outcome) -> Vec<Event> {
    let mut events = vec![
        at(1000, EventKind::Phase(Phase::Judging)),
        at(2000, EventKind::Mark { name: "cut".into() }),
        at(4000, EventKind::Phase(Phase::Judged)),
    ];
    events.extend((18..82).map(|i| {
        let sample = Sample {
            at_us: i * 50_000,
            took_us: 500,
            late_us: None,
            outcome: outcome(i * 50),
        };
        let traffic = "asks".into();
        at(i * 50, EventKind::Sample { traffic, sample })
    }));
    events
}

fn from_port(port: u16) -> Outcome {
    Outcome::Answered {
        backend: "statsd".to_owned(),
        seen_as: Some(([10, 20, 1, 2], port).into()),
        local: ([10, 20, 1, 2], port).into(),
    }
}

#[test]
fn questions_are_judged_as_requests_are() {
    let verdict = |promise: &str, outcome: fn(u64) -> Outcome| {
        let case = case(&GOOD.replace("{ available: { traffic: asks } }", promise));
        let judged = judge(&case, &run(outcome));
        judged.promises[&PromiseName::from("it")]
            .verdict
            .to_string()
    };
    let stuck = |ms: u64| match ms {
        0..2500 => from_port(40_000),
        _ => Outcome::TimedOut,
    };
    let refused = |ms: u64| match ms {
        2500..2600 => Outcome::Refused,
        _ => from_port(40_000),
    };
    let told = [
        verdict("{ available: { traffic: asks } }", stuck),
        verdict(
            "{ recovers: { traffic: asks, after: cut, within: 1s } }",
            stuck,
        ),
        verdict(
            "{ recovers: { traffic: asks, after: cut, within: 1s } }",
            refused,
        ),
        verdict("{ source: { traffic: asks, is: 10.20.1.0/24 } }", stuck),
        verdict(
            "{ source-ports: { traffic: asks, within: 50000-60000 } }",
            stuck,
        ),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn whoever_answers_over_udp_tells_the_same_everywhere() {
    let text = GOOD.replace(
        "available: { traffic: asks }",
        "source: { traffic: asks, is: client }",
    );
    let choice = Choice {
        backend: "kind".to_owned(),
        real_clusters: true,
        ..Choice::default()
    };
    let lacks = |text: &str| {
        let none = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
        let scenario = read(Path::new("scenarios/good.yaml"), text.as_bytes(), &none);
        let scenario = scenario.unwrap_or_else(|error| panic!("{}", error.plain()));
        match plan(&scenario, &choice, &Capabilities::default()).remove(0) {
            Planned::Skip(skipped) => skipped.reason(),
            Planned::Run(case) => panic!("{} needs a kind", case.id()),
        }
    };
    assert!(
        !lacks(&text).contains("telling-servers"),
        "{}",
        lacks(&text)
    );
    let tcp = text.replace("protocol: udp, ", "");
    assert!(lacks(&tcp).contains("telling-servers"), "{}", lacks(&tcp));
}

#[test]
fn an_old_history_without_a_protocol_is_one_of_tcp() {
    let case = case(GOOD);
    let mut json = serde_json::to_value(&case).unwrap();
    json["traffic"]["asks"]
        .as_object_mut()
        .unwrap()
        .remove("protocol");
    let old: Case = serde_json::from_value(json).unwrap();
    let protocols: Vec<_> = old.traffic.values().map(|it| it.protocol).collect();
    assert_eq!(protocols, [Protocol::Tcp]);
}
