//! What takes so long that `make test-kind-all` runs it, and `make test-kind` does not.

mod existing;
mod jobs;
mod perils;
mod rehearsed;
mod upgrades;

use super::*;

const SILENT: &str = "kube-proxy/silent-outage-without-an-error-line.yaml";

/// The Service of two nodes in iptables mode by either front end, in nftables mode, over IPv4 alone and over both families; and without a kube-proxy.
#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind-all"]
fn a_service_is_answered_in_every_mode_of_kube_proxy_and_by_nobody_without_one() {
    // 1.20 has no nftables mode, and its images here no second family. Without a kube-proxy once is enough.
    let most = if is_1_20() {
        r"served\[mode=iptables,iptables|nobody-serves\[iptables=nft,ip-family=IPv4"
    } else {
        r"served\[|nobody-serves\[iptables=nft,ip-family=IPv4"
    };
    let ground = ground();
    ground.write("modes.yaml", include_str!("modes.yaml"));
    let output = run(&ground, "modes.yaml", &["--reuse", "-k", most])
        .output()
        .unwrap();
    let history = history(&ground, &output);
    for words in ["Using iptables Proxier", "Using nftables Proxier"] {
        assert!(is_1_20() || history.contains(words), "{words}");
    }
    // The nodes' kernel is this one.
    let ipvs = history.contains("Using ipvs Proxier");
    let said = text(&output.stdout);
    assert!(said.contains("modes/nobody-serves["), "{said}");
    assert!(ipvs || said.contains("no ip_vs"), "{said}");
    assert!(standing().len() <= 2, "{:?}", standing());
    clean(&ground);
    assert_eq!(standing(), [""; 0]);
}

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind-all"]
fn what_is_flushed_stays_lost_as_long_as_the_real_kube_proxy_is_stopped() {
    let ground = ground();
    let more = ["--variant", "flushed-while-kube-proxy-is-stopped"];
    let output = run(&ground, "two-nodes.yaml", &more).output().unwrap();
    history(&ground, &output);
    assert_eq!(
        standing(),
        [""; 0],
        "without --reuse a cluster ends with its case"
    );
}

/// In the nodes the model knows no pod's interface, which decides what `cleanup-disabled` comes to.
#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind-all"]
fn felix_s_model_deletes_the_jumps_of_the_real_kube_proxy_in_ebpf_mode_and_not_without() {
    let ground = ground();
    let scenario = scenarios().join(SILENT);
    let more = [
        "--agent",
        "felix=model",
        "--variant",
        "quiet-cluster",
        "--variant",
        "bpf-off",
        "--matrix",
        "iptables=legacy",
        "--reuse",
    ];
    let output = run(&ground, scenario.to_str().unwrap(), &more)
        .output()
        .unwrap();
    let history = history(&ground, &output);
    assert!(history.contains("\"value\":\"model v3.28.1 (asked for)\""));
    let report = fs::read_to_string(ground.newest("report.txt")).unwrap();
    assert!(
        report.contains("OUTPUT → KUBE-SERVICES deleted by felix"),
        "{report}"
    );
    clean(&ground);
}
