//! Promises about requests, and the part of the time that each is about.

use chainbreak_model::{case::Origin, event::EventKind};
use chainbreak_probe::wire::Outcome;

use crate::{
    judged::at,
    shop::{answered, lost, run, seen_as, verdict},
};

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
    events.retain(
        |event| !matches!(&event.what, EventKind::Mark { name } if name.as_str() == "healed"),
    );
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
        EventKind::Addresses {
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

#[test]
fn nobody_gets_through_when_no_request_is_answered() {
    let shut = "{ unreachable: { traffic: shop } }";
    let part = "{ unreachable: { traffic: shop, from: cut, until: healed } }";
    let sometimes = |ms| match ms {
        2500..2520 => answered(ms),
        _ => Outcome::Refused,
    };
    let mut unwatched = run(|_| Outcome::Refused);
    unwatched.retain(|event| {
        !matches!(&event.what, EventKind::Sample { .. }) || event.at_us < 2_000_000
    });
    let told = [
        verdict(shut, &run(|_| Outcome::Refused)),
        verdict(shut, &run(sometimes)),
        verdict(shut, &unwatched),
        verdict(part, &run(lost(2000..4000))),
        verdict(part, &run(answered)),
    ];
    insta::assert_snapshot!(told.join("\n"));
}
