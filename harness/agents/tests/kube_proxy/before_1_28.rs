//! What changed from release to release before 1.28: read in the sources, not run (but 1.20.2).

use chainbreak_agents::kube_proxy::Event;
use serde_json::{Value, json};

use crate::{
    desk::{Desk, Invented, failed},
    objects::{config, nginx, service, service_with, slice_of},
};

const HASH: &str = "IU46S4VZFN77LK6S";

fn endpoint(ip: &str, node: &str, ready: bool) -> Value {
    json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": ready}})
}

fn endpoints(all: Vec<Value>) -> Event {
    slice_of("nginx", json!({"name": "http", "port": 80}), all)
}

/// A load balancer with everything that releases differ in.
fn balancer(extra: &Value) -> Event {
    let mut spec = json!({
        "type": "LoadBalancer",
        "clusterIP": "10.96.10.10",
        "externalIPs": ["192.0.2.30"],
        "healthCheckNodePort": 32100,
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
    service_with("nginx", json!({}), spec, status)
}

fn input(version: &str, service: Event, all: Vec<Value>) -> String {
    let events = [service, endpoints(all)];
    let desk = Desk::synced(config(version), Invented::default(), events);
    desk.last_restore().to_owned()
}

fn here() -> Vec<Value> {
    vec![endpoint("10.20.1.1", "n1", true)]
}

fn elsewhere() -> Vec<Value> {
    vec![endpoint("10.20.1.2", "n2", true)]
}

/// The first release with which something is written that the one before does not write.
fn first_with(part: &str, input: impl Fn(&str) -> String) -> Option<&'static str> {
    const ALL: [&str; 9] = [
        "1.20", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27", "1.28",
    ];
    let mut all = ALL.iter().copied();
    let first = all.find(|version| input(version).contains(part));
    for version in all {
        assert!(input(version).contains(part), "{part}: not {version}");
    }
    first
}

#[test]
fn each_release_writes_what_it_brought() {
    let local = json!({"externalTrafficPolicy": "Local"});
    let of = |extra: &Value| {
        let extra = extra.clone();
        move |version: &str| input(version, balancer(&extra), here())
    };
    for (part, release) in [
        (
            "health check node port\" -m tcp -p tcp --dport 32100 -j ACCEPT\n",
            "1.21",
        ),
        ("forwarding conntrack rule\"", "1.23"),
        (":KUBE-EXT-", "1.24"),
        (":KUBE-PROXY-FIREWALL", "1.25"),
        (":KUBE-FIREWALL", "1.27"),
    ] {
        assert_eq!(first_with(part, of(&local)), Some(release), "{part}");
    }
    let ranges = json!({"loadBalancerSourceRanges": ["203.0.113.0/24"]});
    let rest = "will be dropped by KUBE-PROXY-FIREWALL";
    assert_eq!(first_with(rest, of(&ranges)), Some("1.27"));
    let drop = format!("traffic not accepted by KUBE-FW-{HASH}\"");
    assert_eq!(first_with(&drop, of(&ranges)), Some("1.25"));
}

#[test]
fn jumps_to_chains_come_with_the_chains() {
    let jumps = |version: &str| {
        let desk = Desk::synced(config(version), Invented::default(), nginx());
        desk.typed("iptables").join("\n")
    };
    for (chain, release) in [
        ("-j KUBE-NODEPORTS", "1.21"),
        ("-j KUBE-PROXY-FIREWALL", "1.25"),
        ("-j KUBE-FIREWALL", "1.27"),
    ] {
        assert_eq!(first_with(chain, jumps), Some(release), "{chain}");
    }
    assert!(jumps("1.24").contains("-N KUBE-MARK-DROP"));
    assert!(!jumps("1.25").contains("KUBE-MARK-DROP"));
}

#[test]
fn masquerading_moves_from_the_common_chains_into_the_services_in_1_22() {
    for (version, chain) in [
        ("1.21", "KUBE-SERVICES"),
        ("1.22", &format!("KUBE-SVC-{HASH}")),
    ] {
        let input = input(version, balancer(&json!({})), here());
        let rule = format!(
            "-A {chain} -m comment --comment \"test/nginx:http cluster IP\" -m tcp -p tcp \
             -d 10.96.10.10/32 --dport 80 ! -s 10.20.0.0/16 -j KUBE-MARK-MASQ\n"
        );
        assert!(input.contains(&rule), "{version}: {input}");
    }
}

#[test]
fn from_1_21_external_ips_are_for_everybody_and_pods_keep_their_address() {
    let early = input("1.20", balancer(&json!({})), here());
    assert!(early.contains("--physdev-is-in"), "{early}");
    let later = input("1.21", balancer(&json!({})), here());
    assert!(!later.contains("physdev"), "{later}");
    let rule = "external IP\" -m tcp -p tcp -d 192.0.2.30/32 --dport 80 ! -s 10.20.0.0/16 \
                -j KUBE-MARK-MASQ\n";
    assert!(later.contains(rule), "{later}");
}

/// kubelet's rule drops what is marked; from 1.25 on kube-proxy drops it itself.
#[test]
fn until_1_24_what_a_local_policy_leaves_out_is_marked_to_be_dropped() {
    let local = || balancer(&json!({"externalTrafficPolicy": "Local"}));
    let marked = input("1.24", local(), elsewhere());
    let rule = format!(
        "-A KUBE-SVL-{HASH} -m comment --comment \"test/nginx:http has no local endpoints\" \
         -j KUBE-MARK-DROP\n"
    );
    assert!(marked.contains(&rule), "{marked}");
    assert!(marked.contains(&format!("-A KUBE-EXT-{HASH} -j KUBE-SVL-{HASH}\n")));
    assert!(!marked.contains("-j DROP\n-A KUBE-EXTERNAL"), "{marked}");
    let dropped = input("1.25", local(), elsewhere());
    assert!(!dropped.contains("KUBE-MARK-DROP"), "{dropped}");
    assert!(dropped.contains("has no local endpoints\" -m addrtype --dst-type LOCAL"));
}

#[test]
fn until_1_24_a_source_range_marks_the_rest_to_be_dropped() {
    let ranges = || balancer(&json!({"loadBalancerSourceRanges": ["203.0.113.0/24"]}));
    let rule = format!(
        "-A KUBE-FW-{HASH} -m comment --comment \"test/nginx:http loadbalancer IP\" \
         -j KUBE-MARK-DROP\n"
    );
    assert!(input("1.24", ranges(), here()).contains(&rule));
    assert!(!input("1.25", ranges(), here()).contains(&rule));
}

/// Issue 105657: clients stay with an endpoint that is not ready, and a service of such alone swallows requests.
#[test]
fn the_first_patches_of_1_22_keep_endpoints_that_are_not_ready() {
    let sticky = || {
        service(
            "nginx",
            json!({
                "clusterIP": "10.96.10.10",
                "sessionAffinity": "ClientIP",
                "ports": [{"name": "http", "port": 80}],
            }),
        )
    };
    let down = || vec![endpoint("10.20.1.1", "n1", false)];
    for (version, kept) in [
        ("1.22.0", true),
        ("1.22.3", true),
        ("1.22.4", false),
        ("1.22", false),
    ] {
        let input = input(version, sticky(), down());
        assert_eq!(
            input.contains("has no endpoints"),
            !kept,
            "{version}: {input}"
        );
        assert_eq!(input.contains(" --rcheck "), kept, "{version}");
        assert_eq!(input.contains("--to-destination 10.20.1.1:80"), kept);
        let balanced = input.lines().any(|it| {
            it.starts_with(&format!("-A KUBE-SVC-{HASH}"))
                && it.contains("-j KUBE-SEP-")
                && !it.contains("--rcheck")
        });
        assert!(!balanced, "{version}: nobody new is sent there: {input}");
    }
}

#[test]
fn an_internal_policy_leaves_out_other_nodes_from_1_22() {
    let spec = json!({
        "clusterIP": "10.96.10.10",
        "internalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80}],
    });
    for (version, heeded) in [("1.21", false), ("1.22", true), ("1.23", true)] {
        let input = input(version, service("nginx", spec.clone()), elsewhere());
        assert_eq!(
            input.contains("has no endpoints"),
            heeded,
            "{version}: {input}"
        );
    }
}

#[test]
fn from_1_21_lines_have_keys_and_only_the_monitor_and_health_checks_wait() {
    for (version, syncing, monitor) in [
        (
            "1.20",
            "Syncing iptables rules",
            "iptables canary mangle/KUBE-PROXY-CANARY deleted",
        ),
        (
            "1.21",
            "\"Syncing iptables rules\"",
            "iptables canary mangle/KUBE-PROXY-CANARY deleted",
        ),
        (
            "1.26",
            "\"Syncing iptables rules\"",
            "iptables canary mangle/KUBE-PROXY-CANARY deleted",
        ),
        (
            "1.27",
            "\"Syncing iptables rules\"",
            "\"IPTables canary deleted\" table=\"mangle\"",
        ),
    ] {
        let mut desk = Desk::synced(config(version), Invented::default(), nginx());
        for table in ["mangle", "nat", "filter"] {
            desk.kernel.lose(table, "KUBE-PROXY-CANARY");
        }
        desk.pass(31 * crate::desk::SECOND);
        let said = desk.said();
        assert!(
            said.contains(&format!("] {syncing}\n")),
            "{version}: {said}"
        );
        assert!(said.contains(monitor), "{version}: {said}");
    }
}

#[test]
fn until_1_23_a_failed_restores_words_stand_in_brackets() {
    for (version, error) in [
        ("1.23", "exit status 1 (no)"),
        ("1.24", "exit status 1: no"),
    ] {
        let mut kernel = Invented::default();
        kernel.outputs.insert("iptables-restore", failed(1, "no"));
        let desk = Desk::synced(config(version), kernel, nginx());
        let line = format!("\"Failed to execute iptables-restore\" err={error:?}\n");
        assert!(desk.said().contains(&line), "{version}: {}", desk.said());
    }
}

#[test]
fn in_1_27_the_jump_to_masquerading_is_made_last() {
    let last = |version: &str| {
        let desk = Desk::synced(config(version), Invented::default(), nginx());
        let made = desk.typed("iptables");
        let mut jumps = made.iter().rev().filter(|it| it.contains(" -C "));
        jumps.next().unwrap().contains("-j KUBE-POSTROUTING")
    };
    assert_eq!(["1.26", "1.27", "1.28"].map(last), [true, true, false]);
}

#[test]
fn only_1_22_0_leaves_flows_to_balancers() {
    let spec = json!({
        "type": "LoadBalancer",
        "clusterIP": "10.96.0.10",
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.53"}]}});
    for (version, left) in [("1.21", false), ("1.22.0", true), ("1.22.3", false)] {
        let dns = service_with("dns", json!({}), spec.clone(), status.clone());
        let port = json!({"name": "dns", "port": 53, "protocol": "UDP"});
        let slice = slice_of("dns", port, vec![json!({"addresses": ["10.20.1.1"]})]);
        let desk = Desk::synced(config(version), Invented::default(), [dns, slice]);
        let flows = desk.typed("conntrack").join("\n");
        assert!(flows.contains("--orig-dst 10.96.0.10 "), "{flows}");
        assert_eq!(!flows.contains("192.0.2.53"), left, "{version}: {flows}");
    }
}
