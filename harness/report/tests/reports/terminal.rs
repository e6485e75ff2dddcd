//! What a person reads at the end of a run.

use crate::history::{ROUNDS, all_broken, case, run};
use chainbreak_model::case::Expect;
use chainbreak_report::{
    Ended, Line, Skipped,
    summary::{Summary, summaries},
    term::{self, Colour, Look},
};

fn shown() -> Vec<Summary> {
    let mut run = run(vec![
        (
            case("default-cleanup", all_broken()),
            crate::history::history(ROUNDS),
        ),
        (
            case("cleanup-disabled", Expect::Healthy),
            crate::history::history(&[]),
        ),
        (
            case("bpf-off", Expect::Healthy),
            crate::history::history(ROUNDS),
        ),
        (
            case("not-reproduced", all_broken()),
            crate::history::history(&[]),
        ),
    ]);
    let reason = "no bpf-service-nat: the models have no eBPF programs".to_owned();
    let id = "calico-bpf-cleanup-fights-kube-proxy/kube-proxy-removed".to_owned();
    run.add(Line::Skipped(Skipped { id, reason })).unwrap();
    run.add(Line::Ended(Ended::Complete)).unwrap();
    summaries(&run)
}

const PLAIN: Look = Look {
    width: 160,
    colour: Colour::Off,
};

#[test]
fn the_end_of_a_run_says_what_where_when_and_because_of_whom() {
    let reports = ["reports/out/latest/junit.xml".to_owned()];
    insta::assert_snapshot!(term::render(&shown(), &reports, PLAIN));
}

#[test]
fn the_first_line_of_a_case_not_as_expected_names_the_culprit() {
    let summaries = shown();
    let told = term::detail(&summaries[2], PLAIN).unwrap();
    assert_eq!(
        told.lines().next().unwrap(),
        "✗ services dead on n2 for 3.2 s from 4.82 s: jump PREROUTING → KUBE-SERVICES deleted by felix \
         (iptables-legacy-restore)"
    );
    assert!(
        told.contains("healed by a full sync of kube-proxy at 8.010"),
        "{told}"
    );
}

#[test]
fn the_stories_tell_cases_that_went_as_expected_too() {
    let text = term::stories(&shown(), PLAIN);
    let (_, story) = text
        .split_once("\ncalico-bpf-cleanup-fights-kube-proxy/default-cleanup")
        .unwrap();
    let (story, _) = story.split_once("\ncalico-bpf-").unwrap();
    assert!(
        story.contains("2.510  n2  felix       deleted 5 chains and 2 jumps in nat"),
        "{story}"
    );
    assert!(story.contains("… 3 more rounds like this"), "{story}");
}

#[test]
fn no_escape_goes_where_colour_was_not_asked_for_and_no_line_is_wider_than_told() {
    let narrow = Look {
        width: 60,
        colour: Colour::Off,
    };
    let text = term::render(&shown(), &[], narrow);
    assert!(!text.contains('\u{1b}'));
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert_eq!(widest, 60);
    let coloured = term::render(
        &shown(),
        &[],
        Look {
            colour: Colour::On,
            ..narrow
        },
    );
    assert_eq!(chainbreak_report::text::clean(&coloured), text);
}
