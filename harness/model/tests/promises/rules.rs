//! Promises about rules and counters, by what looks found.

use chainbreak_model::{
    event::{Event, EventKind, RulesSeen},
    names::NodeName,
};

use crate::{
    judged::at,
    shop::{answered, looks, run, verdict},
};

#[test]
fn a_counter_is_the_difference_over_the_promises_time() {
    let counter = |rest: &str| format!("{{ counter: {{ conntrack: drop, {rest} }} }}");
    let mut events = run(answered);
    for (ms, value) in [(500, 7), (1500, 9), (3000, 12), (4500, 20), (6000, 99)] {
        events.extend(looks(ms, value, 0));
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
    events.extend(looks(500, 0, 0));
    events.extend(looks(3000, 4, 1));
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
fn vain_looks(ms: u64, instead: &str) -> [Event; 2] {
    looks(ms, 0, 0).map(|mut event| {
        if let EventKind::Counters { unmatched, .. } = &mut event.what {
            unmatched.insert("it".into(), instead.to_owned());
        }
        event
    })
}

#[test]
fn a_rule_that_was_never_there_did_not_keep_from_dropping() {
    let rule = "{ table: filter, chain: FORWRAD, jump: DROP }";
    let counter = |rest: &str| format!("{{ counter: {{ rule: {rule}, {rest} }} }}");
    let mut events = run(answered);
    events.extend(vain_looks(500, "there is no chain FORWRAD"));
    let mut told = vec![
        verdict(&counter("at-most: 0"), &events),
        verdict(&counter("at: node/n2, at-most: 0"), &events),
        verdict(&counter("at-least: 1"), &events),
    ];
    // In the second half of the judged time there was one, on one node.
    let [_, n2] = looks(3000, 0, 0);
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
        let query = "it".into();
        at(ms, EventKind::Rules(RulesSeen { node, query, count }))
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
