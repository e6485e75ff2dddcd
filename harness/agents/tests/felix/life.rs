//! How a life ends, and what the next one does.

use std::{rc::Rc, time::Duration};

use chainbreak_agents::{felix::Event, step::Severity};
use serde_json::json;

use crate::{
    kube_proxy,
    netns::{Backend::Legacy, Netns},
    node::{Node, bpf, config, pool, workload},
};

const SECOND: Duration = Duration::from_secs(1);

fn started(netns: &Rc<Netns>, spec: serde_json::Value) -> Node {
    let mut spec = spec;
    spec["iptablesBackend"] = json!("legacy");
    Node::started(spec, netns.exec())
}

#[test]
fn a_changed_configuration_ends_the_life_after_two_seconds() {
    let netns = Netns::new();
    let mut node = started(&netns, bpf());
    let off = json!({"bpfEnabled": true, "iptablesBackend": "legacy", "bpfKubeProxyIptablesCleanupEnabled": false});
    node.configure(off.clone());
    assert_eq!(node.exited, None);
    node.pass(SECOND * 2);
    assert_eq!(node.exited.as_deref(), Some("config changed"));
    let lines = node.logs.iter().rev().map(|line| line.text.as_str());
    let texts: Vec<&str> = lines
        .filter(|text| !text.starts_with("Dataplane updates"))
        .take(4)
        .collect();
    assert_eq!(
        texts,
        [
            "Exiting for config change rc=129",
            "Sleeping to avoid tight restart loop. reason=\"config changed\"",
            "Felix is shutting down reason=\"config changed\"",
            "Configuration value changed; change DOES require Felix to restart. \
             key=\"BPFKubeProxyIptablesCleanupEnabled\" newValue=\"false\" oldValue=\"\"",
        ]
    );
    // The next life leaves kube-proxy alone.
    kube_proxy::program(&netns, Legacy);
    let nat = netns.save(Legacy, "nat");
    let mut next = started(&netns, off);
    next.pass(SECOND * 400);
    assert_eq!(netns.save(Legacy, "nat"), nat);
}

#[test]
fn the_same_configuration_again_changes_nothing() {
    let netns = Netns::new();
    let mut node = started(&netns, bpf());
    node.configure(json!({"bpfEnabled": true, "iptablesBackend": "legacy"}));
    node.configure(json!({"bpfEnabled": true, "iptablesBackend": "legacy", "clusterType": "k8s"}));
    node.pass(SECOND * 60);
    assert_eq!(node.exited, None);
    assert_eq!(
        node.logged("change DOES NOT require Felix to restart.")
            .len(),
        1
    );
}

#[test]
fn until_it_exits_the_old_configuration_is_in_force() {
    let netns = Netns::new();
    let spec = json!({"bpfEnabled": true, "iptablesPostWriteCheckInterval": "1s"});
    let mut node = started(&netns, spec);
    kube_proxy::program(&netns, Legacy);
    node.configure(json!({"bpfEnabled": false}));
    node.pass(SECOND);
    assert!(
        !netns
            .save(Legacy, "nat")
            .iter()
            .any(|line| line.contains("-j KUBE-SERVICES"))
    );
}

#[test]
fn going_from_bpf_mode_to_iptables_mode_and_back_leaves_nothing_behind() {
    let netns = Netns::new();
    let rules = |spec: serde_json::Value| {
        let mut node = started(&netns, spec);
        node.pass(SECOND * 10);
        node.assert_no_failures();
        ["raw", "mangle", "nat", "filter"].map(|table| netns.save(Legacy, table))
    };
    let first = rules(bpf());
    let iptables = rules(json!({}));
    assert_ne!(first, iptables);
    assert_eq!(rules(bpf()), first);
    assert_eq!(rules(json!({})), iptables);
}

#[test]
fn a_pool_with_vxlan_restarts_felix() {
    let netns = Netns::new();
    let mut node = started(&netns, json!({}));
    let mut vxlan = pool();
    vxlan.vxlan = true;
    node.tell(Event::Pools(vec![vxlan.clone()]));
    node.pass(SECOND * 2);
    assert_eq!(node.exited.as_deref(), Some("encapsulation changed"));
    // The next life hears of the pool before it starts.
    let mut next = Node::new(config("v3.28.1"), netns.exec());
    next.configure(json!({"iptablesBackend": "legacy"}));
    next.tell(Event::Pools(vec![vxlan]));
    next.tell(Event::Nodes(vec!["172.18.0.2".parse().unwrap()]));
    next.tell(Event::InSync);
    next.assert_no_failures();
    let input = netns.save(Legacy, "filter");
    assert!(
        input
            .iter()
            .any(|line| line.contains("Drop IPv4 VXLAN packets from non-allowed hosts"))
    );
    assert!(
        netns
            .must(&["ipset", "save", "cali40all-vxlan-net"], "")
            .contains("172.18.0.2")
    );
}

#[test]
fn nothing_is_written_before_felix_is_in_sync_but_the_early_rules_of_bpf_mode() {
    let netns = Netns::new();
    let mut node = Node::new(config("v3.28.1"), netns.exec());
    node.tell(Event::Workload(workload("cali1a")));
    assert!(node.commands.is_empty(), "no configuration, no command");
    node.configure(json!({"bpfEnabled": true, "iptablesBackend": "legacy"}));
    node.pass(SECOND * 1000);
    let filter = netns.save(Legacy, "filter");
    let rules: Vec<&String> = filter
        .iter()
        .filter(|line| line.starts_with("-A"))
        .collect();
    assert_eq!(rules.len(), 2, "{rules:?}");
    assert!(
        rules
            .iter()
            .all(|rule| rule.contains("Mark pre-established flows."))
    );
    node.tell(Event::InSync);
    node.assert_no_failures();
    let early = |line: &&String| line.contains("Mark pre-established flows.");
    assert_eq!(
        netns.save(Legacy, "filter").iter().filter(early).count(),
        2,
        "moved, not doubled"
    );
}

#[test]
fn a_configuration_felix_cannot_start_with_is_waited_out() {
    let netns = Netns::new();
    let mut node = Node::started(json!({"chainInsertMode": "Sideways"}), netns.exec());
    assert!(node.commands.is_empty());
    assert!(
        node.logs
            .iter()
            .any(|line| line.severity == Severity::Error)
    );
    node.configure(json!({"chainInsertMode": "Insert", "iptablesBackend": "legacy"}));
    assert_eq!(node.restores(), 4);
}

/// What hid every failed list of the API from the report of issue 10538.
#[test]
fn lines_below_log_severity_screen_are_not_printed() {
    for (screen, said) in [("Info", true), ("Error", false)] {
        let netns = Netns::new();
        let spec = json!({"bpfEnabled": true, "logSeverityScreen": screen});
        let node = started(&netns, spec);
        let infos = node.logs.iter().map(|line| line.text.as_str());
        let cleanup = infos
            .filter(|it| it.starts_with("BPF enabled, configuring"))
            .count();
        assert_eq!(cleanup > 0, said, "{screen}");
    }
}
