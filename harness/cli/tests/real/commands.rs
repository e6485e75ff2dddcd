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
    let (quiet, loud) = (folder.path().join("quiet"), folder.path().join("loud"));
    fs::copy(kube_proxy(), &quiet).unwrap();
    make_louder(&quiet, &loud);
    let stage = Stage::new(User::Myself);
    let agent = format!("kube-proxy={}", loud.display());
    let fight = [
        "kube-proxy",
        "--variant",
        "api-moves-before-partial-syncs",
        "--agent",
    ];
    exits(&stage.run(&[&fight[..], &[&agent]].concat()), 0);
    for (case, seen) in stage.cases() {
        for node in ["n1", "n2"] {
            let announced: Vec<String> = seen.log(node).into_iter().filter_map(announced).collect();
            let mut recorded = seen.commands(node);
            // It asks for the version without saying so.
            recorded.retain(|argv| argv != "iptables --version");
            assert!(announced.len() > 20, "{case}: {announced:?}");
            let nothing: Vec<&String> = Vec::new();
            let unrecorded = missing(&announced, &recorded);
            assert_eq!(unrecorded, nothing, "{case}, {node}: not recorded");
            let unannounced = missing(&recorded, &announced);
            assert_eq!(unannounced, nothing, "{case}, {node}: not announced");
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

/// What the others lack, each as often as it lacks there. Of the last few, one list may have what the other
/// has not yet: a sync and the monitor may each have a command under way when the judging ends.
fn missing<'a>(some: &'a [String], others: &[String]) -> Vec<&'a String> {
    const UNDER_WAY: usize = 3;
    let mut left = BTreeMap::<&String, usize>::new();
    for other in others {
        *left.entry(other).or_default() += 1;
    }
    let settled = &some[..some.len().saturating_sub(UNDER_WAY)];
    let mut lacks = |argv: &&String| match left.get_mut(*argv) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    settled.iter().filter(|argv| lacks(argv)).collect()
}
