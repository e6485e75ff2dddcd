//! The table that stands in for eBPF programs.

use chainbreak_agents::{
    felix::{self, Event},
    kube_proxy,
};
use serde_json::{Value, json};

use crate::{
    netns::{Backend, Netns},
    node::{Node, bpf, config},
};

fn working(version: &str) -> felix::Config {
    felix::Config {
        programs: true,
        ..config(version)
    }
}

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn service() -> Event {
    let ports = json!([{ "name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP" }]);
    Event::Proxied(kube_proxy::Event::Service(Box::new(of(json!({
        "metadata": { "namespace": "test", "name": "web" },
        "spec": { "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "type": "NodePort", "ports": ports },
    })))))
}

fn slice(addresses: &[&str]) -> Event {
    let endpoints = addresses.iter();
    let endpoints: Vec<Value> = endpoints
        .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
        .collect();
    Event::Proxied(kube_proxy::Event::Slice(Box::new(of(json!({
        "metadata": {
            "namespace": "test", "name": "web-1",
            "labels": { "kubernetes.io/service-name": "web" },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        "endpoints": endpoints,
    })))))
}

fn listed(node: &mut Node) {
    node.tell(Event::Proxied(kube_proxy::Event::ServicesSynced));
    node.tell(Event::Proxied(kube_proxy::Event::SlicesSynced));
}

fn table(netns: &Netns) -> Option<String> {
    let listing = netns.run(&["nft", "list", "table", "ip", "felix-programs"], "");
    (listing.exit == 0).then_some(listing.stdout)
}

fn chain(netns: &Netns, chain: &str) -> String {
    netns.must(&["nft", "list", "chain", "ip", "felix-programs", chain], "")
}

fn told(netns: &std::rc::Rc<Netns>, version: &str) -> Node {
    let mut node = Node::started_as(working(version), bpf(), netns.exec_on(Backend::Nft));
    node.tell(service());
    node.tell(slice(&["10.20.1.2", "10.20.1.3"]));
    listed(&mut node);
    node
}

#[test]
fn the_map_has_what_felixs_own_proxy_was_told_and_nothing_before_everything_was_listed() {
    let netns = Netns::new();
    let mut node = Node::started_as(working("v3.28.1"), bpf(), netns.exec_on(Backend::Nft));
    node.tell(service());
    node.tell(slice(&["10.20.1.2", "10.20.1.3"]));
    assert!(!chain(&netns, "frontends").contains("10.96.0.7"));
    listed(&mut node);
    node.assert_no_failures();
    let written = chain(&netns, "frontends");
    assert!(
        written.contains("ip daddr 10.96.0.7 tcp dport 80 dnat ip to numgen random mod 2 map { 0 : 10.20.1.2 . 8080, 1 : 10.20.1.3 . 8080 }"),
        "{written}"
    );
    assert!(
        written.contains("fib daddr type local tcp dport 30080"),
        "{written}"
    );
}

#[test]
fn the_map_is_written_again_no_sooner_than_its_period_allows() {
    let netns = Netns::new();
    let mut node = told(&netns, "v3.28.1");
    node.tell(slice(&["10.20.1.4"]));
    assert!(!chain(&netns, "frontends").contains("10.20.1.4"));
    node.pass(std::time::Duration::from_secs(1));
    let written = chain(&netns, "frontends");
    assert!(written.contains("dnat to 10.20.1.4:8080"), "{written}");
}

#[test]
fn a_restarted_felix_that_is_told_nothing_leaves_the_map_and_loses_links_that_are_not_pinned() {
    for (version, stays) in [
        ("v3.28.1", false),
        ("v3.28.5", true),
        ("v3.29.4", false),
        ("v3.32.1", true),
    ] {
        let netns = Netns::new();
        drop(told(&netns, version));
        assert!(chain(&netns, "connect").contains("jump frontends"));
        if let Some(lost) = felix::lost_with_the_process(&working(version)) {
            netns.must(&["nft", "-f", "-"], &lost.input);
        }
        let again = Node::new(working(version), netns.exec_on(Backend::Nft));
        assert!(
            chain(&netns, "frontends").contains("10.20.1.2"),
            "{version}"
        );
        let connect = chain(&netns, "connect");
        assert_eq!(connect.contains("jump frontends"), stays, "{version}");
        drop(again);
    }
}

#[test]
fn where_the_pins_end_with_the_pod_links_are_detached_and_programs_without_links_drop() {
    for (version, detached) in [("v3.28.1", false), ("v3.30.7", false), ("v3.32.1", true)] {
        let netns = Netns::new();
        drop(told(&netns, version));
        let lost = felix::lost_with_the_pod(&working(version)).unwrap();
        netns.must(&["nft", "-f", "-"], &lost.input);
        if detached {
            assert_eq!(table(&netns), None);
            continue;
        }
        let marks = chain(&netns, "marks");
        assert!(
            marks.contains("iifname != \"lo\" counter packets 0 bytes 0 drop"),
            "{marks}"
        );
        assert!(!marks.contains("meta mark set"), "{marks}");
    }
    assert!(felix::lost_with_the_pod(&config("v3.28.1")).is_none());
}

#[test]
fn the_end_of_a_pod_changes_nothing_where_no_programs_are_attached() {
    for version in ["v3.28.1", "v3.32.1"] {
        let netns = Netns::new();
        let lost = felix::lost_with_the_pod(&working(version)).unwrap();
        let output = netns.run(&["nft", "-f", "-"], &lost.input);
        assert_ne!(output.exit, 0);
        assert!(
            output.stderr.contains(felix::NOTHING_ATTACHED),
            "{}",
            output.stderr
        );
        assert_eq!(table(&netns), None);
    }
}

#[test]
fn the_nodes_own_connections_are_translated_at_connect_time_or_behind_kube_proxy() {
    for (word, connect, host) in [
        ("TCP", "meta l4proto tcp jump", "meta l4proto != tcp jump"),
        ("Enabled", "jump frontends", "}"),
        ("Disabled", "}", "jump frontends"),
    ] {
        let netns = Netns::new();
        let spec = json!({ "bpfEnabled": true, "bpfConnectTimeLoadBalancing": word });
        let node = Node::started_as(working("v3.32.1"), spec, netns.exec_on(Backend::Nft));
        node.assert_no_failures();
        for (name, words) in [("connect", connect), ("host", host)] {
            let rules = chain(&netns, name);
            assert!(rules.contains(words), "{word}: {rules}");
            let without = words == "}" && rules.contains("jump");
            assert!(!without, "{word}: {rules}");
        }
    }
}

#[test]
fn an_interface_that_the_pattern_misses_has_no_programs_and_replies_by_it_are_dropped() {
    for (pattern, matches) in [("^ens", false), ("^(ens|eth)", true), ("(", true)] {
        let netns = Netns::new();
        let spec = json!({
            "bpfEnabled": true, "bpfConnectTimeLoadBalancing": "Disabled", "bpfDataIfacePattern": pattern,
        });
        let node = Node::started_as(working("v3.32.1"), spec, netns.exec_on(Backend::Nft));
        node.assert_no_failures();
        for name in ["marks", "interfaces"] {
            let rules = chain(&netns, name);
            assert!(rules.contains("iifname \"cali*\""), "{pattern}: {rules}");
            let there = rules.contains("iifname \"eth0\"");
            assert_eq!(there, matches, "{pattern}: {rules}");
        }
        for (name, words) in [
            ("host", "ct mark set ct mark | 0x40000000"),
            (
                "strangers",
                "iifname \"eth0\" ct direction reply ct status dnat ct mark & 0x40000000 == 0x40000000 counter packets 0 bytes 0 drop",
            ),
        ] {
            let rules = chain(&netns, name);
            assert_ne!(rules.contains(words), matches, "{pattern}: {rules}");
        }
    }
}

#[test]
fn a_felix_that_begins_without_ebpf_takes_the_table_away() {
    let netns = Netns::new();
    drop(told(&netns, "v3.28.1"));
    assert!(table(&netns).is_some());
    let spec = json!({ "bpfEnabled": false });
    let node = Node::started_as(working("v3.28.1"), spec, netns.exec_on(Backend::Nft));
    node.assert_no_failures();
    assert_eq!(table(&netns), None);
}

#[test]
fn a_model_whose_programs_fail_has_no_table() {
    let netns = Netns::new();
    let mut node = Node::started(bpf(), netns.exec_on(Backend::Nft));
    node.tell(service());
    listed(&mut node);
    assert_eq!(table(&netns), None);
}
