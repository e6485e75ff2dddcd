//! Endpoints that rules spare though the API has them ready, and that nobody is named where they do not.

use std::sync::Arc;

use chainbreak_model::{
    case::{Case, Claim, Expect},
    event::{Event, EventKind, Phase},
};

use crate::{
    history::{all_along, case, event, run, sample, summaries},
    programs::endpoints,
    turned::known,
};

const LED: &str = "10.20.10.127";
const SPARED: &str = "10.20.10.128";

/// What is said of requests that one endpoint answered alone, where the API has had these ready since that moment.
fn said(since_us: u64, ready: &[&str]) -> String {
    let ready = ready.iter().map(|&it| it.to_owned()).collect();
    answered_by_one(endpoints(since_us, Some(ready), &[]))
}

/// What is said of them where this happened.
pub(crate) fn answered_by_one(happened: Event) -> String {
    let mut case = case("v", Expect::Healthy);
    let claim = Claim::Balance {
        traffic: "shop".into(),
        over: 2,
        p_at_least: 0.001,
    };
    *Arc::make_mut(&mut case.promises) = [("spreads".into(), all_along(claim))].into();
    let mut events = known();
    events.push(happened);
    judged(case, events)
}

/// What is said of a case in which each request of half a second was answered.
pub(crate) fn judged(case: Case, mut events: Vec<Event>) -> String {
    events.push(event(1_000_000, EventKind::Phase(Phase::Judging)));
    events.extend(
        (1_000_000..1_400_000)
            .step_by(20_000)
            .map(|at_us| sample(at_us, true)),
    );
    events.push(event(1_500_000, EventKind::Phase(Phase::Judged)));
    events.sort_by_key(|event| event.at_us);
    summaries(&run(vec![(case, events)]))
        .remove(0)
        .headline()
        .unwrap()
}

#[test]
fn rules_that_spare_an_endpoint_that_was_ready_all_the_time_are_told_with_who_wrote_them() {
    let said = said(450_000, &[LED, SPARED]);
    let told = format!(
        "; kube-proxy's rules on n2 led test/nginx to {LED}, and not to {SPARED}, ready in its EndpointSlices since 0.450"
    );
    assert!(said.ends_with(&told), "{said}");
}

#[test]
fn rules_that_lead_to_all_that_was_ready_are_not_why_and_nor_is_an_endpoint_that_came_meanwhile() {
    for said in [said(450_000, &[LED]), said(1_200_000, &[LED, SPARED])] {
        assert!(
            said.starts_with("spreads broken: 20 answers from 1 of 2"),
            "{said}"
        );
        assert!(!said.contains("rules on n2"), "{said}");
    }
}
