//! BPF mode's cleanup after kube-proxy, on the real kernel.

use std::{rc::Rc, time::Duration};

use serde_json::json;

use crate::{
    kube_proxy,
    netns::{
        Backend::{self, Legacy, Nft},
        Netns,
    },
    node::{Node, bpf},
};

/// The lines of a table that are kube-proxy's.
fn kube(netns: &Netns, backend: Backend, table: &str) -> Vec<String> {
    let mut lines = netns.save(backend, table);
    lines.retain(|line| line.contains("KUBE-"));
    lines
}

fn backend_of(backend: Backend) -> serde_json::Value {
    json!({"bpfEnabled": true, "iptablesBackend": backend.word()})
}

fn leftovers(backend: Backend) -> (Node, Rc<Netns>) {
    let netns = Netns::new();
    kube_proxy::program(&netns, backend);
    let mut node = Node::started(bpf(), netns.exec());
    node.pass(Duration::from_millis(1));
    (node, netns)
}

/// What a cleanup leaves, in the words of iptables-save.
const LEFT_IN_NAT: [&str; 12] = [
    ":KUBE-EXT-VGUOL4GRNAEO3TE3",
    ":KUBE-MARK-MASQ",
    ":KUBE-POSTROUTING",
    ":KUBE-PROXY-CANARY",
    ":KUBE-SVL-VGUOL4GRNAEO3TE3",
    "-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING",
    "-A KUBE-EXT-VGUOL4GRNAEO3TE3 -m comment --comment \"masquerade LOCAL traffic for test/lb:http external destinations\" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ",
    "-A KUBE-EXT-VGUOL4GRNAEO3TE3 -j KUBE-SVL-VGUOL4GRNAEO3TE3",
    "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
    "-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully",
];
const LEFT_IN_FILTER: [&str; 10] = [
    ":KUBE-FIREWALL",
    ":KUBE-PROXY-CANARY",
    ":KUBE-PROXY-FIREWALL",
    "-A INPUT -j KUBE-FIREWALL",
    "-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL",
    "-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL",
    "-A OUTPUT -j KUBE-FIREWALL",
    "-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL",
    "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
    "-A KUBE-PROXY-FIREWALL -d 192.0.2.10/32 -p tcp -m comment --comment \"test/lb:http traffic not accepted by KUBE-FW-VGUOL4GRNAEO3TE3\" -m tcp --dport 80 -j DROP",
];

fn assert_same(mut actual: Vec<String>, expected: &[&str]) {
    let mut expected: Vec<String> = expected.iter().map(|&line| line.to_owned()).collect();
    actual.sort_unstable();
    expected.sort_unstable();
    assert_eq!(actual, expected);
}

fn cleanup_leaves_exactly_what_felix_leaves(backend: Backend) {
    let netns = Netns::new();
    kube_proxy::program(&netns, backend);
    let mut node = Node::started(backend_of(backend), netns.exec());
    node.assert_no_failures();
    assert_same(kube(&netns, backend, "nat"), &LEFT_IN_NAT);
    assert_same(kube(&netns, backend, "filter"), &LEFT_IN_FILTER);
    assert_same(kube(&netns, backend, "mangle"), &[":KUBE-PROXY-CANARY"]);
    // The log names each claimed rule and chain, and no line is worse than INFO.
    assert_eq!(
        node.logged("Found unexpected chain, marking for cleanup chainName=\"KUBE-SERVICES\"")
            .len(),
        2
    );
    assert!(
        node.logs
            .iter()
            .all(|line| !line.text.contains("out-of-sync"))
    );
    // Nothing is left to do: later readings write nothing.
    let writes = node.restores();
    node.pass(Duration::from_secs(400));
    assert_eq!(node.restores(), writes);
}

#[test]
fn cleanup_leaves_exactly_what_felix_leaves_on_legacy() {
    cleanup_leaves_exactly_what_felix_leaves(Legacy);
}

#[test]
fn cleanup_leaves_exactly_what_felix_leaves_on_nft() {
    cleanup_leaves_exactly_what_felix_leaves(Nft);
}

fn a_kube_proxy_that_writes_again_is_cleaned_again(backend: Backend) {
    let netns = Netns::new();
    kube_proxy::program(&netns, backend);
    let mut node = Node::started(backend_of(backend), netns.exec());
    for round in 1..=3 {
        kube_proxy::program(&netns, backend);
        let jump =
            "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
        assert!(kube(&netns, backend, "nat").iter().any(|line| line == jump));
        // Felix checks 5 s after its own write: each cleanup brings the next one near.
        node.pass(Duration::from_secs(5));
        assert!(
            !kube(&netns, backend, "nat").iter().any(|line| line == jump),
            "round {round}"
        );
    }
    node.assert_no_failures();
    // From the second reading on the kernel chains were clean before: now Felix warns.
    let warned = node.logged("Chain had unexpected inserts, marking for resync");
    assert!(warned.iter().any(|line| line.contains("chainName=\"PREROUTING\"") && line.contains("table=\"nat\"")));
    assert!(
        warned
            .iter()
            .all(|line| line.contains("actualRuleIDs=[]string{"))
    );
    let rounds = node.logged("Found unexpected chain, marking for cleanup chainName=\"KUBE-SERVICES\" ipVersion=0x4 table=\"nat\"");
    assert_eq!(rounds.len(), 4);
}

