//! A disk that is full in the midst of a run.

use std::{
    fs,
    process::{Command, Output},
};

use nix::unistd::geteuid;

use crate::ground::{Ground, exits, text};

/// Room for the case that ends, not for one that goes on for ten minutes.
const MOUNTED: &str = "mount -t tmpfs -o size=128k full small && exec \"$@\"";

#[test]
fn a_full_disk_ends_the_run_with_the_path_and_all_verdicts_so_far() {
    let ran = run_on_a_small_disk(&[]);
    exits(&ran, 11);
    assert_eq!(text(&ran.stdout), "");
    let said = text(&ran.stderr);
    let judged = "\nshort/calm: as expected\nshort/long: inconclusive\nchainbreak: ";
    assert!(said.contains(judged), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("/short_long/events.jsonl: No space left on device"),
        "{said}"
    );
    assert!(
        last.contains("the run was ended, and has no reports"),
        "{said}"
    );
}

#[test]
fn whoever_reads_the_events_of_a_run_has_them_to_the_end_although_the_disk_is_full() {
    let ran = run_on_a_small_disk(&["--format", "jsonl"]);
    exits(&ran, 11);
    let said = text(&ran.stdout);
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    assert_eq!(
        lines.iter().filter(|it| it.get("judged").is_some()).count(),
        2
    );
    assert!(lines.last().unwrap().get("ended").is_some(), "{said}");
}

fn run_on_a_small_disk(also: &[&str]) -> Output {
    let ground = Ground::new();
    fs::create_dir(ground.path().join("small")).unwrap();
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let run = "run short.yaml --variant calm --variant long --jobs 1 --out small";
    command
        .args(["--mount", "sh", "-c", MOUNTED, "sh"])
        .arg(env!("CARGO_BIN_EXE_chainbreak"))
        .args(run.split(' '))
        .args(also)
        .current_dir(ground.path());
    command.output().unwrap()
}
