//! Because of whom a case is expected to break, held against who is found behind it.

use std::{path::Path, sync::Arc};

use chainbreak_model::{
    case::{Case, Expect},
    event::{EventKind, Phase},
    verdict::{CaseVerdict, Verdict},
};
use chainbreak_report::{
    Line, Run,
    summary::{Outcome, Summary, comes_to},
};
use indexmap::IndexMap;

use crate::{
    history::{
        ROUNDS, all_broken, case, command, event, history, junit, printed, run, summaries, text,
    },
    terminal::PLAIN,
};

fn by(who: &str, expect: Expect) -> Case {
    Case {
        by: Some(who.to_owned()),
        ..case("v", expect)
    }
}

fn summary(case: Case) -> Summary {
    summaries(&run(vec![(case, history(ROUNDS))])).remove(0)
}

#[test]
fn an_incident_because_of_whom_its_scenario_names_is_as_expected() {
    let summary = summary(by("felix", all_broken()));
    assert_eq!(summary.outcome, Outcome::AsExpected);
    assert!(summary.promises.iter().all(|it| it.expected_by.is_none()));
}

#[test]
fn an_incident_because_of_another_is_not_as_expected_and_each_promise_says_of_whom() {
    let summary = summary(by("kube-proxy", all_broken()));
    assert_eq!(summary.outcome, Outcome::NotAsExpected);
    assert!(summary.promises.iter().all(|it| !it.as_expected));
    let headline = summary.headline().unwrap();
    assert!(
        headline.contains("deleted by felix")
            && headline.ends_with("; the scenario expects kube-proxy behind it"),
        "{headline}"
    );
    let shown = [summary.expected, summary.got];
    assert_eq!(shown, ["3 broken by kube-proxy", "3 broken by felix"]);
}

#[test]
fn what_it_came_to_when_it_ran_is_what_a_report_finds() {
    let mut run = run(vec![(by("kube-proxy", all_broken()), history(ROUNDS))]);
    let (id, recorded) = run.cases.first().unwrap();
    let verdict = Verdict {
        case: comes_to(recorded),
        trouble: Vec::new(),
        window: None,
        promises: IndexMap::new(),
    };
    assert_eq!(verdict.case, CaseVerdict::NotAsExpected);
    let judged = Line::Judged {
        case: id.clone(),
        verdict: Box::new(verdict),
    };
    run.add(judged, Path::new("")).unwrap();
    assert_eq!(summaries(&run).remove(0).judged_before, None);
}

#[test]
fn where_nobody_is_found_behind_any_promise_it_is_not_known_and_the_first_one_says_so() {
    // What kube-proxy did is told, and not what Felix did.
    let mut events = history(ROUNDS);
    events.retain(|it| !matches!(&it.what, EventKind::Command(command) if command.who == "felix"));
    let run = run(vec![(by("felix", all_broken()), events)]);
    let summary = summaries(&run).remove(0);
    assert_eq!(summary.outcome, Outcome::Inconclusive);
    let headline = summary.headline().unwrap();
    assert!(
        headline.ends_with("; nobody is found behind it, and the scenario expects felix"),
        "{headline}"
    );
}

#[test]
fn what_began_an_outage_is_looked_for_at_its_beginning_also_where_a_promise_judges_its_end() {
    let mut incident = case("v", all_broken());
    let promises = Arc::make_mut(&mut incident.promises);
    promises[0].window.from = Some("later".into());
    // Long after the requests died, on the node where they did.
    let delete = [
        "iptables",
        "-t",
        "nat",
        "-D",
        "PREROUTING",
        "-j",
        "KUBE-SERVICES",
    ];
    let mut events = history(ROUNDS);
    events.push(command("n2", 5_900_000, "admin", &delete, ""));
    let name = "later".into();
    events.push(event(6_000_000, EventKind::Mark { name }));
    events.sort_by_key(|event| event.at_us);
    let summary = summaries(&run(vec![(incident, events)])).remove(0);
    let headline = summary.headline().unwrap();
    assert!(
        headline.contains("from 6.00 s")
            && headline.ends_with("deleted by felix (iptables-legacy-restore)"),
        "{headline}"
    );
}

