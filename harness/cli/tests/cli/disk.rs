//! A disk that is full in the midst of a run.

use std::{fs, process::Command};

use nix::unistd::geteuid;

use crate::ground::{Ground, exits, text};

/// Room for the case that ends, not for one that goes on for ten minutes.
const MOUNTED: &str = "mount -t tmpfs -o size=128k full small && exec \"$@\"";

#[test]
fn a_full_disk_ends_the_run_with_the_path_and_all_verdicts_so_far() {
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
        .current_dir(ground.path());
    let ran = command.output().unwrap();
    exits(&ran, 11);
    assert_eq!(
        text(&ran.stdout),
        "short/calm: as expected\nshort/long: inconclusive\n"
    );
    let said = text(&ran.stderr);
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
