//! Felix's own rules on the real kernel: programmed once, kept in place, removed again.

use std::time::Duration;

use chainbreak_agents::felix::Event;
use serde_json::json;

use crate::{
    kube_proxy,
    netns::{
        Backend::{self, Legacy, Nft},
        Netns,
    },
    node::{Node, config, pool, workload},
};

const TABLES: [&str; 4] = ["raw", "mangle", "nat", "filter"];

fn calico_rules(netns: &Netns, backend: Backend) -> usize {
    let lines = TABLES.iter().flat_map(|table| netns.save(backend, table));
    lines.filter(|line| line.contains("cali:")).count()
}

fn iptables_mode(backend: Backend) -> serde_json::Value {
    json!({"iptablesBackend": backend.word()})
}

fn with_one_workload(netns: &std::rc::Rc<Netns>, spec: serde_json::Value) -> Node {
    let mut node = Node::new(config("v3.28.1"), netns.exec());
    node.configure(spec);
    node.tell(Event::Workload(workload("cali1234567890a")));
    node.tell(Event::InSync);
    node
}

fn seventy_seven_rules_and_then_nothing_to_do(backend: Backend) {
    let netns = Netns::new();
    let mut node = with_one_workload(&netns, iptables_mode(backend));
    node.assert_no_failures();
    assert_eq!(calico_rules(&netns, backend), 77);
    assert_eq!(node.restores(), 4, "one write a table");
    node.pass(Duration::from_secs(400));
    assert!(node.runs("-save", "nat").len() > 6, "it did look");
    assert_eq!(node.restores(), 4);
    // A new life finds everything in place, too. On nft Felix creates each empty chain again.
    let mut second = with_one_workload(&netns, iptables_mode(backend));
    second.pass(Duration::from_secs(400));
    assert_eq!(calico_rules(&netns, backend), 77);
    let mut lines = second
        .commands
        .iter()
        .flat_map(|(_, command, _)| command.input.lines());
    match backend {
        Legacy => assert_eq!(second.restores(), 0),
        Nft => assert!(lines.all(|line| line.starts_with(['*', ':', 'C']))),
    }
}

#[test]
fn one_workload_makes_seventy_seven_rules_and_then_there_is_nothing_to_do_on_legacy() {
    seventy_seven_rules_and_then_nothing_to_do(Legacy);
}

#[test]
fn one_workload_makes_seventy_seven_rules_and_then_there_is_nothing_to_do_on_nft() {
    seventy_seven_rules_and_then_nothing_to_do(Nft);
}

fn first_rule(netns: &Netns, backend: Backend, chain: &str) -> String {
    let rule = format!("-A {chain} ");
    netns
        .save(backend, "filter")
        .into_iter()
        .find(|line| line.starts_with(&rule))
        .unwrap()
}

fn a_foreign_rule_above_is_healed_once(backend: Backend) {
    let netns = Netns::new();
    let mut node = with_one_workload(&netns, iptables_mode(backend));
    kube_proxy::program(&netns, backend);
    let iptables = format!("iptables-{}", backend.word());
    netns.must(&[&iptables, "-I", "FORWARD", "-j", "ACCEPT"], "");
    let writes = node.restores();
    node.pass(Duration::from_secs(400));
    node.assert_no_failures();
    assert!(first_rule(&netns, backend, "FORWARD").contains("-j cali-FORWARD"));
    // Rules below Felix's are no concern; only FORWARD got some above, and below the appended ones.
    assert_eq!(node.restores(), writes + 1);
    let warnings = node.logged("Detected out-of-sync inserts, marking for resync");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(
        "actualRuleIDs=[]string{\"\", \"wUHhoiAYhphO9Mso\", \"S93hcgKJrXEqnTfs\", \"mp77cMpurHhyjLrM\", \"\", \"\", \"\", \"\"} \
         chainName=\"FORWARD\" \
         expectedRuleIDs=[]string{\"wUHhoiAYhphO9Mso\", \"\", \"\", \"\", \"\", \"\", \"S93hcgKJrXEqnTfs\", \"mp77cMpurHhyjLrM\"} \
         ipVersion=0x4 table=\"filter\""
    ), "{}", warnings[0]);
}

#[test]
fn a_foreign_rule_above_is_healed_once_on_legacy() {
    a_foreign_rule_above_is_healed_once(Legacy);
}

#[test]
fn a_foreign_rule_above_is_healed_once_on_nft() {
    a_foreign_rule_above_is_healed_once(Nft);
}

#[test]
fn in_append_mode_felix_goes_last_and_what_comes_after_it_is_healed() {
    let netns = Netns::new();
    netns.must(&["iptables-legacy", "-A", "FORWARD", "-j", "ACCEPT"], "");
    let mut node = with_one_workload(
        &netns,
        json!({"iptablesBackend": "legacy", "chainInsertMode": "Append"}),
    );
    let forward = |netns: &Netns| -> Vec<String> {
        let lines = netns.save(Legacy, "filter").into_iter();
        lines
            .filter(|line| line.starts_with("-A FORWARD"))
            .collect()
    };
    assert_eq!(forward(&netns)[0], "-A FORWARD -j ACCEPT");
    netns.must(&["iptables-legacy", "-A", "FORWARD", "-j", "DROP"], "");
    node.pass(Duration::from_secs(5));
    assert_eq!(
        forward(&netns)[..2],
        ["-A FORWARD -j ACCEPT", "-A FORWARD -j DROP"]
    );
    assert_eq!(forward(&netns).len(), 5);
    node.assert_no_failures();
}

