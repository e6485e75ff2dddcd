//! The judge: what was not seen is unknown, what was seen decides.

mod judged;

use chainbreak_model::{
    case::Case,
    event::{Event, EventKind, LogEntry, Phase, RulesSeen},
    judge,
    names::{AgentName, NodeName, PromiseName, TrafficName},
    verdict::{CaseVerdict, Evidence, PromiseVerdict, Requests, Span, Verdict},
};
use chainbreak_probe::wire::{Outcome, Sample};
use judged::at;
use proptest::prelude::*;

/// Judged from 1 s to 3 s, a request due every 10 ms: 200 requests.
const SCENARIO: &str = r"
name: judged
about: what the judge is shown
cluster: { nodes: 2, kube-proxy: { version: '1.32' } }
manifests:
  - { apiVersion: v1, kind: Pod, metadata: { name: client }, spec: { containers: [{ name: c }] } }
traffic:
  shop: { from: node/n1, to: pod/default/client, port: 80, every: 10ms }
timeline: [settle: 2s]
promises:
  answers: { available: { traffic: shop, at-least: 90%, longest-gap: 50ms } }
  quiet: { no-log: { agent: kube-proxy, matches: 'Failed to .* iptables-restore' } }
  jump: { has-rule: { table: nat, chain: PREROUTING, jump: KUBE-SERVICES, always: true } }
variants:
  healthy: { expect: healthy }
  incident: { cluster: { nodes: 1 }, expect: { broken: [answers] } }
";

fn case(variant: &str) -> Case {
    judged::case(SCENARIO, variant)
}

fn answered() -> Outcome {
    let local = ([10, 0, 0, 1], 1).into();
    Outcome::Answered {
        backend: "web".to_owned(),
        seen_as: None,
        local,
    }
}

fn request(ms: u64, outcome: Outcome) -> Event {
    let sample = Sample {
        at_us: ms * 1000,
        took_us: 500,
        late_us: None,
        outcome,
    };
    at(
        ms,
        EventKind::Sample {
            traffic: TrafficName::from("shop"),
            sample,
        },
    )
}

fn says(ms: u64, node: &str, text: &str) -> Event {
    let (agent, node) = (AgentName::KubeProxy, NodeName::from(node));
    at(
        ms,
        EventKind::Log(LogEntry {
            agent,
            node,
            text: text.to_owned(),
        }),
    )
}

fn rule(ms: u64, node: &str, count: usize) -> Event {
    let query = "jump".into();
    at(
        ms,
        EventKind::Rules(RulesSeen {
            node: NodeName::from(node),
            query,
            count,
        }),
    )
}

/// A run in which everything was seen and nothing went wrong.
fn quiet_run() -> Vec<Event> {
    let mut events = vec![
        at(0, EventKind::Phase(Phase::Raising)),
        says(100, "n1", "Starting"),
        says(100, "n2", "Starting"),
        rule(200, "n1", 1),
        rule(200, "n2", 1),
        at(900, EventKind::Phase(Phase::Ready)),
        at(1000, EventKind::Phase(Phase::Judging)),
    ];
    events.extend((0..220).map(|i| request(900 + i * 10, answered())));
    events.push(at(3000, EventKind::Phase(Phase::Judged)));
    events
}

/// The run with the requests due in the given milliseconds unanswered.
fn with_hole(hole: std::ops::Range<u64>) -> Vec<Event> {
    let mut events = quiet_run();
    for event in &mut events {
        if let EventKind::Sample { sample, .. } = &mut event.what
            && hole.contains(&(event.at_us / 1000))
        {
            sample.outcome = Outcome::TimedOut;
        }
    }
    events
}

fn promise<'a>(verdict: &'a Verdict, name: &str) -> &'a PromiseVerdict {
    &verdict.promises[&PromiseName::from(name)].verdict
}

