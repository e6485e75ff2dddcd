//! Runs that are ended from outside end in order: soon, with valid reports that say so, and nothing left.

use std::{
    fs,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::ground::{Ground, exits, text, validates};

/// Two cases side by side, ended while they are judged. A world is destroyed in tens of milliseconds; five
/// seconds are a busy machine's.
fn ends_in_order(signal: Signal) {
    let ground = Ground::new();
    let run = ground.judging("long", &["--variant", "calm"]);
    let sent = Instant::now();
    run.signal(signal);
    let (status, said, progress) = run.ends();
    assert!(
        sent.elapsed() < Duration::from_secs(5),
        "{:?}",
        sent.elapsed()
    );
    assert_eq!(status.code(), Some(11), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(
        progress.contains(&format!("{signal}: ending the run")),
        "{progress}"
    );
    let junit = ground.newest("junit.xml");
    validates(&junit);
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("interrupted"), "{junit}");
    let history = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
    let last = history.lines().last().unwrap();
    assert_eq!(last, format!(r#"{{"ended":{{"interrupted":"{signal}"}}}}"#));
}

#[test]
fn ctrl_c_ends_a_run_in_order() {
    ends_in_order(Signal::SIGINT);
}

/// One case after the other, each twice: what is told of the first is no longer with others behind it, which are run when it is asked for.
#[test]
fn of_cases_that_had_not_begun_an_interrupted_run_says_how_many_and_runs_them_again() {
    let ground = Ground::new();
    let short = fs::read_to_string(ground.path().join("short.yaml")).unwrap();
    ground.write("later.yaml", short.replace("name: short", "name: later"));
    let run = ground.judging("long", &["later.yaml", "-j", "1", "-n", "2"]);
    run.signal(Signal::SIGINT);
    let (status, said, progress) = run.ends();
    assert_eq!(status.code(), Some(11), "{said}");
    let counted = "4 cases: 1 inconclusive, 3 not begun";
    assert!(said.contains(counted), "{said}");
    let told = format!("{said}{progress}");
    assert!(
        !told.contains("long#2") && !told.contains("later/"),
        "{told}"
    );
    let junit = ground.newest("junit.xml");
    validates(&junit);
    let junit = fs::read_to_string(junit).unwrap();
    assert_eq!(
        junit.matches("<skipped type=\"not begun\"").count(),
        3,
        "{junit}"
    );
    let summary = fs::read_to_string(ground.newest("summary.json")).unwrap();
    assert!(summary.contains("\"not-begun\":3"), "{summary}");
    let left = ["list", "short.yaml", "later.yaml", "--failed=out/latest"];
    let left = ground.chainbreak(&left);
    assert_eq!(text(&left.stdout), "short/long\nlater/long\n");
    // Of one that was killed the same is told.
    let killed = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
    let (killed, _) = killed.split_once("{\"finished\"").unwrap();
    fs::write(ground.newest("run.jsonl"), killed).unwrap();
    let report = ground.chainbreak(&["report", "out/latest"]);
    exits(&report, 11);
    assert!(text(&report.stdout).contains(counted));
    let drops = ground.chainbreak(&["drops", "out/latest"]);
    assert!(!text(&drops.stdout).contains("later/"));
}

#[test]
fn a_polite_kill_ends_a_run_in_order() {
    ends_in_order(Signal::SIGTERM);
}

#[test]
fn a_terminal_that_is_closed_ends_a_run_in_order() {
    ends_in_order(Signal::SIGHUP);
}

#[test]
fn ctrl_c_twice_gives_up_what_runs_and_still_ends_in_order() {
    let ground = Ground::new();
    let run = ground.judging("long", &["--variant", "calm"]);
    run.signal(Signal::SIGINT);
    run.signal(Signal::SIGTERM);
    let (status, said, progress) = run.ends();
    assert_eq!(status.code(), Some(11), "{said}");
    assert!(progress.contains(": given up"), "{progress}");
    let history = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
    let last = history.lines().last().unwrap();
    assert!(last.starts_with(r#"{"ended":{"interrupted""#), "{last}");
}

#[test]
fn a_run_that_is_killed_leaves_no_process_and_a_history_that_can_be_rendered() {
    let ground = Ground::new();
    let run = ground.judging("long", &[]);
    run.signal(Signal::SIGKILL);
    let (status, ..) = run.ends();
    assert_eq!(status.code(), None);
    let folder = fs::read_dir(ground.path().join("out"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let again = ground.chainbreak(&["report", folder.path().to_str().unwrap()]);
    exits(&again, 11);
    validates(&folder.path().join("junit.xml"));
}
