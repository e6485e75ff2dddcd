//! A cluster that is kept between cases: what somebody left in it is named, and does not reach the next case.

use super::*;

/// What is planted: a command, and how it is named.
const PLANTED: [(&[&str], &str); 7] = [
    (
        &[
            "iptables",
            "-t",
            "mangle",
            "-A",
            "FORWARD",
            "-m",
            "comment",
            "--comment",
            "planted",
            "-j",
            "ACCEPT",
        ],
        "-A FORWARD -m comment --comment planted -j ACCEPT",
    ),
    (
        &["sysctl", "-w", "net.ipv4.tcp_fin_timeout=17"],
        "still has sysctl: net.ipv4.tcp_fin_timeout = 17",
    ),
    (
        &["ip", "route", "add", "blackhole", "203.0.113.0/24"],
        "still has ip -4 route: blackhole 203.0.113.0/24",
    ),
    (
        &["ipset", "create", "planted", "hash:ip"],
        "still has ipset: planted",
    ),
    (
        &[
            "conntrack",
            "-I",
            "-p",
            "udp",
            "-s",
            "10.20.9.9",
            "-d",
            "10.20.9.8",
            "--sport",
            "9",
            "--dport",
            "9",
            "-t",
            "600",
        ],
        "still has conntrack: udp src=10.20.9.9 dst=10.20.9.8",
    ),
    (
        &[
            "kubectl",
            "--kubeconfig",
            "/etc/kubernetes/admin.conf",
            "create",
            "configmap",
            "planted",
        ],
        "the API still has ConfigMap default/planted",
    ),
    (
        &[
            "sh",
            "-c",
            "sleep 3600 < /dev/null > /dev/null 2>&1 & kill -STOP $!",
        ],
        "still has stopped: sleep",
    ),
];

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind"]
fn what_is_left_in_a_kept_cluster_is_named_and_the_cluster_is_made_anew() {
    let ground = ground();
    let calm = ["--variant", "calm", "--reuse"];
    exits(&run(&ground, "two-nodes.yaml", &calm).output().unwrap(), 0);
    let [cluster] = standing().try_into().unwrap();
    let node = format!("{cluster}-control-plane");
    let plant = |command: &[&str]| {
        let argv = [&["exec", &node][..], command].concat();
        let output = Command::new("docker").args(argv).output().unwrap();
        exits(&output, 0);
    };
    for (command, _) in PLANTED {
        plant(command);
    }
    let output = run(&ground, "two-nodes.yaml", &calm).output().unwrap();
    let found = history(&ground, &output);
    assert!(
        found.contains("is not as it was before its first case"),
        "{found}"
    );
    assert_eq!(found.matches("creating the cluster").count(), 1);
    let told = found.lines().find(|line| line.contains("is not as it was"));
    let told = told.unwrap_or_default();
    for (_, words) in PLANTED {
        assert!(told.contains(words), "{words}: {told}");
    }
    let output = run(&ground, "two-nodes.yaml", &calm).output().unwrap();
    let found = history(&ground, &output);
    assert!(
        found.contains("is as it was before its first case\""),
        "{found}"
    );
    let (rule, words) = PLANTED[0];
    plant(rule);
    let output = run(&ground, "two-nodes.yaml", &calm).output().unwrap();
    let found = history(&ground, &output);
    let told = found.lines().find(|line| line.contains("tidied once more"));
    assert!(told.is_some_and(|told| told.contains(words)), "{found}");
    assert!(!found.contains("creating the cluster"), "{found}");
    clean(&ground);
}
