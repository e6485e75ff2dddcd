//! Two runs beside each other.

use std::path::Path;

use crate::history::{ROUNDS, all_broken, case, history, run, summaries};
use chainbreak_model::{case::Expect, event::Event};
use chainbreak_report::{
    Line, Run, Skipped,
    parity::{self, Side},
    term::{Colour, Terminal},
};

const PLAIN: Terminal = Terminal {
    width: 120,
    colour: Colour::Off,
};

/// What is said of two runs, and the exit code.
fn compared(one: &Run, other: &Run) -> (String, u8) {
    let [one, other] = [one, other].map(summaries);
    let sides = [("lab", &one), ("kind", &other)];
    let sides = sides.map(|(name, summaries)| Side { name, summaries });
    let compared = parity::compare(sides);
    let said = parity::render(sides, &compared, PLAIN);
    (said, parity::exit_code(&compared))
}

/// A run of one case with that history.
fn of(expect: Expect, events: Vec<Event>) -> Run {
    run(vec![(case("v", expect), events)])
}

fn skipping() -> Run {
    let mut none = run(vec![]);
    let (id, reason) = ("calico-bpf-cleanup-fights-kube-proxy/v", "no Docker");
    let (id, reason) = (id.to_owned(), reason.to_owned());
    none.add(Line::Skipped(Skipped { id, reason }), Path::new(""))
        .unwrap();
    none
}

#[test]
fn what_differs_is_told_promise_by_promise_with_what_each_run_saw() {
    let (broken, calm) = (history(ROUNDS), history(&[]));
    let one = run(vec![
        (case("alike", all_broken()), broken.clone()),
        (case("other", all_broken()), broken),
        (case("stopped", Expect::Healthy), calm.clone()),
    ]);
    let mut other = run(vec![
        (case("alike", Expect::Healthy), history(ROUNDS)),
        (case("other", all_broken()), calm),
        (case("stopped", Expect::Healthy), Vec::new()),
    ]);
    let (id, reason) = ("elsewhere/v".to_owned(), "no Docker".to_owned());
    other
        .add(Line::Skipped(Skipped { id, reason }), Path::new(""))
        .unwrap();
    let (said, code) = compared(&one, &other);
    assert_eq!(code, 10);
    insta::assert_snapshot!(said);
}

#[test]
fn verdicts_are_compared_and_not_what_was_expected_of_them() {
    let one = of(all_broken(), history(ROUNDS));
    let other = of(Expect::Healthy, history(ROUNDS));
    assert_eq!(compared(&one, &other).1, 0);
}

#[test]
fn a_case_that_one_run_did_not_decide_is_not_the_same_and_one_that_did_not_run_proves_nothing() {
    let calm = || of(Expect::Healthy, history(&[]));
    assert_eq!(compared(&calm(), &of(Expect::Healthy, Vec::new())).1, 11);
    let (said, code) = compared(&calm(), &skipping());
    assert_eq!(code, 12, "{said}");
    assert!(said.contains("kind: skipped, no Docker"), "{said}");
}

#[test]
fn of_a_case_with_the_same_verdicts_it_is_said_on_which_side_it_was_worse() {
    let one = of(all_broken(), history(ROUNDS));
    let other = of(all_broken(), history(&ROUNDS[..2]));
    let (said, code) = compared(&one, &other);
    assert_eq!(code, 0, "{said}");
    for words in ["    lab: ", "    kind: ", " % answered, longest gap 3.2 s"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(
        said.contains("of those that are the same, 1 with other figures"),
        "{said}"
    );
    let (said, _) = compared(&one, &of(all_broken(), history(ROUNDS)));
    assert!(
        !said.contains("other figures") && !said.contains("longest gap"),
        "{said}"
    );
}
