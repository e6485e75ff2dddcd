//! What is said of a time in which the machine was too slow.

use std::ops::Range;

use chainbreak_model::event::{Event, EventKind, Starved};
use chainbreak_probe::wire::Sample;

use crate::{
    judged::at,
    shop::{answered, lost, run, verdict},
};

/// The requests that were due in those milliseconds.
fn due(events: &mut [Event], span: &Range<u64>, change: impl Fn(u64, &mut Sample)) {
    for event in events {
        let ms = event.at_us / 1000;
        if let EventKind::Sample { sample, .. } = &mut event.what
            && span.contains(&ms)
        {
            change(ms, sample);
        }
    }
}

/// The run with a probe that stood still in those milliseconds.
fn stopped(mut events: Vec<Event>, span: Range<u64>) -> Vec<Event> {
    due(&mut events, &span, |ms, sample| {
        let late_us = (span.end - ms) * 1000;
        sample.late_us = Some(late_us);
        sample.took_us += late_us;
    });
    events
}

const ANSWERS: &str = "{ available: { traffic: shop } }";

fn available(rest: &str) -> String {
    format!("{{ available: {{ traffic: shop, {rest} }} }}")
}

#[test]
fn a_promise_whose_requests_were_sent_later_than_its_bound_is_unknown() {
    let unknown = "unknown: too little machine: the request of shop due at 2.50 s was sent";
    assert_eq!(
        verdict(ANSWERS, &stopped(run(answered), 2500..4700)),
        format!("{unknown} 2.20 s late (at most 0.25 s)")
    );
    let seen_broken = stopped(run(lost(3000..3100)), 2500..2800);
    assert_eq!(
        verdict(ANSWERS, &seen_broken),
        format!("{unknown} 0.30 s late (at most 0.25 s)")
    );
    let a_bit = stopped(run(answered), 2500..2700);
    assert!(verdict(ANSWERS, &a_bit).starts_with("kept"));
    assert_eq!(
        verdict(&available("longest-gap: 50ms"), &a_bit),
        format!("{unknown} 0.20 s late (at most 0.05 s)")
    );
    let recovers = "{ recovers: { traffic: shop, after: cut, within: 100ms } }";
    assert_eq!(
        verdict(recovers, &a_bit),
        format!("{unknown} 0.20 s late (at most 0.10 s)")
    );
}

#[test]
fn only_the_time_in_which_requests_were_late_is_unknown() {
    let events = stopped(run(answered), 2500..3500);
    assert!(verdict(&available("until: cut"), &events).starts_with("kept"));
    assert!(verdict(&available("from: healed"), &events).starts_with("kept"));
    assert!(verdict(&available("from: cut"), &events).starts_with("unknown: too little machine"));
}

#[test]
fn a_request_that_was_due_in_an_outage_and_sent_after_it_does_not_count_as_answered() {
    let events = stopped(run(lost(2500..2600)), 2600..2700);
    assert_eq!(
        verdict(&available("at-least: 99%, longest-gap: 150ms"), &events),
        "broken: 97.43 % answered (380 of 390), longest gap 0.200 s from 2.50 s"
    );
}

#[test]
fn a_request_that_was_sent_when_the_promises_time_was_over_says_nothing_of_it() {
    let events = stopped(run(lost(2000..3900)), 3900..4000);
    assert_eq!(
        verdict(
            "{ unreachable: { traffic: shop, from: cut, until: healed } }",
            &events
        ),
        "kept: 0.00 % answered (0 of 190)"
    );
}

#[test]
fn what_comes_of_agents_that_waited_for_a_processor_is_unknown() {
    let waited = |from_us, waited_us| {
        let starved = Starved {
            who: "kube-proxy@n1".to_owned(),
            from_us,
            to_us: from_us + 1_500_000,
            waited_us,
            ran_us: (waited_us > 1_000_000).then_some(190_000),
        };
        let mut events = run(lost(3000..3100));
        events.push(at(4000, EventKind::Starved(starved)));
        events
    };
    let long = waited(2_200_000, 1_300_000);
    assert_eq!(
        verdict(ANSWERS, &long),
        "unknown: too little machine: kube-proxy@n1 waited 1.30 s for a processor, from 2.20 s on, and had one for 0.19 s (at most 0.90 s)"
    );
    let silent = "{ no-log: { agent: kube-proxy, matches: failed } }";
    assert!(verdict(silent, &long).starts_with("unknown: too little machine"));
    // What it was late for comes out afterwards.
    assert!(verdict(&available("from: healed"), &long).starts_with("unknown: too little machine"));
    assert!(verdict(&available("until: cut"), &long).starts_with("kept"));
    assert!(verdict(ANSWERS, &waited(2_200_000, 800_000)).starts_with("broken"));
    // Short-lived commands wait a little each, and their agent for all of them.
    let mut short = waited(2_200_000, 500_000);
    short.extend(waited(3_100_000, 600_000).pop());
    assert_eq!(
        verdict(ANSWERS, &short),
        "unknown: too little machine: kube-proxy@n1 waited 0.60 s for a processor, from 3.10 s on, others before or after it, 1.10 s in all (at most 0.90 s)"
    );
    // Before the judged time it was raised.
    assert!(verdict(ANSWERS, &waited(0, 1_300_000)).starts_with("broken"));
}
