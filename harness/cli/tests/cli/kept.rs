//! A world that is kept can be looked into until its run is interrupted.

use nix::sys::signal::Signal;

use crate::ground::{Ground, exits, text};

#[test]
fn a_kept_world_is_looked_into_and_ends_with_its_run() {
    let ground = Ground::new();
    let mut run = ground.judging("calm", &["--keep"]);
    run.reads("the world is kept");
    exits(&ground.chainbreak(&["shell", "n1", "--", "true"]), 0);
    exits(
        &ground.chainbreak(&["shell", "n1", "--", "sh", "-c", "exit 7"]),
        7,
    );
    let rules = ground.chainbreak(&["shell", "n1", "--", "iptables-save", "-t", "nat"]);
    assert!(
        text(&rules.stdout).contains("KUBE-SERVICES"),
        "{}",
        text(&rules.stderr)
    );
    let unknown = ground.chainbreak(&["shell", "n99"]);
    assert!(text(&unknown.stderr).contains("no world has the place n99"));
    run.signal(Signal::SIGINT);
    let (status, said, _) = run.ends();
    assert_eq!(status.code(), Some(0), "its case was judged before: {said}");
}
