//! The file of a run that people read.

use std::path::Path;

use crate::{
    history::{printed, run, summaries, text},
    terminal::{PLAIN, of_outcomes},
};
use chainbreak_report::{Ended, Line, Run};

fn with(mut run: Run, line: Line) -> Run {
    run.add(line, Path::new("")).unwrap();
    run
}

#[test]
fn it_begins_with_which_run_it_is() {
    let finished = "2026-11-21T06:31:15Z".parse().unwrap();
    let text = text(&with(of_outcomes(), Line::Finished(finished)), PLAIN);
    let head = "chainbreak 0.1.0\n  began     2026-11-21 06:30:00 UTC\n  took      1 min 15 s\n  seed      7\n  \
                hostname  build-7\n  kernel    6.18.0\n\n  kube-proxy  model 1.32 (no binary given)\n";
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn a_run_that_did_not_come_to_its_end_says_so() {
    let killed = text(&run(Vec::new()), PLAIN);
    assert!(
        killed.contains("\nit has no end: it was killed, or goes on\n"),
        "{killed}"
    );
    let stopped = Line::Ended(Ended::Interrupted("SIGINT".to_owned()));
    let stopped = text(&with(run(Vec::new()), stopped), PLAIN);
    assert!(stopped.contains("\ninterrupted by SIGINT\n"), "{stopped}");
}

/// The lines of details are the same, but for the first ones of a case.
#[test]
fn it_has_all_that_a_terminal_shows_of_a_case_not_as_expected_and_how_many_came_to_what() {
    let run = of_outcomes();
    let text = text(&run, PLAIN);
    let shown = printed(&summaries(&run), &[], PLAIN);
    let details: Vec<&str> = shown.lines().filter(|it| it.starts_with("    ")).collect();
    assert!(details.len() > 40, "{shown}");
    for line in details {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    let end = "\n– no bpf-service-nat: the models have no eBPF programs\n  \
               calico-bpf-cleanup-fights-kube-proxy/kube-proxy-removed: skipped\n\n\
               5 cases: 2 as expected, 2 not as expected, 1 skipped\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_kept_file_is_named_with_its_case() {
    let run = of_outcomes();
    let case = run.cases.keys().next().unwrap().clone();
    let path = "default-cleanup/n1.iptables-save".to_owned();
    let text = text(&with(run, Line::Artifact { case, path }), PLAIN);
    let kept = "\n    kept: default-cleanup/n1.iptables-save\n    what happened";
    assert!(text.contains(kept), "{text}");
}

#[test]
fn promises_and_the_story_are_told_of_cases_that_came_out_as_expected_too() {
    let text = text(&of_outcomes(), PLAIN);
    let (_, broken) = text
        .split_once("\ncalico-bpf-cleanup-fights-kube-proxy/default-cleanup")
        .unwrap();
    let (broken, healthy) = broken.split_once("\ncalico-bpf-").unwrap();
    for said in [
        "  as expected: expected 3 broken, got 3 broken\n    answers: broken, as expected\n      43.14 % of 700 requests answered (302; 398 timed out)\n",
        "2.510  n2  felix       deleted 5 chains and 2 jumps in nat",
        "… 3 more rounds like this",
    ] {
        assert!(broken.contains(said), "{said}: {broken}");
    }
    let (healthy, _) = healthy.split_once("\ncalico-bpf-").unwrap();
    let kept = "\n  as expected: expected healthy, got healthy\n    answers: kept, as expected\n      answers kept: 100.00 % answered (700 of 700)\n";
    assert!(healthy.contains(kept), "{healthy}");
}
