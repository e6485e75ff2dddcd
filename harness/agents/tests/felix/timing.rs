//! When Felix reads, how it retries, and when it gives up; with invented commands.

use std::{cell::RefCell, rc::Rc, time::Duration};

use chainbreak_agents::{
    felix::Event,
    step::{Command, Output, Severity},
};
use serde_json::json;

use crate::{
    kube_proxy,
    netns::{
        Backend::{self, Legacy, Nft},
        Netns,
    },
    node::{Exec, Node, bpf, config, workload},
};

const SECOND: Duration = Duration::from_secs(1);

fn output(exit: i32, stdout: &str) -> Output {
    Output {
        exit,
        stdout: stdout.to_owned(),
        ..Output::default()
    }
}

/// A kernel without rules, in which every command succeeds unless `special` says otherwise.
fn invented(mut special: impl FnMut(&Command) -> Option<Output> + 'static) -> Exec {
    Rc::new(RefCell::new(move |command: &Command| {
        special(command).unwrap_or_else(|| match command.argv[1..].first().map(String::as_str) {
            Some("--version") => output(0, "iptables v1.8.9 (legacy)\n"),
            _ => output(0, ""),
        })
    }))
}

/// Whole seconds at which `nat` was read, in BPF mode, after the start.
fn readings(version: &str, spec: serde_json::Value, until: u64) -> Vec<u64> {
    // The kernel forgets every rule: each reading of nat finds the jump gone and writes it. mangle
    // holds nothing of Felix's in BPF mode, so it is never written.
    let mut spec = spec;
    spec["bpfEnabled"] = json!(true);
    let mut node = Node::started_as(config(version), spec, invented(|_| None));
    node.pass(SECOND * u32::try_from(until).unwrap());
    // The backend's detection reads mangle, too: twice before the table's own first reading.
    node.runs("-save", "mangle")
        .iter()
        .skip(3)
        .map(Duration::as_secs)
        .collect()
}

#[test]
fn an_idle_table_is_read_at_doubling_distances_and_by_the_refresh_timer() {
    assert_eq!(
        readings("v3.28.1", json!({}), 700),
        [5, 10, 20, 40, 80, 160, 320, 500, 640]
    );
    assert_eq!(
        readings("v3.26.0", json!({}), 130),
        [1, 2, 4, 8, 16, 32, 64, 128]
    );
}

#[test]
fn intervals_follow_the_configuration() {
    let fast = json!({"iptablesRefreshInterval": "2s", "iptablesPostWriteCheckInterval": "1s"});
    assert_eq!(readings("v3.28.1", fast, 10), [1, 2, 4, 6, 8, 10]);
    let no_refresh = json!({"iptablesRefreshInterval": "0s"});
    assert_eq!(
        readings("v3.28.1", no_refresh, 5000),
        [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560]
    );
}

#[test]
fn a_table_felix_just_wrote_is_read_again_after_the_post_write_interval() {
    let mut node = Node::started(bpf(), invented(|_| None));
    node.pass(SECOND * 16);
    let seconds: Vec<u64> = node
        .runs("-save", "nat")
        .iter()
        .map(Duration::as_secs)
        .collect();
    assert_eq!(
        seconds,
        [0, 5, 10, 15],
        "the kernel forgets, so every reading is followed by a write"
    );
}

fn is_restore(command: &Command, table: &str) -> bool {
    command.argv[0].ends_with("-restore") && command.input.starts_with(&format!("*{table}"))
}

#[test]
fn restore_gets_felix_flags() {
    let node = Node::started(json!({}), invented(|_| None));
    let restore = node
        .commands
        .iter()
        .find(|(_, command, _)| is_restore(command, "nat"))
        .unwrap();
    let flags = [
        "--noflush",
        "--verbose",
        "--wait",
        "10",
        "--wait-interval",
        "50000",
    ];
    assert_eq!(restore.1.argv[0], "iptables-legacy-restore");
    assert_eq!(restore.1.argv[1..], flags);
    let old = |command: &Command| {
        (command.argv.last().unwrap() == "--version").then(|| output(0, "iptables v1.4.21"))
    };
    let node = Node::started(json!({}), invented(old));
    let restore = node
        .commands
        .iter()
        .find(|(_, command, _)| is_restore(command, "nat"))
        .unwrap();
    assert_eq!(restore.1.argv[1..], flags[..2]);
}

#[test]
fn a_restore_that_keeps_failing_is_tried_eleven_times_with_a_reading_before_each_and_ends_in_a_panic()
 {
    let fail = |command: &Command| is_restore(command, "nat").then(|| output(1, ""));
    let mut node = Node::started(json!({}), invented(fail));
    node.pass(SECOND * 5);
    assert_eq!(
        node.exited.as_deref(),
        Some("panic: Failed to program iptables, giving up after retries")
    );
    let writes = node
        .commands
        .iter()
        .filter(|(_, command, _)| is_restore(command, "nat"));
    let millis: Vec<u128> = writes.map(|(at, ..)| at.as_millis()).collect();
    assert_eq!(millis, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023]);
    assert_eq!(
        node.runs("-save", "nat").len(),
        12,
        "eleven readings, and one for the diagnosis"
    );
    assert_eq!(
        node.logged(
            "Failed to program iptables, will retry error=writing out buffer: exit status 1"
        )
        .len(),
        10
    );
    let last = node.logs.last().unwrap();
    assert_eq!(last.severity, Severity::Fatal);
    assert_eq!(
        last.text,
        "Failed to program iptables, giving up after retries error=writing out buffer: exit status 1 \
         ipVersion=0x4 table=\"nat\""
    );
}

