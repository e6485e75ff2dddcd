//! Promises about addresses, balance, counters and recovery, and the part of the time that each is about.

mod judged;

use std::collections::BTreeMap;

use chainbreak_model::{
    case::{Case, Origin},
    event::{Event, Phase, RulesSeen, WatchTarget, Watched, What},
    judge,
    names::{NodeName, PromiseName},
    verdict::PromiseVerdict,
};
use chainbreak_probe::wire::{Outcome, Sample};
use judged::at;

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
    at(ms, What::Mark { name: name.into() })
}

/// A run whose requests end as told.
fn run(outcome: impl Fn(u64) -> Outcome) -> Vec<Event> {
    let mut events = vec![
        at(1000, What::Phase(Phase::Judging)),
        mark(2000, "cut"),
        mark(4000, "healed"),
        at(5000, What::Phase(Phase::Judged)),
    ];
    events.extend((90..520).map(|i| {
        let sample = Sample {
            at_us: i * 10_000,
            took_us: 500,
            outcome: outcome(i * 10),
        };
        let traffic = "shop".into();
        at(i * 10, What::Sample { traffic, sample })
    }));
    events
}

fn seen_as(client: &str, backend: &str) -> Outcome {
    Outcome::Answered {
        backend: backend.to_owned(),
        seen_as: Some(client.parse().expect("an address")),
        local: "10.0.0.1:40000".parse().expect("an address"),
    }
}

fn answered(_: u64) -> Outcome {
    seen_as("10.0.0.1:40000", "web")
}

/// Lost in these milliseconds.
fn lost(hole: std::ops::Range<u64>) -> impl Fn(u64) -> Outcome {
    move |ms| {
        if hole.contains(&ms) {
            Outcome::Reset
        } else {
            answered(ms)
        }
    }
}

fn verdict(promise: &str, events: &[Event]) -> String {
    let judged = judge(&case(promise), events);
    let verdict: &PromiseVerdict = &judged.promises[&PromiseName::from("it")].verdict;
    verdict.to_string()
}

