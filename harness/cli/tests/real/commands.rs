//! Who counts commands beside the recorder: at `-v=5` kube-proxy logs each one it is about to run
//! (kube-proxy 1.20, pkg/util/iptables/iptables.go).

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    ground::exits,
    stage::{Stage, User, kube_proxy},
};

#[test]
#[ignore = "needs a real kube-proxy: make test-real"]
fn every_command_of_the_real_kube_proxy_is_in_the_history_once() {
    // Not below /tmp: there worlds show only what they are told to, and that is the script.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let loud = folder.path().join("kube-proxy-5");
    make_louder(&kube_proxy(), &loud);
    let stage = Stage::new(User::Myself);
    let agent = format!("kube-proxy={}", loud.display());
    let fight = [
        "kube-proxy",
        "--variant",
        "default-cleanup-before-partial-syncs",
        "--agent",
    ];
    exits(&stage.run(&[&fight[..], &[&agent]].concat()), 0);
    for (case, seen) in stage.cases() {
        for node in ["n1", "n2"] {
            let announced = count(seen.log(node).into_iter().filter_map(announced));
            let recorded = seen.commands(node).into_iter();
            // It asks for the version without saying so.
            let recorded = count(recorded.filter(|argv| argv != "iptables --version"));
            assert!(announced.len() > 20, "{case}: {announced:?}");
            assert_eq!(recorded, announced, "{case}, {node}");
        }
    }
}

fn make_louder(program: &Path, script: &Path) {
    let text = format!("#!/bin/sh\nexec {} \"$@\" -v=5\n", program.display());
    fs::write(script, text).unwrap();
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
}

/// "… iptables.go:343] running iptables-save [-t nat]" and "… running iptables: iptables [-w 5 …]".
fn announced(entry: &str) -> Option<String> {
    let (_, running) = entry.split_once("] running ")?;
    let (program, rest) = running.split_once(" [")?;
    let program = program
        .split_once(": ")
        .map_or(program, |(_, program)| program);
    let arguments = rest.strip_suffix(']')?;
    Some(format!("{program} {arguments}"))
}

fn count(argvs: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for argv in argvs {
        *counts.entry(argv).or_default() += 1;
    }
    counts
}
