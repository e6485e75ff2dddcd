//! What the history calls that which promises ask observers about.

use chainbreak_model::{
    case::Query,
    event::{Event, EventKind, RulesSeen},
    names::QueryId,
};

use crate::{
    judged::{self, at},
    shop::{answered, looks_at, run, verdict},
};

const RULE: &str = "{ has-rule: { table: nat, chain: X, jump: Y, always: true } }";
const COUNTER: &str = "{ counter: { rule: { table: nat, chain: X, jump: Y }, at-most: 3 } }";

/// What is said of a rule that was missing for a second, where the history calls it so.
fn missing(called: &str) -> String {
    let mut events = run(answered);
    let seen = [
        (500, "n1", 1),
        (500, "n2", 1),
        (2500, "n2", 0),
        (3500, "n2", 1),
    ];
    events.extend(seen.map(|(ms, node, count)| {
        let (node, query) = (node.into(), called.into());
        at(ms, EventKind::Rules(RulesSeen { node, query, count }))
    }));
    verdict(RULE, &events)
}

/// What is said of a counter that rose, where the history calls it so.
fn risen(called: &str) -> String {
    let mut events: Vec<Event> = run(answered);
    events.extend(looks_at(called, 500, 0, 0));
    events.extend(looks_at(called, 4500, 7, 0));
    verdict(COUNTER, &events)
}

#[test]
fn what_was_asked_about_is_known_by_its_id() {
    let broken = "broken: nat X → Y absent on n2 for 1.0 s from 2.50 s";
    assert_eq!(missing("it"), broken);
    assert!(risen("it").starts_with("broken: packets of nat X → Y rose by 14"));
    assert!(missing("other").starts_with("unknown"));
    assert!(risen("other").starts_with("unknown"));
}

#[test]
fn histories_that_call_it_by_its_words_are_judged_as_before() {
    assert_eq!(missing("nat X → Y"), missing("it"));
    assert_eq!(risen("packets of nat X → Y"), risen("it"));
}

#[test]
fn promises_that_ask_the_same_share_the_id_of_the_first() {
    let text = format!(
        "
name: judged
about: what the judge is shown
cluster: {{ nodes: 2, kube-proxy: {{ version: '1.32' }} }}
timeline: [settle: 1s]
promises:
  counted: {COUNTER}
  there: {RULE}
  there-on-n1: {{ has-rule: {{ table: nat, chain: X, jump: Y, node: n1 }} }}
  quiet: {{ no-log: {{ agent: kube-proxy, matches: boo }} }}
variants:
  only: {{ expect: healthy }}
"
    );
    let case = judged::case(&text, "only");
    let ids = case.promises.values().map(|promise| {
        let query = promise.claim.query();
        query.and_then(|query| case.query_id(query))
    });
    let ids: Vec<Option<QueryId>> = ids.collect();
    let [counted, there] = ["counted", "there"].map(|name| Some(QueryId::from(name)));
    assert_eq!(ids, [counted, there.clone(), there, None]);
    let other = chainbreak_model::case::Counter::Conntrack("drop".to_owned());
    assert_eq!(case.query_id(Query::Counter(&other)), None);
}
