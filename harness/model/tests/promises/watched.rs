//! What is known of the time in which nobody looked.

use chainbreak_model::{
    case::Origin,
    event::{Event, EventKind, RulesSeen, WatchTarget, Watched},
    names::NodeName,
};

use crate::{
    judged::at,
    shop::{answered, looks, run, verdict},
};

/// A history that says what was watched: each for so many milliseconds.
fn watched(targets: &[(&WatchTarget, std::ops::Range<u64>)]) -> Vec<Event> {
    let mut events = run(answered);
    let bounds = EventKind::Watching {
        within_us: 50_000,
        unrecorded_us: Some(200_000),
    };
    events.push(at(0, bounds));
    events.extend(targets.iter().map(|(target, span)| {
        let watched = Watched {
            target: (*target).clone(),
            from_us: span.start * 1000,
            to_us: span.end * 1000,
            ended: (span.end < 5000).then(|| "a look took longer than 2s".to_owned()),
        };
        at(span.end, EventKind::Watched(watched))
    }));
    events
}

fn rules_of(node: &str) -> WatchTarget {
    let at = Origin::Node(node.into());
    WatchTarget::Rules { at }
}

#[test]
fn a_rule_is_known_to_have_been_there_only_where_somebody_looked() {
    let promise = |rest: &str| {
        format!("{{ has-rule: {{ table: nat, chain: X, absent: true, node: n1{rest} }} }}")
    };
    let (n1, n2) = (rules_of("n1"), rules_of("n2"));
    let absent = |ms| {
        let (node, query, count) = (NodeName::from("n1"), "it".into(), 0);
        at(ms, EventKind::Rules(RulesSeen { node, query, count }))
    };
    let said = |rest: &str, targets: &[(&WatchTarget, std::ops::Range<u64>)]| {
        let mut events = watched(targets);
        events.push(absent(500));
        verdict(&promise(rest), &events)
    };
    let always = ", always: true";
    let holey = [(&n1, 900..2200), (&n1, 2300..5000)];
    let told = [
        said(always, &[(&n1, 900..2200), (&n1, 2240..5000)]),
        said(always, &holey),
        said(", always: true, until: cut", &holey),
        said(", always: true, from: healed", &holey),
        said("", &holey),
        said("", &[(&n1, 900..4000)]),
        said(always, &[(&n1, 900..4960)]),
        said(always, &[(&n1, 1060..5000)]),
        said(always, &[(&n2, 900..5000)]),
        said(always, &[]),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_only_grows_is_known_from_two_looks_and_what_is_written_anew_from_all_between() {
    let holey = [
        (&rules_of("n1"), 900..2200),
        (&rules_of("n1"), 2300..5000),
        (&rules_of("n2"), 900..5000),
    ];
    let blind = [(&rules_of("n1"), 900..5000), (&rules_of("n2"), 900..4000)];
    let said = |counter: &str, targets: &[_]| {
        let mut events = watched(targets);
        events.extend(looks(500, 7, 0));
        events.extend(looks(4900, 7, 0));
        verdict(
            &format!("{{ counter: {{ {counter}, at-most: 0 }} }}"),
            &events,
        )
    };
    let rule = "rule: { table: filter, chain: KUBE-FORWARD, matches: INVALID }";
    let told = [
        said("conntrack: drop", &holey),
        said("conntrack: drop", &blind),
        said(rule, &holey),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn requests_that_a_probe_did_not_answer_for_to_the_end_keep_nothing() {
    let shop = WatchTarget::Requests {
        traffic: "shop".into(),
    };
    let promise = "{ available: { traffic: shop } }";
    let told = [
        verdict(promise, &watched(&[(&shop, 900..5100)])),
        verdict(promise, &watched(&[(&shop, 900..4900)])),
        verdict(promise, &watched(&[])),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_nobody_looked_at_in_the_end_is_not_broken_either() {
    let (n1, n2) = (rules_of("n1"), rules_of("n2"));
    let mut events = watched(&[(&n1, 900..4000)]);
    let absent = RulesSeen {
        node: NodeName::from("n1"),
        query: "it".into(),
        count: 0,
    };
    events.push(at(500, EventKind::Rules(absent)));
    let rule = "{ has-rule: { table: nat, chain: X, node: n1 } }";
    assert!(verdict(rule, &events).starts_with("unknown: rules and counters of node/n1"));
    let always = "{ has-rule: { table: nat, chain: X, node: n1, always: true } }";
    assert!(verdict(always, &events).starts_with("broken"));

    let drop = |limit: &str| {
        let mut events = watched(&[(&n1, 900..5000), (&n2, 900..4000)]);
        events.extend(looks(500, 7, 0));
        events.extend(looks(3000, 9, 0));
        verdict(
            &format!("{{ counter: {{ conntrack: drop, {limit} }} }}"),
            &events,
        )
    };
    assert!(drop("at-least: 5").starts_with("unknown: rules and counters of node/n2"));
    // What is enough, or too much, only grows.
    assert!(drop("at-least: 4").starts_with("kept"));
    assert!(drop("at-most: 3").starts_with("broken"));
}
