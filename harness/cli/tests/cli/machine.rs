//! Settings that all worlds share are changed where that was allowed, and are as they were after that, also when the
//! run was killed. The value that is set differs from what is there by one.

use std::{fs, thread, time::Duration};

use nix::{sys::signal::Signal, unistd::geteuid};

use crate::ground::{Ground, exits, nobody_cleans, text};

const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

fn max() -> u64 {
    fs::read_to_string(MAX).unwrap().trim().parse().unwrap()
}

/// The short scenario's variants with a larger table.
fn ground(max: u64) -> Ground {
    let ground = Ground::new();
    let larger =
        format!("  nodes: 1\n  host-sysctls: {{ net.netfilter.nf_conntrack_max: {max} }}\n");
    let short = include_str!("ground/short.yaml").replacen("  nodes: 1\n", &larger, 1);
    ground.write("short.yaml", short);
    ground
}

#[test]
fn a_case_that_changes_the_machine_is_skipped_unless_that_is_allowed() {
    let ran = ground(300_000).run("calm", &[]);
    exits(&ran, 12);
    let said = text(&ran.stdout);
    let why = if geteuid().is_root() {
        "chainbreak run --allow-host-changes"
    } else {
        "only root may change the machine's settings"
    };
    assert!(said.contains(why), "{said}");
}

/// As an ordinary user nothing of this can happen: the case is skipped, as above.
#[test]
fn what_a_case_changes_is_set_back_after_it_on_ctrl_c_and_by_clean_after_a_kill() {
    let before = max();
    let ground = ground(before + 1);
    if !geteuid().is_root() {
        exits(&ground.run("calm", &["--allow-host-changes"]), 12);
        return;
    }
    exits(&ground.run("calm", &["--allow-host-changes"]), 0);
    assert_eq!(max(), before, "after its case");
    let history = ground.history();
    assert!(
        history.contains(&format!("from {before} to {}", before + 1)),
        "{history}"
    );
    let run = ground.judging("long", &["--allow-host-changes"]);
    assert_eq!(max(), before + 1, "while it runs");
    run.signal(Signal::SIGINT);
    run.ends();
    assert_eq!(max(), before, "on Ctrl-C");
    let run = ground.judging("long", &["--allow-host-changes"]);
    run.signal(Signal::SIGINT);
    // The kernel makes one of two that come at the same time.
    thread::park_timeout(Duration::from_millis(10));
    run.signal(Signal::SIGINT);
    run.ends();
    assert_eq!(max(), before, "on two of them");
    let run = ground.judging("long", &["--allow-host-changes"]);
    exits(&ground.run("calm", &["--allow-host-changes"]), 11);
    assert_eq!(max(), before + 1, "another run does not meddle");
    let alone = nobody_cleans();
    run.signal(Signal::SIGKILL);
    run.ends();
    assert_eq!(max(), before + 1, "nobody was left to set it back");
    let cleaned = text(&ground.command(&["clean"]).output().unwrap().stdout);
    drop(alone);
    assert!(
        cleaned.contains("set net.netfilter.nf_conntrack_max back"),
        "{cleaned}"
    );
    assert_eq!(max(), before, "after clean");
}
