//! `parity`: where the verdicts of two runs, or of two backends, differ.

use std::fs;

use crate::ground::{Ground, exits, text};

/// Runs a variant and keeps it as one file of that name.
fn kept(ground: &Ground, variant: &str, name: &str) {
    let output = ground.run(variant, &["--format", "jsonl"]);
    assert!(
        [0, 10].contains(&output.status.code().unwrap()),
        "{variant}"
    );
    ground.write(name, &output.stdout);
}

#[test]
fn two_runs_of_a_case_that_came_out_alike_are_the_same_and_another_outcome_is_named() {
    let ground = Ground::new();
    kept(&ground, "calm", "one");
    kept(&ground, "calm", "two");
    let same = ground.chainbreak(&["parity", "one", "two"]);
    exits(&same, 0);
    let said = text(&same.stdout);
    assert!(
        said.contains("✓ same") && said.contains("1 case: 1 same"),
        "{said}"
    );

    kept(&ground, "fight-nobody-expects", "fight");
    // The same case in a run in which Felix fought: what a backend would do that knows another Felix.
    let fight = fs::read_to_string(ground.path().join("fight")).unwrap();
    ground.write("fight", fight.replace("fight-nobody-expects", "calm"));
    let differs = ground.chainbreak(&["parity", "one", "fight"]);
    exits(&differs, 10);
    let said = text(&differs.stdout);
    assert!(said.contains("✗ short/calm: differs"), "{said}");
    assert!(
        said.contains("one: kept, ") && said.contains("fight: broken, "),
        "{said}"
    );
}

#[test]
fn runs_that_share_no_case_prove_nothing() {
    let ground = Ground::new();
    kept(&ground, "calm", "one");
    let one = fs::read_to_string(ground.path().join("one")).unwrap();
    ground.write(
        "other",
        one.replace("\"calm\"", "\"other\"")
            .replace("/calm", "/other"),
    );
    let output = ground.chainbreak(&["parity", "one", "other"]);
    exits(&output, 12);
    assert!(text(&output.stdout).contains("the run does not have it"));
}

#[test]
fn a_backend_that_cannot_run_leaves_every_case_undecided_and_says_why() {
    let ground = Ground::new();
    let mut command = ground.command(&[
        "parity",
        "short.yaml",
        "--variant",
        "calm",
        "--variant",
        "needs-what-no-lab-has",
        "--backends",
        "lab,kind",
        "--out",
        "out",
    ]);
    command
        .env("DOCKER_HOST", "unix:///nowhere.sock")
        .env("XDG_STATE_HOME", ground.path().join("state"));
    let output = command.output().unwrap();
    exits(&output, 11);
    let said = text(&output.stdout);
    assert!(said.contains("? short/calm: cannot be compared"), "{said}");
    assert!(said.contains("kind: inconclusive, "), "{said}");
    // What only one of them can do is left out, and nobody waits for it.
    assert!(
        said.contains("– short/needs-what-no-lab-has: not in both"),
        "{said}"
    );
    assert!(said.contains("bpf-service-nat"), "{said}");
}

#[test]
fn parity_of_anything_but_two_is_a_mistake_of_the_command_line() {
    let ground = Ground::new();
    for args in [
        &["parity", "short.yaml"][..],
        &["parity", "short.yaml", "--backends", "lab"],
        &["parity", "short.yaml", "--backends", "lab,lab"],
    ] {
        let output = ground.chainbreak(args);
        exits(&output, 2);
        assert!(text(&output.stderr).contains("lab,kind"), "{args:?}");
    }
    exits(&ground.chainbreak(&["parity", "short.yaml", "nothing"]), 2);
}
