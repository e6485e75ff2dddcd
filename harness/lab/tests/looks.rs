//! Looking at the machine and into worlds.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod support;

use std::process::{Command, Output};

use serde_json::Value;
use support::{PROGRAM, User, World, case, missing_packages};

fn program(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

#[tokio::test]
async fn a_shell_enters_the_place_of_a_running_world() {
    let mut world = World::raise(User::Myself, &case(3)).await;
    world.nginx(&[("a", "n1")]).await;
    // Other tests' worlds have no third node.
    let seen = program(&[
        "shell",
        "n3",
        "sh",
        "-c",
        "hostname; ip -o -4 addr show eth0; exit 7",
    ]);
    let text = String::from_utf8(seen.stdout).unwrap();
    assert!(
        text.starts_with("n3\n") && text.contains("10.0.1.3/16"),
        "{text}"
    );
    assert_eq!(seen.status.code(), Some(7));
    world.sh("node/n3", "echo here > /run/mine").await;
    let seen = program(&["shell", "n3", "cat", "/run/mine"]);
    assert_eq!(String::from_utf8(seen.stdout).unwrap(), "here\n");
    world.stop().await;
    let seen = program(&["shell", "n3", "true"]);
    assert!(!seen.status.success(), "the world is gone");
}

#[test]
fn what_a_fresh_machine_lacks_is_said_at_once_with_the_command_that_mends_it() {
    assert_eq!(missing_packages(|_| true), None);
    let lacks =
        missing_packages(|program| !["iptables-nft", "iptables-legacy", "curl"].contains(&program));
    let said = "this machine lacks curl, iptables: `make packages` installs what tests need";
    assert_eq!(lacks.as_deref(), Some(said));
}

#[test]
fn the_survey_finds_what_the_tests_need() {
    let said = program(&["survey"]);
    let found: Value = serde_json::from_slice(&said.stdout).unwrap();
    for capability in [
        "lab",
        "overlayfs",
        "ip",
        "iptables-legacy",
        "iptables-nft",
        "nft",
        "conntrack",
        "ipset",
        "nginx",
    ] {
        assert!(
            found[capability].get("Ok").is_some(),
            "{capability}: {found}"
        );
    }
}
