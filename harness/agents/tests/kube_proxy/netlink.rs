//! What a core asks of the kernel itself, asked of the real one in a network namespace of its own.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    process::{Command as Process, Stdio},
};

use chainbreak_agents::{
    driver::netlink,
    step::{Command, Output},
};
use chainbreak_netfilter::conntrack::flows;

#[test]
fn connections_and_counters_are_the_kernels_own() {
    let as_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let flags = if as_root { "-n" } else { "-rn" };
    let inner = [
        "--exact",
        "netlink::in_a_namespace",
        "--ignored",
        "--nocapture",
    ];
    let output = Process::new("unshare")
        .arg(flags)
        .arg(std::env::current_exe().unwrap())
        .args(inner)
        .stdin(Stdio::null())
        .output()
        .expect("`unshare` of the package util-linux is needed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let cried = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{cried}"
    );
}

fn ask(line: &str, input: &str) -> Output {
    let command = Command {
        argv: line.split(' ').map(str::to_owned).collect(),
        input: input.to_owned(),
    };
    netlink::answer(&command).expect("it is for the kernel")
}

fn conntrack(line: &str) -> String {
    let output = Process::new("conntrack")
        .args(line.split(' '))
        .output()
        .expect("the package conntrack is needed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "runs in the namespace that the test above makes"]
fn in_a_namespace() {
    for (protocol, from) in [
        ("udp", "10.20.9.1"),
        ("udp", "10.20.9.2"),
        ("tcp", "10.20.9.3"),
    ] {
        let state = if protocol == "tcp" {
            " --state ESTABLISHED"
        } else {
            ""
        };
        conntrack(&format!(
            "-I -p {protocol} -s {from} -d 10.96.0.10 --sport 4000 --dport 53 -r 10.20.1.1 -q {from} \
             --reply-port-src 53 --reply-port-dst 4000 -t 600{state}"
        ));
    }
    let listed = ask("netlink conntrack list ipv4", "");
    assert_eq!(listed.exit, 0, "{}", listed.stderr);
    let found: Vec<_> = flows(&listed.stdout).collect();
    assert_eq!(found.len(), 2, "UDP only: {}", listed.stdout);
    let same: Vec<_> = flows(&conntrack("-L -p udp")).map(|it| it.reply).collect();
    assert!(
        found.iter().all(|it| same.contains(&it.reply)),
        "{listed:?}"
    );
    assert_eq!(ask("netlink conntrack list ipv6", "").stdout, "");

    let one = listed.stdout.lines().find(|it| it.contains("10.20.9.1"));
    let deleted = ask("netlink conntrack delete ipv4", one.unwrap());
    assert_eq!((deleted.exit, deleted.stdout.lines().count()), (0, 1));
    let again = ask("netlink conntrack delete ipv4", one.unwrap());
    assert_eq!((again.exit, again.stdout.as_str()), (0, ""), "it is gone");
    let left = conntrack("-L");
    assert!(
        !left.contains("10.20.9.1") && left.contains("10.20.9.2") && left.contains("10.20.9.3")
    );

    let asked = ask("netlink nfacct get chainbreak", "");
    // A kernel without nfnetlink_acct says so, and nothing more can be seen of it.
    assert!(matches!(asked.exit, 2 | 22 | 95), "{asked:?}");
    if asked.exit == 2 {
        assert_eq!(ask("netlink nfacct new chainbreak", "").exit, 0);
        assert_eq!(ask("netlink nfacct get chainbreak", "").exit, 0);
    }
    assert_eq!(ask("netlink nonsense", "").exit, 22);
}