fn requests(verdict: &Verdict) -> &Requests {
    match promise(verdict, "answers").evidence() {
        Some(Evidence::Requests(requests)) => requests,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_quiet_run_keeps_everything() {
    let verdict = judge(&case("healthy"), &quiet_run());
    assert_eq!(verdict.case, CaseVerdict::AsExpected);
    let requests = requests(&verdict);
    assert_eq!(
        (requests.sent, requests.answered, requests.gaps),
        (200, 200, 0)
    );
    assert!(
        verdict
            .promises
            .values()
            .all(|judged| judged.verdict.word() == "kept")
    );
}

#[test]
fn a_gap_lasts_from_the_first_unanswered_request_to_the_next_answered_one() {
    let verdict = judge(&case("healthy"), &with_hole(1500..1560));
    assert_eq!(verdict.case, CaseVerdict::NotAsExpected);
    let requests = requests(&verdict);
    assert_eq!(
        requests.longest_gap,
        Some(Span {
            from_us: 1_500_000,
            to_us: 1_560_000
        })
    );
    assert_eq!(requests.outcomes["timed out"], 6);
    assert_eq!(
        promise(&verdict, "answers").to_string(),
        "broken: 97.00 % answered (194 of 200), longest gap 0.060 s from 1.50 s"
    );
}

#[test]
fn a_gap_of_the_allowed_length_is_allowed_and_one_at_the_end_counts_to_the_end() {
    let verdict = judge(&case("healthy"), &with_hole(1500..1550));
    assert_eq!(promise(&verdict, "answers").word(), "kept");
    let verdict = judge(&case("healthy"), &with_hole(2900..4000));
    let gap = requests(&verdict).longest_gap.unwrap();
    assert_eq!(
        gap,
        Span {
            from_us: 2_900_000,
            to_us: 3_000_000
        }
    );
}

#[test]
fn what_happens_outside_the_judged_time_is_not_judged() {
    let mut events = with_hole(0..1000);
    events.push(rule(3100, "n1", 0));
    events.push(says(3200, "n1", "Failed to execute iptables-restore"));
    events.push(says(500, "n1", "Failed to execute iptables-restore"));
    assert_eq!(
        judge(&case("healthy"), &events).case,
        CaseVerdict::AsExpected
    );
}

#[test]
fn an_incident_that_did_not_reproduce_is_not_as_expected() {
    assert_eq!(
        judge(&case("incident"), &quiet_run()).case,
        CaseVerdict::NotAsExpected
    );
    assert_eq!(
        judge(&case("incident"), &with_hole(1500..2000)).case,
        CaseVerdict::AsExpected
    );
}

#[test]
fn a_log_entry_that_matches_breaks_a_promise_of_none() {
    let mut events = quiet_run();
    events.push(says(
        2000,
        "n2",
        "Failed to execute iptables-restore\nsecond line",
    ));
    events.push(says(1500, "n2", "Failed to execute iptables-restore"));
    let verdict = judge(&case("healthy"), &events);
    assert_eq!(
        promise(&verdict, "quiet").to_string(),
        "broken: 2 entries of kube-proxy's log, the first on n2 at 1.50 s"
    );
}

#[test]
fn a_rule_is_absent_from_the_look_that_missed_it_to_the_look_that_found_it() {
    let mut events = quiet_run();
    events.extend([rule(600, "n1", 0), rule(1200, "n1", 2), rule(2000, "n2", 0)]);
    let verdict = judge(&case("healthy"), &events);
    let Some(Evidence::Rule(presence)) = promise(&verdict, "jump").evidence() else {
        panic!()
    };
    let span = |from_us, to_us| Span { from_us, to_us };
    assert_eq!(
        presence.wrong[&NodeName::from("n1")],
        [span(1_000_000, 1_200_000)]
    );
    assert_eq!(
        presence.wrong[&NodeName::from("n2")],
        [span(2_000_000, 3_000_000)]
    );
    assert_eq!(presence.first().unwrap().0, &NodeName::from("n1"));
}

/// Without the events that the filter drops, the promise is unknown and the case inconclusive.
fn unknown_without(name: &str, keep: impl Fn(&Event) -> bool) -> String {
    let mut events = quiet_run();
    events.retain(keep);
    let verdict = judge(&case("healthy"), &events);
    assert_eq!(verdict.case, CaseVerdict::Inconclusive);
    match promise(&verdict, name) {
        PromiseVerdict::Unknown { cause } => cause.clone(),
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_not_seen_is_unknown_and_never_kept() {
    let is_request = |event: &Event| matches!(event.what, EventKind::Sample { .. });
    let causes = [
        unknown_without("answers", |event| !is_request(event)),
        unknown_without("answers", |event| {
            !is_request(event) || event.at_us < 2_000_000
        }),
        unknown_without(
            "quiet",
            |event| !matches!(&event.what, EventKind::Log(l) if l.node.as_str() == "n2"),
        ),
        unknown_without(
            "jump",
            |event| !matches!(&event.what, EventKind::Rules(r) if r.node.as_str() == "n1"),
        ),
        unknown_without("jump", |event| {
            event.what != EventKind::Phase(Phase::Judged)
        }),
        unknown_without("jump", |event| {
            event.what != EventKind::Phase(Phase::Judging)
        }),
    ];
    insta::assert_snapshot!(causes.join("\n"));
}

#[test]
fn a_broken_promise_outweighs_an_unknown_one_and_trouble_outweighs_both() {
    let mut events = with_hole(1500..2500);
    events.retain(|event| !matches!(event.what, EventKind::Rules(_)));
    assert_eq!(
        judge(&case("healthy"), &events).case,
        CaseVerdict::NotAsExpected
    );
    events.push(at(
        2000,
        EventKind::Trouble {
            text: "the disk is full".to_owned(),
        },
    ));
    let verdict = judge(&case("healthy"), &events);
    assert_eq!(verdict.case, CaseVerdict::Inconclusive);
    assert_eq!(verdict.trouble, ["the disk is full"]);
}

#[test]
fn a_verdict_goes_through_json_unchanged() {
    let verdict = judge(&case("healthy"), &with_hole(1500..2000));
    let text = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
}

proptest! {
    /// Any holes, in any order of arrival: the longest gap is the longest run of losses, and every
    /// request counts once.
    #[test]
    fn the_longest_gap_is_the_longest_run_of_losses(
        lost in proptest::collection::vec(any::<bool>(), 200),
        order in any::<u64>(),
    ) {
        let mut events: Vec<Event> = quiet_run()
            .into_iter()
            .filter(|event| !matches!(event.what, EventKind::Sample { .. }))
            .collect();
        let outcome = |lost: bool| if lost { Outcome::Refused } else { answered() };
        let mut requests: Vec<Event> = (0u64..)
            .zip(&lost)
            .map(|(i, lost)| request(1000 + i * 10, outcome(*lost)))
            .collect();
        requests.sort_by_key(|event| (event.at_us / 10_000).wrapping_mul(order | 1).rotate_left(7));
        events.extend(requests);
        let runs = lost.split(|lost| !lost).map(<[bool]>::len);
        let longest = runs.max().unwrap_or_default() as u64 * 10_000;
        let verdict = judge(&case("healthy"), &events);
        let Some(Evidence::Requests(seen)) = promise(&verdict, "answers").evidence() else {
            return Err(TestCaseError::fail("no evidence"));
        };
        prop_assert_eq!(seen.longest_gap.map_or(0, Span::len_us), longest);
        prop_assert_eq!(seen.outcomes.values().sum::<u64>(), 200);
        prop_assert_eq!(seen.sent - seen.answered, lost.iter().filter(|lost| **lost).count() as u64);
    }
}
