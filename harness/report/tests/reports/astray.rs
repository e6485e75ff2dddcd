//! Requests that rules led to endpoints that the API no longer had ready, and others whose rules they met.

use chainbreak_model::{
    case::{Case, Expect},
    event::{Event, EventKind},
};
use chainbreak_report::summary::{Outcome, Summary};

use crate::{
    culprits::{DEAD, dropped, headline_of, lost},
    history::{RESTORE, SVC, case, command, run, sample, summaries},
    programs::endpoints,
    turned::known,
};

/// The API has these ready, besides what is known.
fn told(at_us: u64, ready: &[&str]) -> Event {
    let ready = ready.iter().map(|&it| it.to_owned()).collect();
    endpoints(at_us, Some(ready), &[])
}

const OLD: &str = "10.20.10.127";
const NEW: &str = "10.20.10.128";

/// Rules lead to the old one alone, and then the API names the new one alone.
fn stale() -> Vec<Event> {
    let mut events = known();
    events.extend([told(450_000, &[OLD]), told(1_450_000, &[NEW])]);
    events
}

/// What is expected to break because of somebody, and breaks.
fn expected(by: &str, events: Vec<Event>) -> Summary {
    let mut case = Case {
        by: Some(by.to_owned()),
        ..case("v", Expect::Broken(vec!["answers".into()]))
    };
    std::sync::Arc::make_mut(&mut case.promises).retain(|name, _| name.as_str() == "answers");
    summaries(&run(vec![(case, lost(events))])).remove(0)
}

#[test]
fn rules_that_lead_to_endpoints_that_the_api_no_longer_has_are_told() {
    assert_eq!(
        headline_of(stale()),
        format!(
            "{DEAD}kube-proxy's rules on n2 led test/nginx to {OLD} (1 of 1), not ready in its EndpointSlices since 1.450"
        )
    );
}

#[test]
fn an_endpoint_that_served_for_a_while_as_it_ended_is_gone_all_the_same() {
    let mut events = known();
    events.extend([
        told(450_000, &[OLD, NEW]),
        endpoints(1_440_000, Some([NEW.to_owned()].into()), &[OLD]),
        told(1_460_000, &[NEW]),
    ]);
    let said = headline_of(events);
    assert!(said.ends_with("since 1.460"), "{said}");
}

#[test]
fn rules_that_lead_where_the_api_says_are_not_why_requests_are_lost() {
    let mut events = known();
    events.extend([told(450_000, &[OLD]), told(1_450_000, &[OLD, NEW])]);
    let unexplained = format!("{DEAD}no recorded command explains it");
    assert_eq!(headline_of(events), unexplained);
    // Nor is it known of a history that does not tell what the API said.
    assert_eq!(headline_of(known()), unexplained);
}

#[test]
fn rules_that_lead_to_what_ends_and_serves_still_are_not_why_and_nor_is_what_nobody_knows() {
    let unexplained = format!("{DEAD}no recorded command explains it");
    let mut events = known();
    events.extend([
        told(450_000, &[OLD]),
        endpoints(1_450_000, Some([NEW.to_owned()].into()), &[OLD]),
    ]);
    assert_eq!(headline_of(events), unexplained);
    let mut events = stale();
    events.push(endpoints(1_460_000, None, &[]));
    assert_eq!(headline_of(events), unexplained);
    // A command that cannot be followed.
    let mut events = stale();
    events.push(command(
        "n2",
        700_000,
        "kube-proxy",
        &["iptables", "-A", "NOT-THERE", "-j", "ACCEPT"],
        "",
    ));
    assert_eq!(headline_of(events), unexplained);
}

#[test]
fn the_author_of_rules_is_who_wrote_them_and_not_whose_name_they_have() {
    let mut events = stale();
    for event in &mut events {
        if let EventKind::Command(command) = &mut event.what {
            command.who = "another-kube-proxy".to_owned();
        }
    }
    // That kube-proxy writes at all is recorded.
    events.push(command(
        "n2",
        300_000,
        "kube-proxy",
        &RESTORE,
        "*filter\nCOMMIT\n",
    ));
    let said = headline_of(events);
    assert!(
        said.contains("another-kube-proxy's rules on n2 led"),
        "{said}"
    );
}

#[test]
fn one_endpoint_of_two_that_is_gone_is_not_why_all_requests_are_lost() {
    let mut events = stale();
    events.push(command("n2", 950_000, "kube-proxy", &RESTORE, &both()));
    assert_eq!(
        headline_of(events),
        format!("{DEAD}no recorded command explains it")
    );
}

/// A service's chain that leads to both.
fn both() -> String {
    format!(
        "*nat\n:{SVC} - [0:0]\n-A {SVC} -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination {NEW}:80\n\
         -A {SVC} -j DNAT --to-destination {OLD}:80\nCOMMIT\n"
    )
}

#[test]
fn rules_that_lead_only_some_requests_astray_are_told_of_those_that_are_lost_one_here_and_one_there()
 {
    let mut events = stale();
    events.push(command("n2", 950_000, "kube-proxy", &RESTORE, &both()));
    let mut events = lost(events);
    events.retain(|event| !matches!(event.what, EventKind::Sample { .. }));
    let due = (1_000_000..2_000_000).step_by(20_000);
    let fails = [1_500_000, 1_600_000, 1_740_000];
    events.extend(due.map(|at_us| sample(at_us, !fails.contains(&at_us))));
    let mut case = case("v", Expect::Healthy);
    std::sync::Arc::make_mut(&mut case.promises).retain(|name, _| name.as_str() == "answers");
    let said = summaries(&run(vec![(case, events)])).remove(0).headline();
    let said = said.unwrap();
    let astray = format!("kube-proxy's rules on n2 led test/nginx to {OLD} (1 of 2)");
    assert!(
        said.contains("lost 3 of 50 requests") && said.contains(&astray),
        "{said}"
    );
}

#[test]
fn whose_rules_requests_met_can_be_whom_a_scenario_names_and_cannot_be_another() {
    let kube_proxys = expected("kube-proxy", stale());
    assert_eq!(kube_proxys.outcome, Outcome::AsExpected);
    let felixs = expected("felix", stale());
    assert_eq!(felixs.outcome, Outcome::Inconclusive);
}

#[test]
fn the_owner_of_the_rules_in_which_the_packets_ended_is_behind_it_where_there_were_enough_of_them()
{
    let ended = |in_rules: &[u64]| {
        let ended = in_rules
            .iter()
            .zip(["KUBE-FORWARD", "KUBE-EXTERNAL-SERVICES"]);
        let ended = ended.map(|(packets, chain)| dropped(1_600_000, chain, *packets));
        let events = [known(), ended.collect()];
        expected("kube-proxy", events.concat()).outcome
    };
    assert_eq!(ended(&[10]), Outcome::AsExpected);
    // Ten requests are lost.
    assert_eq!(ended(&[4]), Outcome::Inconclusive);
    assert_eq!(ended(&[3, 2]), Outcome::AsExpected);
}
