//! Whatever is wrong with the agent that was given: one clear line before anything runs where its file shows it, inconclusive where its
//! life does, and nothing left behind.
//! Small programs of the tests' own stand in for it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    ground::{exits, text},
    stage::{Stage, User},
};

/// `EM_AARCH64` and `EM_X86_64` of elf(5).
const FOREIGN: u8 = if cfg!(target_arch = "x86_64") {
    183
} else {
    62
};
/// Begins like the real one.
const VERSION: &str = "#!/bin/sh\n[ \"$1\" = --version ] && echo Kubernetes v1.20.2 && exit 0\n";

#[test]
fn a_program_for_another_machine_is_named_as_one() {
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(18, 0);
    head.extend([FOREIGN, 0]);
    head.resize(64, 0);
    let stage = Stage::new(User::Myself);
    let path = stage.ground.path().join("agent");
    program(&path, &head);
    let said = refused(&stage, &path);
    assert!(said.contains("and this machine is"), "{said}");
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let stage = Stage::new(User::Myself);
    let said = refused(&stage, &stage.ground.path().join("absent"));
    assert!(said.contains("absent as kube-proxy"), "{said}");
    assert!(said.contains("No such file or directory"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_root_without_iptables_says_what_it_lacks() {
    let stage = Stage::new(User::Myself);
    let root = stage.ground.path().join("root");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    program(&root.join("usr/bin/kube-proxy"), VERSION.as_bytes());
    let said = refused(&stage, &root);
    assert!(said.contains("without iptables"), "{said}");
}

#[test]
fn an_agent_that_exits_at_once_is_shown_with_its_last_line() {
    let dies = format!("{VERSION}echo 'F1121 no reason at all' >&2\nexit 3\n");
    let parts = ["kube-proxy on n1", "exit status 3", "no reason at all"];
    trouble(dies.as_bytes(), &[], &parts);
}

#[test]
fn an_agent_that_never_syncs_is_given_up_with_what_it_asked_for() {
    let asks = "curl -s \"${1#--master=}/api/v1/nodes/n1\" >/dev/null\nexec sleep 600\n";
    let mute = format!("{VERSION}{asks}");
    let parts = ["node n1", "GET /api/v1/nodes/n1: 200"];
    trouble(mute.as_bytes(), &["--ready-within", "3s"], &parts);
}

/// A run with a program of these bytes is inconclusive, and says all these parts.
#[track_caller]
fn trouble(bytes: &[u8], args: &[&str], parts: &[&str]) {
    let stage = Stage::new(User::Myself);
    let path = stage.ground.path().join("agent");
    program(&path, bytes);
    let said = inconclusive(&stage, &path, args);
    for part in parts {
        assert!(said.contains(part), "no {part}: {said}");
    }
}

/// What is said of an agent that cannot be one: nothing ran.
#[track_caller]
fn refused(stage: &Stage, agent: &Path) -> String {
    let choice = format!("kube-proxy={}", agent.display());
    let output = stage.run(&["short.yaml", "--variant", "calm", "--agent", &choice]);
    exits(&output, 2);
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

/// What the run said. Nothing is in the folder but its reports, and no process has the agent's path in
/// its arguments.
#[track_caller]
fn inconclusive(stage: &Stage, agent: &Path, args: &[&str]) -> String {
    let before = names(stage.ground.path());
    let choice = format!("kube-proxy={}", agent.display());
    let short = ["short.yaml", "--variant", "calm", "--agent", &choice];
    let output = stage.run(&[&short[..], args].concat());
    exits(&output, 11);
    let mut after = names(stage.ground.path());
    after.retain(|name| name != "out");
    assert_eq!(after, before);
    let left = processes_with(&agent.display().to_string());
    assert!(left.is_empty(), "{left:?}");
    text(&output.stdout)
}

fn program(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The command lines that contain those words.
fn processes_with(words: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(words)).collect()
}
