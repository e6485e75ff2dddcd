//! The rule that gave requests another source, and that none is named where it may have been another.

use std::sync::Arc;

use chainbreak_model::{
    case::{Claim, Expect, SourceAddress},
    event::{Event, EventKind, Phase},
};
use chainbreak_probe::wire::{Connections, Outcome};

use crate::{
    history::{RESTORE, all_along, case, command, event, run, sample, summaries},
    turned::known,
};

const TO: &str = "-d 10.20.10.127/32 -j MASQUERADE";

/// What is said of requests that the server saw come from the node, after a command of a third party.
fn said(rules: &str, connections: Connections) -> String {
    let mut case = case("v", Expect::Healthy);
    let claim = Claim::Source {
        traffic: "shop".into(),
        is: SourceAddress::Client,
    };
    *Arc::make_mut(&mut case.promises) = [("keeps".into(), all_along(claim))].into();
    let traffic = Arc::make_mut(&mut case.traffic).values_mut().next();
    traffic.unwrap().connections = connections;
    let mut events = known();
    let nat = format!("*nat\n{rules}COMMIT\n");
    events.push(command("n2", 500_000, "vpc-cni", &RESTORE, &nat));
    events.push(event(1_000_000, EventKind::Phase(Phase::Judging)));
    events.extend((1_000_000..1_400_000).step_by(20_000).map(from_the_node));
    events.push(event(1_500_000, EventKind::Phase(Phase::Judged)));
    summaries(&run(vec![(case, events)]))
        .remove(0)
        .headline()
        .unwrap()
}

fn from_the_node(at_us: u64) -> Event {
    let mut event = sample(at_us, true);
    if let EventKind::Sample { sample, .. } = &mut event.what
        && let Outcome::Answered { seen_as, .. } = &mut sample.outcome
    {
        *seen_as = Some("10.0.0.2:40000".parse().unwrap());
    }
    event
}

#[test]
fn the_rule_that_every_way_leads_through_is_named_with_who_wrote_it() {
    let rules = format!(":MINE - [0:0]\n-A POSTROUTING -j MINE\n-A MINE {TO}\n");
    let said = said(&rules, Connections::New);
    let named = format!("translated by nat MINE {TO} on n2 (vpc-cni)");
    assert!(said.ends_with(&named), "{said}");
}

#[test]
fn no_rule_is_named_that_another_may_have_come_before_or_of_a_connection_that_was_there() {
    let half = "-m statistic --mode random --probability 0.50000000000";
    let chance = format!(
        ":MINE - [0:0]\n-A POSTROUTING -j MINE\n-A MINE {half} {TO}\n-A MINE -s 10.20.2.2/32 -j MASQUERADE\n"
    );
    let all = format!(":MINE - [0:0]\n-A POSTROUTING -j MINE\n-A MINE {TO}\n");
    for (rules, connections) in [
        (chance.as_str(), Connections::New),
        ("", Connections::New),
        (all.as_str(), Connections::Kept),
    ] {
        let said = said(rules, connections);
        assert!(!said.contains("translated by"), "{said}");
    }
}