fn a_deleted_or_changed_rule_comes_back(backend: Backend) {
    let netns = Netns::new();
    let mut node = with_one_workload(&netns, iptables_mode(backend));
    let before = netns.save(backend, "filter");
    let iptables = format!("iptables-{}", backend.word());
    netns.must(&[&iptables, "-D", "cali-tw-cali1234567890a", "2"], "");
    netns.must(&[&iptables, "-R", "cali-INPUT", "1", "-j", "ACCEPT"], "");
    netns.must(&[&iptables, "-A", "cali-wl-to-host", "-j", "RETURN"], "");
    netns.must(&[&iptables, "-N", "cali-stray"], "");
    node.pass(Duration::from_secs(5));
    node.assert_no_failures();
    assert_eq!(netns.save(backend, "filter"), before);
    let warnings = node.logged("Detected out-of-sync Calico chain, marking for resync");
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert_eq!(
        node.logged("Found unexpected chain, marking for cleanup chainName=\"cali-stray\"")
            .len(),
        1
    );
    let input = &node.commands.last().unwrap().1.input;
    assert_eq!(
        input.contains("\n-R cali-INPUT 1 "),
        backend == Legacy,
        "deltas on legacy only: {input}"
    );
}

#[test]
fn a_deleted_or_changed_rule_comes_back_on_legacy() {
    a_deleted_or_changed_rule_comes_back(Legacy);
}

#[test]
fn a_deleted_or_changed_rule_comes_back_on_nft() {
    a_deleted_or_changed_rule_comes_back(Nft);
}

fn workloads_come_and_go(backend: Backend) {
    let netns = Netns::new();
    let mut node = with_one_workload(&netns, iptables_mode(backend));
    let one = netns.save(backend, "filter");
    let names = ["cali1a", "cali1b", "cali2c"];
    for name in names {
        node.pass(Duration::from_millis(100));
        node.tell(Event::Workload(workload(name)));
    }
    node.pass(Duration::from_secs(1));
    let many = netns.save(backend, "filter");
    assert!(
        many.contains(&":cali-from-wl-dispatch-1".to_owned()),
        "{many:#?}"
    );
    assert!(many.contains(&":cali-tw-cali2c".to_owned()));
    let reads = node.runs("-save", "nat").len();
    for name in names {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        node.tell(Event::WorkloadGone { namespace, name });
    }
    node.pass(Duration::from_secs(1));
    node.assert_no_failures();
    assert_eq!(netns.save(backend, "filter"), one);
    assert_eq!(
        node.runs("-save", "nat").len(),
        reads,
        "pods do not make Felix read nat"
    );
    assert!(
        !node
            .logged(
                "Chain no longer referenced, marking it for removal chainName=\"cali-tw-cali1a\""
            )
            .is_empty()
    );
}

#[test]
fn workloads_come_and_go_on_legacy() {
    workloads_come_and_go(Legacy);
}

#[test]
fn workloads_come_and_go_on_nft() {
    workloads_come_and_go(Nft);
}

#[test]
fn a_pool_that_is_masqueraded_brings_its_ip_sets_first() {
    let netns = Netns::new();
    let mut node = Node::new(config("v3.28.1"), netns.exec());
    node.configure(iptables_mode(Legacy));
    node.tell(Event::Pools(vec![pool()]));
    node.tell(Event::InSync);
    node.assert_no_failures();
    let nat = netns.save(Legacy, "nat");
    assert!(
        nat.iter()
            .any(|line| line.contains("cali40masq-ipam-pools src")),
        "{nat:#?}"
    );
    assert!(
        netns
            .must(&["ipset", "save", "cali40all-ipam-pools"], "")
            .contains("10.20.0.0/16")
    );
    node.tell(Event::Pools(vec![]));
    node.pass(Duration::from_secs(1));
    assert!(
        !netns
            .save(Legacy, "nat")
            .iter()
            .any(|line| line.contains("match-set"))
    );
    node.assert_no_failures();
}

/// Each release in each mode on each backend, with IPv6: all of it loads, and then all is quiet.
#[test]
fn every_release_programs_the_real_kernel_and_converges() {
    for version in [
        "v3.25.2", "v3.26.5", "v3.27.5", "v3.28.1", "v3.29.7", "v3.30.7", "v3.31.0", "v3.32.1",
    ] {
        for bpf in [false, true] {
            for backend in [Legacy, Nft] {
                let netns = Netns::new();
                let spec = json!({
                    "bpfEnabled": bpf,
                    "bpfHostConntrackBypass": true,
                    "ipv6Support": true,
                    "iptablesBackend": backend.word(),
                });
                let mut node = Node::new(config(version), netns.exec());
                node.configure(spec);
                node.tell(Event::Workload(workload("cali1a")));
                node.tell(Event::InSync);
                node.assert_no_failures();
                let writes = node.restores();
                assert!(writes > 0, "{version} {bpf} {backend:?}");
                node.pass(Duration::from_secs(200));
                assert_eq!(
                    node.restores(),
                    writes,
                    "{version} {bpf} {backend:?}: {:?}",
                    node.logs.last()
                );
            }
        }
    }
}
