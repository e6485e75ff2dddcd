//! A world that is kept can be looked into until its run is interrupted.

use std::os::unix::fs::symlink;

use nix::sys::signal::Signal;

use crate::ground::{Ground, exits, text, validates};

/// By a pod that no world of the other tests has: a bare `n1` is the youngest world's.
#[test]
fn a_kept_world_is_looked_into_and_ends_with_its_run() {
    let ground = Ground::with_client("looked-into");
    let mut run = ground.judging("calm", &["--keep"]);
    run.reads("the world is kept");
    let shell = |command: &[&str]| {
        let args = [&["shell", "pod/looked-into", "--"], command].concat();
        ground.chainbreak(&args)
    };
    exits(&shell(&["true"]), 0);
    exits(&shell(&["sh", "-c", "exit 7"]), 7);
    let links = shell(&["ip", "-o", "link"]);
    assert!(
        text(&links.stdout).contains("eth0"),
        "{}",
        text(&links.stdout)
    );
    let unknown = ground.chainbreak(&["shell", "n99"]);
    exits(&unknown, 2);
    assert!(text(&unknown.stderr).contains("no world has the place n99"));
    run.signal(Signal::SIGINT);
    let (status, said, _) = run.ends();
    assert_eq!(status.code(), Some(0), "its case was judged before: {said}");
}

#[test]
fn clean_names_a_kept_world_and_ends_it_in_order_when_told_which() {
    let ground = Ground::new();
    let mut run = ground.judging("calm", &["--keep"]);
    run.reads("the world is kept");
    let named = text(&ground.chainbreak(&["clean"]).stdout);
    let ours = format!("is kept by the run of process {}: ", run.pid());
    let line = named.lines().find(|line| line.contains(&ours)).unwrap();
    let world = line.split_whitespace().nth(4).unwrap();
    let ended = ground.chainbreak(&["clean", world]);
    exits(&ended, 0);
    let words = format!(
        "ended the world of process {world}, kept by the run of process {}",
        run.pid()
    );
    assert!(
        text(&ended.stdout).contains(&words),
        "{}",
        text(&ended.stdout)
    );
    let (status, said, _) = run.ends();
    assert_eq!(status.code(), Some(0), "{said}");
    validates(&ground.newest("junit.xml"));
}

#[test]
fn clean_lets_worlds_alone_whose_run_goes_on() {
    let ground = Ground::with_client("goes-on");
    let run = ground.judging("long", &[]);
    let looked = ground.chainbreak(&["shell", "pod/goes-on", "--", "true"]);
    exits(&looked, 0);
    let whose = text(&looked.stderr);
    assert!(whose.contains("whose run goes on"), "{whose}");
    let worlds = run.family().iter().map(ToString::to_string);
    for pid in worlds {
        let cleaned = ground.chainbreak(&["clean", &pid]);
        exits(&cleaned, 2);
        assert!(text(&cleaned.stderr).contains("no kept world of process"));
    }
    run.signal(Signal::SIGTERM);
    let (status, ..) = run.ends();
    assert_eq!(
        status.code(),
        Some(11),
        "it ended by the signal, not before"
    );
}

#[test]
fn clean_removes_a_link_that_a_killed_run_left_and_keeps_reports() {
    let ground = Ground::new();
    exits(&ground.run("needs-what-no-lab-has", &[]), 12);
    let out = ground.path().join("out");
    // No process has this number: the largest is 4194304 (proc(5), pid_max).
    symlink("nowhere", out.join(".latest-4194305")).unwrap();
    let cleaned = ground.chainbreak(&["clean", "--out", "out"]);
    exits(&cleaned, 0);
    assert!(text(&cleaned.stdout).contains("removed out/.latest-4194305"));
    assert!(out.join(".latest-4194305").symlink_metadata().is_err());
    assert!(ground.newest("junit.xml").exists());
}
