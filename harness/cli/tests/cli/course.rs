//! How a run goes on: how often, until when, what is kept, and what is said of it meanwhile.

use std::fs;

use nix::sys::signal::Signal;

use crate::ground::{Ground, Running, exits, text, validates};

const FAILS: &str = "short/fight-nobody-expects";

fn planned(ground: &Ground) -> usize {
    let run = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
    run.lines()
        .filter(|it| it.starts_with(r#"{"planned""#))
        .count()
}

fn run(ground: &Ground, args: &[&str]) -> std::process::Output {
    ground.chainbreak(&[&["run", "short.yaml", "--out", "out"], args].concat())
}

/// One case after the other, with the worlds of those that fail.
fn keeping_failed(ground: &Ground, cases: &[&str]) -> Running {
    let args = [
        "run",
        "short.yaml",
        "--out",
        "out",
        "--keep-failed",
        "-j",
        "1",
    ];
    Running::start(&ground.command(&[&args[..], cases].concat()))
}

#[test]
fn after_a_failure_nothing_else_begins_where_that_was_asked_for() {
    let ground = Ground::new();
    let ran = run(&ground, &[FAILS, "-n", "3", "-j", "1", "--fail-fast"]);
    exits(&ran, 10);
    let said = text(&ran.stdout);
    assert!(said.contains("1 not as expected, 2 skipped"), "{said}");
    let why = format!("not begun: {FAILS}#1 did not come out as expected before");
    assert!(said.contains(&why), "{said}");
    validates(&ground.newest("junit.xml"));
    exits(&ground.chainbreak(&["report", "out/latest"]), 10);
}

#[test]
fn a_case_is_run_until_it_fails_and_no_longer() {
    let ground = Ground::new();
    let ran = run(&ground, &[FAILS, "--until-fails", "-j", "1"]);
    exits(&ran, 10);
    assert_eq!(planned(&ground), 1);
    let rate = "as expected 0 of 1 times";
    assert!(text(&ran.stdout).contains(rate), "{}", text(&ran.stdout));
    let ran = run(
        &ground,
        &["short/calm", "--until-fails", "-n", "3", "-j", "2"],
    );
    exits(&ran, 0);
    assert_eq!(planned(&ground), 3);
    let rate = "as expected 3 of 3 times";
    assert!(text(&ran.stdout).contains(rate), "{}", text(&ran.stdout));
}

/// By a pod that no world of the other tests has: a bare `n1` is the youngest world's.
#[test]
fn the_world_of_a_case_that_failed_is_kept_and_the_others_end() {
    let ground = Ground::with_client("failed-and-kept");
    let mut run = keeping_failed(&ground, &[FAILS, "short/calm"]);
    run.reads(&format!("{FAILS}: not as expected, and the world is kept"));
    let shell = ["shell", "pod/failed-and-kept", "--", "true"];
    exits(&ground.chainbreak(&shell), 0);
    run.signal(Signal::SIGINT);
    let (status, said, told) = run.ends();
    assert_eq!(status.code(), Some(10), "{said}");
    assert!(told.contains("short/calm: as expected"), "{told}");
    assert!(!told.contains("short/calm: as expected, and"), "{told}");
}

#[test]
fn a_kept_world_keeps_no_other_case_from_running() {
    let ground = Ground::new();
    let mut run = keeping_failed(&ground, &[FAILS, "-n", "2"]);
    for nth in 1..=2 {
        run.reads(&format!(
            "{FAILS}#{nth}: not as expected, and the world is kept"
        ));
    }
    run.signal(Signal::SIGINT);
    let (status, said, _) = run.ends();
    assert_eq!(status.code(), Some(10), "{said}");
}

#[test]
fn a_log_has_a_line_a_case_in_the_order_of_time_more_or_less_when_asked() {
    let ground = Ground::new();
    let lines = |more: &[&str]| {
        let args = [&["short/calm", "-n", "3"], more].concat();
        let ran = run(&ground, &args);
        exits(&ran, 0);
        let lines = text(&ran.stderr);
        lines.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let told = lines(&[]);
    assert_eq!(told.len(), 3, "{told:?}");
    let when = |line: &String| {
        line.split_whitespace()
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    assert!(told.is_sorted_by_key(when), "{told:?}");
    assert!(
        told.iter().all(|it| it.contains("✓ short/calm#")),
        "{told:?}"
    );
    assert_eq!(lines(&["--quiet"]), [""; 0]);
    let more = lines(&["--verbose"]);
    assert!(more.len() > 6, "{more:?}");
    assert!(more.is_sorted_by_key(when), "{more:?}");
}

#[test]
fn shells_complete_what_the_command_line_takes_and_man_shows_it() {
    let ground = Ground::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = ground.chainbreak(&["completions", shell]);
        exits(&script, 0);
        assert!(text(&script.stdout).contains("until-fails"), "{shell}");
    }
    let page = ground.chainbreak(&["man", "run"]);
    exits(&page, 0);
    let page = text(&page.stdout);
    assert!(page.contains(".TH chainbreak-run 1"), "{page}");
    assert!(page.contains("until\\-fails"), "{page}");
    exits(&ground.chainbreak(&["man", "rum"]), 2);
}