#[test]
fn a_save_that_keeps_failing_is_tried_four_times_and_ends_in_a_panic() {
    let fail = |command: &Command| {
        let is_it =
            command.argv[0] == "iptables-legacy-save" && command.argv.last().unwrap() == "raw";
        is_it.then(|| output(1, ""))
    };
    let mut node = Node::started(json!({}), invented(fail));
    node.pass(SECOND * 5);
    let millis: Vec<u128> = node
        .runs("-save", "raw")
        .iter()
        .map(Duration::as_millis)
        .collect();
    assert_eq!(millis, [0, 100, 300, 700]);
    assert_eq!(
        node.exited.as_deref(),
        Some("panic: iptables-legacy-save command failed after retries")
    );
    assert_eq!(
        node.logged("iptables-legacy-save command failed error=exit status 1")
            .len(),
        4
    );
}

#[test]
fn rules_that_iptables_cannot_print_fail_the_reading() {
    let odd = |command: &Command| {
        let is_it =
            command.argv[0] == "iptables-legacy-save" && command.argv.last().unwrap() == "nat";
        is_it.then(|| output(0, "# Table `nat' is incompatible, use 'nft' tool.\n"))
    };
    let mut node = Node::started(json!({}), invented(odd));
    node.pass(SECOND * 5);
    assert!(
        node.exited
            .unwrap()
            .starts_with("panic: iptables-legacy-save command failed")
    );
}

#[test]
fn without_iptables_felix_panics() {
    let node = Node::started(json!({}), invented(|_| Some(output(127, ""))));
    assert_eq!(
        node.exited.as_deref(),
        Some("panic: Failed to find iptables command")
    );
}

#[test]
fn without_the_variants_the_plain_commands_are_used() {
    let plain = |command: &Command| command.argv[0].contains("legacy").then(|| output(127, ""));
    let node = Node::started(json!({"iptablesBackend": "legacy"}), invented(plain));
    assert_eq!(node.exited, None);
    assert!(
        node.commands
            .iter()
            .any(|(_, command, _)| command.argv[0] == "iptables-restore")
    );
}

#[test]
fn a_burst_of_pods_is_throttled() {
    let mut node = Node::started(json!({}), invented(|_| None));
    let writes = node.runs("-restore", "filter").len();
    for index in 0..50 {
        node.tell(Event::Workload(workload(&format!("cali{index}"))));
    }
    node.pass(Duration::from_millis(99));
    assert_eq!(
        node.runs("-restore", "filter").len(),
        writes,
        "the first pass took the only one there was"
    );
    node.pass(Duration::from_millis(1));
    assert_eq!(
        node.runs("-restore", "filter").len(),
        writes + 1,
        "all fifty in one write"
    );
    assert_eq!(node.logged("Dataplane updates throttled").len(), 1);
    assert_eq!(
        node.logged("Dataplane updates no longer throttled").len(),
        1
    );
}

#[test]
fn slow_commands_stretch_the_checks() {
    let slow = |command: &Command| {
        (command.argv[0].contains("tables") && command.argv.last().unwrap() != "--version").then(
            || Output {
                took: SECOND * 3,
                ..Output::default()
            },
        )
    };
    let mut node = Node::started(json!({}), invented(slow));
    node.pass(SECOND * 13);
    let seconds: Vec<u64> = node
        .runs("-save", "nat")
        .iter()
        .map(Duration::as_secs)
        .collect();
    assert_eq!(seconds, [0, 12], "twice the peaks of save and restore");
}

/// Someone else changes nat between Felix's reading and its writing: the write fails, the next one,
/// after a new reading, succeeds. Real kernel, real race.
fn a_lost_race_is_retried(backend: Backend, race: &[&str]) {
    let netns = Netns::new();
    kube_proxy::program(&netns, backend);
    let (kernel, real) = (Rc::clone(&netns), netns.exec());
    let iptables = format!("iptables-{}", backend.word());
    let race: Vec<String> = [iptables.as_str()]
        .iter()
        .chain(race)
        .map(|&word| word.to_owned())
        .collect();
    let mut race = Some(race);
    let exec: Exec = Rc::new(RefCell::new(move |command: &Command| {
        if let Some(argv) = race.take_if(|_| is_restore(command, "nat")) {
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            kernel.must(&argv, "");
        }
        (real.borrow_mut())(command)
    }));
    let mut spec = bpf();
    spec["iptablesBackend"] = json!(backend.word());
    let mut node = Node::started(spec, exec);
    node.pass(Duration::from_millis(10));
    assert_eq!(node.exited, None);
    let failures = node.logged("Failed to execute ip(6)tables-restore command");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(node.logged("Succeeded after retry.").len(), 1);
    assert!(
        !netns
            .save(backend, "nat")
            .iter()
            .any(|line| line.contains("-j KUBE-SERVICES"))
    );
}

#[test]
fn a_rule_that_is_gone_already_is_retried() {
    let race = ["-t", "nat", "-D", "OUTPUT", "1"];
    a_lost_race_is_retried(Legacy, &race);
    a_lost_race_is_retried(Nft, &race);
}

#[test]
fn a_new_jump_to_a_chain_being_deleted_is_retried() {
    let race = [
        "-t",
        "nat",
        "-I",
        "PREROUTING",
        "-p",
        "tcp",
        "-j",
        "KUBE-SERVICES",
    ];
    a_lost_race_is_retried(Legacy, &race);
    a_lost_race_is_retried(Nft, &race);
}
