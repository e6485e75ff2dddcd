//! Exit codes, each from the thing itself.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ground::{Ground, exits, text, validates};

#[test]
fn a_run_as_expected_exits_with_0() {
    let ground = Ground::new();
    let output = ground.run("calm", &[]);
    exits(&output, 0);
    assert!(text(&output.stdout).contains("1 case: 1 as expected"));
    validates(&ground.newest("junit.xml"));
}

/// Felix deletes the jump within a second of the start of its refresh timer; two are judged.
#[test]
fn an_outage_that_nobody_expects_exits_with_10_and_names_the_culprit_first() {
    let ground = Ground::new();
    let output = ground.run("fight-nobody-expects", &[]);
    exits(&output, 10);
    let said = text(&output.stdout);
    let first = said.lines().find(|line| line.starts_with('✗')).unwrap();
    assert!(first.contains("KUBE-SERVICES deleted by felix"), "{said}");
    validates(&ground.newest("junit.xml"));
    let kept =
        std::fs::read_to_string(ground.newest("short_fight-nobody-expects/n1.iptables-save"));
    assert!(kept.unwrap().contains("*nat"));
}

#[test]
fn a_world_that_dies_is_inconclusive_and_exits_with_11() {
    let ground = Ground::new();
    let run = ground.judging("long", &[]);
    let worker = *run.family().first().unwrap();
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    let (status, said, _) = run.ends();
    assert_eq!(status.code(), Some(11), "{said}");
    assert!(said.contains("? the worker died"), "{said}");
    validates(&ground.newest("junit.xml"));
}

#[test]
fn a_run_of_nothing_but_skips_exits_with_12() {
    let ground = Ground::new();
    let output = ground.run("needs-what-no-lab-has", &[]);
    exits(&output, 12);
    assert!(text(&output.stdout).contains("– bpf-service-nat: "));
}

#[test]
fn a_skip_for_want_of_what_is_required_is_a_failure() {
    let ground = Ground::new();
    let output = ground.run("needs-what-no-lab-has", &["--require", "bpf-service-nat"]);
    exits(&output, 10);
    assert!(
        text(&output.stderr)
            .contains("bpf-service-nat is required, but short/needs-what-no-lab-has is skipped")
    );
}

#[test]
fn a_requirement_that_is_nobodys_name_is_a_wrong_command_line() {
    let ground = Ground::new();
    let output = ground.run("needs-what-no-lab-has", &["--require", "nginxx"]);
    exits(&output, 2);
    assert!(text(&output.stderr).contains("--require nginxx: no such capability"));
}

#[test]
fn a_command_line_that_is_wrong_exits_with_2() {
    let ground = Ground::new();
    exits(&ground.chainbreak(&["runn", "short.yaml"]), 2);
    exits(&ground.chainbreak(&["run"]), 2);
    let unknown = ground.run("calmm", &[]);
    exits(&unknown, 2);
    assert!(text(&unknown.stderr).contains("no scenario has a variant \"calmm\""));
    assert!(!ground.path().join("out").exists(), "nothing ran");
}

/// A file stands where the folder should go: root, whom permissions do not stop, cannot write there either.
#[test]
fn a_folder_that_cannot_be_made_is_one_clear_line() {
    let ground = Ground::new();
    let output = ground.chainbreak(&["run", "short.yaml", "--out", "web.yaml/out"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("could not make web.yaml/out: "), "{said}");
}

#[test]
fn a_run_that_is_not_there_is_one_clear_line() {
    let output = Ground::new().chainbreak(&["report", "out/latest"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("could not open out/latest"), "{said}");
}