#[test]
fn a_promise_is_judged_from_its_mark_to_its_mark() {
    let available = |window: &str| format!("{{ available: {{ traffic: shop{window} }} }}");
    let said = |window: &str| verdict(&available(window), &run(lost(2500..2600)));
    let told = [
        said(""),
        said(", from: cut"),
        said(", until: cut"),
        said(", from: healed"),
        said(", from: cut, until: healed"),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn a_mark_that_never_came_leaves_its_promise_unknown() {
    let mut events = run(answered);
    events.retain(|event| !matches!(&event.what, What::Mark { name } if name.as_str() == "healed"));
    let available = "{ available: { traffic: shop, from: healed } }";
    assert_eq!(
        verdict(available, &events),
        "unknown: the timeline never came to the mark healed"
    );
}

#[test]
fn the_server_sees_the_client_or_somebody_else() {
    let masqueraded = |ms| match ms {
        3000..3030 => seen_as("10.0.1.1:1025", "web"),
        ms => answered(ms),
    };
    let source = |is: &str| format!("{{ source: {{ traffic: shop, is: {is} }} }}");
    let mut events = run(masqueraded);
    let mut told = vec![
        verdict(&source("client"), &events),
        verdict(&source("10.0.0.0/23"), &events),
        verdict(&source("10.0.1.1"), &events),
        verdict(&source("node/n2"), &events),
    ];
    events.push(at(
        900,
        What::Addresses {
            at: Origin::Node("n2".into()),
            addresses: vec!["10.0.1.1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
        },
    ));
    told.push(verdict(&source("node/n2"), &events));
    told.push(verdict(&source("client"), &run(|_| Outcome::TimedOut)));
    let ports = "{ source-ports: { traffic: shop, within: 32768-60999 } }";
    told.push(verdict(ports, &events));
    told.push(verdict(ports, &run(answered)));
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_even_spread_is_told_from_an_uneven_one_and_from_too_little() {
    let balance = |over: u16| format!("{{ balance: {{ traffic: shop, over: {over} }} }}");
    let of = |backends: &'static [&'static str]| {
        move |ms: u64| {
            let i = usize::try_from(ms / 10).unwrap();
            seen_as("10.0.0.1:40000", backends[i % backends.len()])
        }
    };
    let told = [
        verdict(&balance(2), &run(of(&["a", "b"]))),
        verdict(&balance(2), &run(of(&["a", "a", "b"]))),
        verdict(&balance(3), &run(of(&["a", "b"]))),
        verdict(&balance(2), &run(of(&["a", "b", "c"]))),
        verdict(&balance(100), &run(of(&["a", "b"]))),
        verdict(&balance(2), &run(of(&[""]))),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn recovery_and_resets_are_told_with_their_times() {
    let recovers = "{ recovers: { traffic: shop, after: cut, within: 1s } }";
    let told = [
        verdict(recovers, &run(answered)),
        verdict(recovers, &run(lost(2000..2990))),
        verdict(recovers, &run(lost(2000..3010))),
        verdict(recovers, &run(lost(4900..5200))),
        verdict("{ resets: { traffic: shop, at-most: 0 } }", &run(answered)),
        verdict(
            "{ resets: { traffic: shop, at-most: 0 } }",
            &run(lost(2500..2550)),
        ),
        verdict(
            "{ resets: { traffic: shop, at-least: 6 } }",
            &run(lost(2500..2550)),
        ),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

/// A look at the counter of a promise, on both nodes.
fn looks(ms: u64, counter: &str, value: u64, rewritten: u64) -> [Event; 2] {
    ["n1", "n2"].map(|node| {
        let of = |n: u64| BTreeMap::from([(counter.to_owned(), n)]);
        let what = What::Counters {
            at: Origin::Node(node.into()),
            values: of(value),
            rewritten: of(rewritten),
            unmatched: BTreeMap::new(),
        };
        at(ms, what)
    })
}

#[test]
fn a_counter_is_the_difference_over_the_promises_time() {
    let counter = |rest: &str| format!("{{ counter: {{ conntrack: drop, {rest} }} }}");
    let mut events = run(answered);
    for (ms, value) in [(500, 7), (1500, 9), (3000, 12), (4500, 20), (6000, 99)] {
        events.extend(looks(ms, "conntrack drop", value, 0));
    }
    let told = [
        verdict(&counter("at-most: 25"), &events),
        verdict(&counter("at-least: 27"), &events),
        verdict(&counter("at: node/n2, at-least: 13"), &events),
        verdict(
            &counter("from: cut, until: healed, at-least: 6, at-most: 6"),
            &events,
        ),
        verdict(
            &counter("at: node/n1, from: cut, until: healed, at-most: 2"),
            &events,
        ),
        verdict(&counter("at-most: 0"), &run(answered)),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_a_rewritten_rule_may_have_counted_is_not_taken_for_nothing() {
    let rule = "{ table: filter, chain: KUBE-FORWARD, matches: INVALID }";
    let counter = |rest: &str| format!("{{ counter: {{ rule: {rule}, {rest} }} }}");
    let mut events = run(answered);
    let name = "packets of filter KUBE-FORWARD /INVALID/";
    events.extend(looks(500, name, 0, 0));
    events.extend(looks(3000, name, 4, 1));
    let told = [
        verdict(&counter("at-most: 0"), &events),
        verdict(&counter("at-most: 8"), &events),
        verdict(&counter("at-least: 8"), &events),
        verdict(&counter("at-least: 9"), &events),
        verdict(&counter("from: healed, at-most: 0"), &events),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

/// Looks that found something else than a rule that counts.
fn vain_looks(ms: u64, counter: &str, instead: &str) -> [Event; 2] {
    looks(ms, counter, 0, 0).map(|mut event| {
        if let What::Counters { unmatched, .. } = &mut event.what {
            unmatched.insert(counter.to_owned(), instead.to_owned());
        }
        event
    })
}

#[test]
fn a_rule_that_was_never_there_did_not_keep_from_dropping() {
    let rule = "{ table: filter, chain: FORWRAD, jump: DROP }";
    let counter = |rest: &str| format!("{{ counter: {{ rule: {rule}, {rest} }} }}");
    let name = "packets of filter FORWRAD → DROP";
    let mut events = run(answered);
    events.extend(vain_looks(500, name, "there is no chain FORWRAD"));
    let mut told = vec![
        verdict(&counter("at-most: 0"), &events),
        verdict(&counter("at: node/n2, at-most: 0"), &events),
        verdict(&counter("at-least: 1"), &events),
    ];
    // In the second half of the judged time there was one, on one node.
    let [_, n2] = looks(3000, name, 0, 0);
    events.push(n2);
    told.extend([
        verdict(&counter("at-most: 0"), &events),
        verdict(&counter("at: node/n1, at-most: 0"), &events),
        verdict(&counter("until: cut, at-most: 0"), &events),
        verdict(&counter("from: healed, at-most: 0"), &events),
    ]);
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_was_promised_absent_is_wrong_while_it_is_there() {
    let promise = |rest: &str| {
        format!("{{ has-rule: {{ table: nat, chain: X, absent: true, backend: legacy{rest} }} }}")
    };
    let rules = |ms, node: &str, count| {
        let node = NodeName::from(node);
        let query = "nat X (legacy)".to_owned();
        at(ms, What::Rules(RulesSeen { node, query, count }))
    };
    let mut events = run(answered);
    events.extend([rules(500, "n1", 0), rules(500, "n2", 0)]);
    let mut told = vec![verdict(&promise(", always: true"), &events)];
    events.extend([rules(2500, "n2", 1), rules(2700, "n2", 0)]);
    told.push(verdict(&promise(", always: true"), &events));
    told.push(verdict(&promise(", always: true, node: n1"), &events));
    told.push(verdict(&promise(""), &events));
    told.push(verdict(&promise(", always: true, from: healed"), &events));
    insta::assert_snapshot!(told.join("\n"));
}

/// A history that says what was watched: each for so many milliseconds.
fn watched(targets: &[(&WatchTarget, std::ops::Range<u64>)]) -> Vec<Event> {
    let mut events = run(answered);
    events.push(at(0, What::Watching { within_us: 50_000 }));
    events.extend(targets.iter().map(|(target, span)| {
        let watched = Watched {
            target: (*target).clone(),
            from_us: span.start * 1000,
            to_us: span.end * 1000,
            ended: (span.end < 5000).then(|| "a look took longer than 2s".to_owned()),
        };
        at(span.end, What::Watched(watched))
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
        let (node, query) = (NodeName::from("n1"), "nat X".to_owned());
        let count = 0;
        at(ms, What::Rules(RulesSeen { node, query, count }))
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
    let said = |counter: &str, name: &str, targets: &[_]| {
        let mut events = watched(targets);
        events.extend(looks(500, name, 7, 0));
        events.extend(looks(4900, name, 7, 0));
        verdict(
            &format!("{{ counter: {{ {counter}, at-most: 0 }} }}"),
            &events,
        )
    };
    let rule = "rule: { table: filter, chain: KUBE-FORWARD, matches: INVALID }";
    let rules = "packets of filter KUBE-FORWARD /INVALID/";
    let told = [
        said("conntrack: drop", "conntrack drop", &holey),
        said("conntrack: drop", "conntrack drop", &blind),
        said(rule, rules, &holey),
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
        query: "nat X".to_owned(),
        count: 0,
    };
    events.push(at(500, What::Rules(absent)));
    let rule = "{ has-rule: { table: nat, chain: X, node: n1 } }";
    assert!(verdict(rule, &events).starts_with("unknown: rules and counters of node/n1"));
    let always = "{ has-rule: { table: nat, chain: X, node: n1, always: true } }";
    assert!(verdict(always, &events).starts_with("broken"));

    let drop = |limit: &str| {
        let mut events = watched(&[(&n1, 900..5000), (&n2, 900..4000)]);
        events.extend(looks(500, "conntrack drop", 7, 0));
        events.extend(looks(3000, "conntrack drop", 9, 0));
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