#[test]
fn half_a_history_says_nothing_of_who_is_behind_it() {
    let mut events = history(ROUNDS);
    events.retain(|it| it.what != EventKind::Phase(Phase::Judged));
    let run = run(vec![(by("kube-proxy", all_broken()), events)]);
    let summary = summaries(&run).remove(0);
    assert_eq!(summary.outcome, Outcome::Inconclusive);
    assert!(summary.promises.iter().all(|it| it.expected_by.is_none()));
}

#[test]
fn where_commands_of_agents_are_not_recorded_it_is_not_judged() {
    let mut events = history(ROUNDS);
    events.retain(|it| !matches!(it.what, EventKind::Command(_)));
    let run = run(vec![(by("felix", all_broken()), events)]);
    assert_eq!(summaries(&run).remove(0).outcome, Outcome::AsExpected);
}

#[test]
fn a_case_that_names_nobody_or_did_not_break_is_judged_by_its_promises_alone() {
    let named_nobody = summary(case("v", all_broken()));
    assert_eq!(named_nobody.outcome, Outcome::AsExpected);
    let one = summary(by("kube-proxy", Expect::Broken(vec!["answers".into()])));
    let said: Vec<_> = one.promises.iter().map(|it| &it.expected_by).collect();
    assert_eq!(one.outcome, Outcome::NotAsExpected);
    assert_eq!(
        said, [&None; 3],
        "others broke, and nobody is asked for then"
    );
}

/// What is said of it where docker did it.
pub(crate) const DOCKER: &str =
    "⚠ behind it is docker, and nothing that the case does, nor its agents";

/// A case that names nobody, with its deletions by another than Felix.
pub(crate) fn by_another(who: &str) -> Run {
    of_another(case("v", all_broken()), who)
}

fn of_another(case: Case, who: &str) -> Run {
    let mut events = history(ROUNDS);
    for event in &mut events {
        if let EventKind::Command(command) = &mut event.what
            && command.who == "felix"
        {
            who.clone_into(&mut command.who);
        }
    }
    run(vec![(case, events)])
}

#[test]
fn whom_the_case_does_not_have_is_marked_where_nobody_of_its_own_is_found() {
    let strays = summaries(&by_another("docker")).remove(0).strays.unwrap();
    assert_eq!(strays, ["docker".to_owned()].into());
    for own in ["felix", "kube-proxy"] {
        assert_eq!(summaries(&by_another(own)).remove(0).strays, None, "{own}");
    }
    let named = of_another(by("felix", all_broken()), "docker");
    let named = summaries(&named).remove(0);
    assert_eq!(named.strays, None, "that is judged");
}

#[test]
fn that_nobody_is_found_is_marked_where_the_case_was_not_to_break_so() {
    let found = |expect: Expect, is_left_out: fn(&EventKind) -> bool| {
        let mut events = history(ROUNDS);
        events.retain(|it| !is_left_out(&it.what));
        let case = case("v", expect);
        summaries(&run(vec![(case, events)])).remove(0).strays
    };
    let felix: fn(&EventKind) -> bool =
        |it| matches!(it, EventKind::Command(command) if command.who == "felix");
    assert_eq!(found(Expect::Healthy, felix), Some([].into()));
    assert_eq!(found(all_broken(), felix), None, "so it was to be");
    let all: fn(&EventKind) -> bool = |it| matches!(it, EventKind::Command(_));
    assert_eq!(found(Expect::Healthy, all), None, "nothing is recorded");
}

#[test]
fn a_case_that_names_somebody_is_marked_where_that_is_not_judged() {
    // Others broke than the case expects: it is not asked because of whom.
    let healthy = by("felix", Expect::Broken(vec!["answers".into()]));
    let run = of_another(healthy, "docker");
    let strays = summaries(&run).remove(0).strays;
    assert_eq!(strays, Some(["docker".to_owned()].into()));
}

#[test]
fn every_report_has_the_mark() {
    let run = by_another("docker");
    let printed = printed(&summaries(&run), &[], PLAIN);
    assert!(printed.contains("✓ as expected ⚠"), "{printed}");
    for text in [printed, text(&run, PLAIN)] {
        assert!(text.contains(DOCKER), "{text}");
    }
    let junit = junit(&run);
    assert!(junit.contains(r#"name="strays" value="docker""#), "{junit}");
}