#[test]
fn a_kube_proxy_that_writes_again_is_cleaned_again_on_legacy() {
    a_kube_proxy_that_writes_again_is_cleaned_again(Legacy);
}

#[test]
fn a_kube_proxy_that_writes_again_is_cleaned_again_on_nft() {
    a_kube_proxy_that_writes_again_is_cleaned_again(Nft);
}

/// With the one knob turned, or BPF mode off, not one line of kube-proxy's is touched.
fn kube_proxy_is_left_alone(backend: Backend, spec: &serde_json::Value) {
    let netns = Netns::new();
    kube_proxy::program(&netns, backend);
    let tables = ["nat", "filter", "mangle"];
    let before = tables.map(|table| kube(&netns, backend, table));
    let mut spec = spec.clone();
    spec["iptablesBackend"] = json!(backend.word());
    let mut node = Node::started(spec, netns.exec());
    node.pass(Duration::from_secs(400));
    node.assert_no_failures();
    assert!(node.restores() > 0, "Felix wrote its own rules");
    assert_eq!(tables.map(|table| kube(&netns, backend, table)), before);
    assert!(node.logged("marking for cleanup").is_empty());
}

#[test]
fn without_the_cleanup_flag_not_one_kube_line_is_touched() {
    let spec = json!({"bpfEnabled": true, "bpfKubeProxyIptablesCleanupEnabled": false});
    kube_proxy_is_left_alone(Legacy, &spec);
    kube_proxy_is_left_alone(Nft, &spec);
}

#[test]
fn without_bpf_mode_not_one_kube_line_is_touched() {
    let spec = json!({"bpfEnabled": false});
    kube_proxy_is_left_alone(Legacy, &spec);
    kube_proxy_is_left_alone(Nft, &spec);
}

#[test]
fn the_other_backend_is_left_alone() {
    let netns = Netns::new();
    kube_proxy::program(&netns, Legacy);
    let before = kube(&netns, Legacy, "nat");
    let mut node = Node::started(backend_of(Nft), netns.exec());
    node.pass(Duration::from_secs(400));
    assert_eq!(kube(&netns, Legacy, "nat"), before);
    let warning = "Iptables backend specified does not match the detected backend, using specified backend \
                   detectedBackend=\"legacy\" specifiedBackend=\"nft\"";
    assert_eq!(node.logged(warning).len(), 1);
}

#[test]
fn without_a_hint_the_backend_with_the_rules_is_cleaned() {
    let (node, netns) = leftovers(Nft);
    assert_same(kube(&netns, Nft, "nat"), &LEFT_IN_NAT);
    assert_eq!(
        node.logged("Enabling iptables-in-nftables-mode workarounds.")
            .len(),
        1
    );
    let (_, netns) = leftovers(Legacy);
    assert_same(kube(&netns, Legacy, "nat"), &LEFT_IN_NAT);
}

#[test]
fn kubelets_hint_decides_against_the_number_of_rules() {
    let netns = Netns::new();
    kube_proxy::program(&netns, Legacy);
    netns.must(
        &["iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"],
        "",
    );
    let before = kube(&netns, Legacy, "nat");
    let node = Node::started(bpf(), netns.exec());
    assert_eq!(kube(&netns, Legacy, "nat"), before);
    assert!(
        node.commands
            .iter()
            .any(|(_, command, _)| command.argv[0] == "iptables-nft-restore")
    );
    assert_eq!(kube(&netns, Nft, "mangle"), [":KUBE-IPTABLES-HINT"]);
}

#[test]
fn from_v3_31_4_kube_proxys_nft_table_goes_too() {
    let table = "table ip kube-proxy {\n chain services {\n }\n}\n";
    for (version, survives) in [("v3.31.3", true), ("v3.31.4", false), ("v3.32.1", false)] {
        let netns = Netns::new();
        netns.must(&["nft", "-f", "-"], table);
        let spec = json!({"bpfEnabled": true, "iptablesBackend": "nft"});
        Node::started_as(crate::node::config(version), spec, netns.exec()).assert_no_failures();
        let tables = netns.must(&["nft", "list", "tables"], "");
        assert_eq!(
            tables.contains("table ip kube-proxy"),
            survives,
            "{version}: {tables}"
        );
    }
}
