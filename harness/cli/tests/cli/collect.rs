//! `collect`: the script that makes a node's dumps, and `explain` of what it makes, in a real world.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use chainbreak_lab::registry;
use nix::sys::signal::Signal;

use crate::ground::{Ground, exits, kept, text};

fn script(ground: &Ground) -> String {
    let output = ground.chainbreak(&["collect"]);
    exits(&output, 0);
    text(&output.stdout)
}

#[test]
fn the_script_is_short_and_written_to_a_file_that_can_be_run() {
    let ground = Ground::new();
    let script = script(&ground);
    assert!(script.lines().count() <= 60, "{}", script.lines().count());
    exits(&ground.chainbreak(&["collect", "-o", "collect.sh"]), 0);
    let file = ground.path().join("collect.sh");
    assert_eq!(fs::read_to_string(&file).unwrap(), script);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o755
    );
}

/// A folder with programs in the place of a node's, and what every system has: none of the machine's own that looks at networks.
fn stand_ins(ground: &Ground) -> PathBuf {
    let bin = ground.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for (program, does) in [
        ("iptables", "echo 'iptables v1.8.9 (nf_tables)'"),
        ("iptables-save", "echo '*nat'; echo COMMIT"),
        (
            "conntrack",
            "yes 'tcp 6 1 ESTABLISHED src=10.0.0.1 dst=10.0.0.2' | head -n 10000",
        ),
        (
            "ipset",
            "echo 'Kernel error received: Operation not permitted' >&2; exit 1",
        ),
        (
            "sysctl",
            "printf 'net.ipv4.ip_forward = 1\\nnet.ipv4.tcp_fastopen_key = 1-2-3-4\\nkernel.hostname = x\\n'",
        ),
        ("ip", "echo default via 10.0.0.1 dev eth0"),
    ] {
        let file = bin.join(program);
        fs::write(&file, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for program in [
        "mktemp", "uname", "date", "cat", "wc", "rm", "mkdir", "head", "grep", "tee", "yes",
        "printf", "tar", "gzip", "sh",
    ] {
        let found = ["/usr/bin", "/bin"]
            .iter()
            .map(|it| Path::new(it).join(program));
        if let Some(found) = found.into_iter().find(|it| it.exists()) {
            symlink(found, bin.join(program)).unwrap();
        }
    }
    bin
}

/// Programs of the test's own stand in for the node's.
#[test]
fn what_fails_is_too_long_or_secret_is_left_out_and_named() {
    let ground = Ground::new();
    exits(&ground.chainbreak(&["collect", "-o", "collect.sh"]), 0);
    let bin = stand_ins(&ground);
    let narrow = fs::read_to_string(ground.path().join("collect.sh")).unwrap();
    let narrow = narrow.replace(":/usr/local/sbin:/usr/sbin:/sbin", "");
    ground.write("narrow.sh", narrow);
    let output = Command::new("/bin/sh")
        .args(["narrow.sh", "node-1"])
        .env_clear()
        .env("PATH", &bin)
        .env("MOST", "4096")
        .current_dir(ground.path())
        .output()
        .unwrap();
    exits(&output, 0);
    let folder = ground.path().join("node-1");
    let left = fs::read_to_string(folder.join("left-out")).unwrap();
    for part in [
        "conntrack -L: more than 4096 bytes",
        "ipset save: exit code 1, Kernel error received: Operation not permitted",
        "nft list ruleset: nft is not here",
        "settings whose names have key or secret",
    ] {
        assert!(left.contains(part), "{part}: {left}");
    }
    let settings = fs::read_to_string(folder.join("sysctls")).unwrap();
    assert_eq!(settings, "net.ipv4.ip_forward = 1\n");
    for gone in ["conntrack", "ipset", "nft", ".err"] {
        assert!(!folder.join(gone).exists(), "{gone}");
    }
    assert!(ground.path().join("node-1.tgz").exists());
    let asked = ["explain", "10.0.0.9", "10.0.0.10:80", "--dump"];
    let explained = ground.chainbreak(&[&asked[..], &["node-1"]].concat());
    exits(&explained, 0);
    assert!(text(&explained.stdout).contains("`conntrack -L`"));
    assert!(text(&explained.stderr).contains("more than 4096 bytes"));
    let packed = ground.chainbreak(&[&asked[..], &["node-1.tgz"]].concat());
    exits(&packed, 0);
    assert_eq!(text(&packed.stdout), text(&explained.stdout));
    assert!(text(&packed.stderr).contains("more than 4096 bytes"));
}

#[test]
fn a_kept_world_and_what_the_script_collects_there_lead_a_packet_to_the_pod() {
    let ground = Ground::new();
    let (run, world) = kept(&ground);
    let pid = world.to_string();
    let output = ground.chainbreak(&["explain", "pod/client", "test/web:80", "--world", &pid]);
    exits(&output, 0);
    let said = text(&output.stdout);
    let first = said.lines().next().unwrap();
    assert!(
        first.contains("received by eni") && first.ends_with("now on n1"),
        "{said}"
    );
    assert!(
        said.contains("to KUBE-SEP-") && said.contains("SYN leaves the node by eni"),
        "{said}"
    );
    assert!(!said.contains("not known"), "{said}");
    let from = first.split(' ').nth(1).unwrap().to_owned();
    let to = first.split(' ').nth(3).unwrap().to_owned();

    let words = "cat > /tmp/collect.sh; cd /tmp; sh collect.sh node-1 >&2; cat node-1/*";
    let mut inside = registry::command(Some(world), "n1", &["sh", "-c", words]).unwrap();
    let mut inside = inside
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let script = script(&ground);
    inside
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let collected = inside.wait_with_output().unwrap();
    exits(&collected, 0);
    ground.write("node-1.txt", &collected.stdout);
    let again = ground.chainbreak(&["explain", &from, &to, "--dump", "node-1.txt"]);
    exits(&again, 0);
    let again = text(&again.stdout);
    // Felix puts its rules in front of others' again from time to time, and so in another order.
    let end = |said: &str| {
        said.lines()
            .find(|it| it.starts_with("  "))
            .map(str::to_owned)
    };
    assert_eq!(end(&again), end(&said));
    assert!(
        again.contains("to KUBE-SEP-") && !again.contains("not known"),
        "{again}"
    );

    let unknown = ground.chainbreak(&["explain", &from, &to, "--world", "1"]);
    exits(&unknown, 2);
    assert!(text(&unknown.stderr).contains("no world of process 1"));
    run.signal(Signal::SIGINT);
    run.ends();
}
