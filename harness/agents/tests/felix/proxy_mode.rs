//! Felix v3.32 and a kube-proxy in nftables mode on one node, both models, on the real nft: the cleanup deletes
//! kube-proxy's table, and `NFTablesMode: Auto` takes that for a change of kube-proxy's mode.

use std::{rc::Rc, time::Duration};

use chainbreak_agents::{
    kube_proxy::{self, Event as Told, Mode},
    step::Stepper,
};
use serde_json::{Value, json};

use crate::{
    fight::{endpoints, service},
    netns::{Backend::Legacy, Netns},
    node::{Node, config},
};

const SECOND: Duration = Duration::from_secs(1);
/// Not what a first start says of a table that is not there yet.
const SYNC_FAILED: &str = "nftables sync failed";
const RESTART: &str = "kube-proxy nftables mode changed. Restart felix.";

/// A node with both agents, kube-proxy first. Felix restarts when it exits.
struct Pair {
    netns: Rc<Netns>,
    spec: Value,
    felix: Node,
    proxy: Node<Told>,
    /// What every life of Felix but the last said about its end.
    ends: Vec<String>,
}

impl Pair {
    fn new(felix: &Value) -> Self {
        let netns = Netns::new();
        let config = kube_proxy::Config {
            mode: Mode::Nftables,
            cluster_cidr: Some("10.20.0.0/16".parse().unwrap()),
            node_ip: Some("172.18.0.2".parse().unwrap()),
            ..kube_proxy::Config::new("1.33".parse().unwrap(), "n1")
        };
        let stepper = Stepper::new(move |io| kube_proxy::run(io, config, |_| ()));
        let mut proxy = Node::of(stepper, netns.exec_on(Legacy));
        for (name, ip) in [("web", "10.96.10.10"), ("busy", "10.96.10.11")] {
            proxy.tell(service(name, ip));
            proxy.tell(endpoints(name, "10.20.1.1"));
        }
        proxy.tell(Told::ServicesSynced);
        proxy.tell(Told::SlicesSynced);
        let mut spec = felix.clone();
        spec["iptablesBackend"] = json!("legacy");
        Self {
            felix: Node::started_as(config_of_felix(), spec.clone(), netns.exec()),
            netns,
            spec,
            proxy,
            ends: Vec::new(),
        }
    }

    /// Lets seconds pass for both; in each that `busy` counts off, kube-proxy has something to change.
    fn pass(&mut self, seconds: u64, busy: u64) {
        for second in 1..=seconds {
            self.proxy.pass(SECOND);
            if busy != 0 && second % busy == 0 {
                let ip = format!("10.20.2.{}", second % 250);
                self.proxy.tell(endpoints("busy", &ip));
            }
            self.felix.pass(SECOND);
            if self.felix.exited.is_some() {
                let said = self.felix.logged(RESTART);
                self.ends.extend(said.first().map(|&it| it.to_owned()));
                let next =
                    Node::started_as(config_of_felix(), self.spec.clone(), self.netns.exec());
                self.felix = next;
            }
        }
    }

    fn table(&self) -> String {
        self.netns
            .run(&["nft", "list", "table", "ip", "kube-proxy"], "")
            .stdout
    }
}

fn config_of_felix() -> chainbreak_agents::felix::Config {
    config("v3.32.1")
}

#[test]
fn in_a_quiet_cluster_felix_deletes_the_table_and_starts_anew_once() {
    let mut pair = Pair::new(&json!({"bpfEnabled": true}));
    assert_eq!(pair.table(), "", "gone with Felix's first pass");
    let said = pair
        .felix
        .logged("Determined whether or not to use nftables");
    let fields = "calicoMode=\"Auto\" kubeProxyEnabled=true useNftables=true";
    assert!(said[0].ends_with(fields), "{said:?}");
    pair.pass(14, 0);
    assert!(pair.ends.is_empty());
    pair.pass(600, 0);
    assert_eq!(
        pair.ends,
        [format!("{RESTART} current=false previous=true")]
    );
    assert_eq!(pair.table(), "", "kube-proxy noticed nothing");
    assert!(pair.proxy.logged(SYNC_FAILED).is_empty());
}

/// kube-proxy's next change makes the table again, at once where there are stale chains to delete, else with the sync
/// after the one that fails: with that behind it when Felix looks, nothing has changed. Felix sees the table again when it refreshes.
#[test]
fn in_a_busy_cluster_the_table_is_back_before_felix_looks_and_goes_with_each_refresh() {
    let mut pair = Pair::new(&json!({"bpfEnabled": true}));
    pair.pass(170, 3);
    assert_eq!(pair.ends, [""; 0]);
    assert!(!pair.table().is_empty());
    pair.pass(200, 3);
    assert_eq!(pair.ends, [""; 0]);
    let failed = pair.proxy.logged(SYNC_FAILED);
    assert_eq!(failed.len(), 1, "at 0 s: {failed:#?}");
    // From 1.33 a sync that cannot delete what is stale is a full one at once.
    let stale = pair.proxy.logged("Unable to delete stale chains");
    assert_eq!(stale.len(), 2, "at 180 and 360 s: {stale:#?}");
}

/// Where changes are rarer than Felix's looks it finds the table gone, or back, and restarts; and each life that
/// finds it deletes it.
#[test]
fn where_changes_are_rare_felix_starts_anew_again_and_again() {
    let mut pair = Pair::new(&json!({"bpfEnabled": true}));
    pair.pass(600, 40);
    assert!(pair.ends.len() >= 8, "{:#?}", pair.ends);
    for (number, end) in pair.ends.iter().enumerate() {
        let current = number % 2 == 1;
        let end_of = format!("{RESTART} current={current} previous={}", !current);
        assert_eq!(*end, end_of, "{number}: {:#?}", pair.ends);
    }
}

#[test]
fn without_the_cleanup_both_live_side_by_side() {
    let off = json!({"bpfEnabled": true, "bpfKubeProxyIptablesCleanupEnabled": false});
    for spec in [off, json!({"bpfEnabled": false})] {
        let mut pair = Pair::new(&spec);
        let table = pair.table();
        assert!(table.contains("service-ips"), "{spec}");
        pair.pass(120, 3);
        assert_eq!(pair.ends, [""; 0], "{spec}");
        assert!(pair.proxy.logged(SYNC_FAILED).is_empty(), "{spec}");
    }
}

#[test]
fn a_mode_that_is_given_keeps_felix_from_starting_anew_and_not_from_deleting() {
    let mut pair = Pair::new(&json!({"bpfEnabled": true, "nftablesMode": "Disabled"}));
    assert_eq!(pair.table(), "");
    pair.pass(120, 3);
    assert_eq!(pair.ends, [""; 0]);
    assert!(
        !pair.table().is_empty(),
        "kube-proxy made it again, and Felix looks every 180 s"
    );
    pair.pass(100, 0);
    assert_eq!(pair.table(), "");
}
