//! Stale UDP flows.

use chainbreak_agents::kube_proxy::Event;
use serde_json::json;

use crate::{
    desk::{Desk, Invented, failed},
    objects::{config, service, service_gone, slice_of},
};

fn dns() -> Event {
    let spec = json!({
        "type": "NodePort",
        "clusterIP": "10.96.0.10",
        "externalIPs": ["192.0.2.53"],
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}],
    });
    service("dns", spec)
}

fn endpoints(ips: &[&str]) -> Event {
    let port = json!({"name": "dns", "port": 53, "protocol": "UDP"});
    let endpoints = ips.iter().map(|ip| json!({"addresses": [ip]})).collect();
    slice_of("dns", port, endpoints)
}

fn synced(version: &str, ips: &[&str]) -> Desk<Invented> {
    let mut desk = Desk::synced(
        config(version),
        Invented::default(),
        [dns(), endpoints(ips)],
    );
    desk.forget();
    desk
}

#[test]
fn until_1_31_flows_to_an_endpoint_that_is_gone_are_deleted_by_address() {
    for version in ["1.20", "1.26", "1.31"] {
        let mut desk = synced(version, &["10.20.1.1", "10.20.1.2"]);
        desk.tell_later(endpoints(&["10.20.1.2"]));
        assert_eq!(
            desk.typed("conntrack"),
            [
                "conntrack -D -p udp --dport 30053 --dst-nat 10.20.1.1",
                "conntrack -D --orig-dst 10.96.0.10 --dst-nat 10.20.1.1 -p udp",
                "conntrack -D --orig-dst 192.0.2.53 --dst-nat 10.20.1.1 -p udp",
            ],
            "{version}"
        );
        let last = desk.ran.last().unwrap();
        assert_eq!(last.1.argv[0], "conntrack", "after the rules are in place");
    }
}

#[test]
fn until_1_31_flows_of_a_service_that_gets_its_first_endpoint_or_goes_are_deleted() {
    let mut desk = synced("1.31", &[]);
    desk.tell_later(endpoints(&["10.20.1.1"]));
    assert_eq!(
        desk.typed("conntrack"),
        [
            "conntrack -D --orig-dst 10.96.0.10 -p udp",
            "conntrack -D --orig-dst 192.0.2.53 -p udp",
            "conntrack -D -p udp --dport 30053",
        ]
    );
    desk.forget();
    desk.tell_later(service_gone("dns"));
    assert_eq!(
        desk.typed("conntrack"),
        ["conntrack -D --orig-dst 10.96.0.10 -p udp"]
    );
}

/// Issue 112604.
#[test]
fn until_1_31_a_failed_sync_forgets_the_stale_flows() {
    let mut desk = synced("1.31", &["10.20.1.1", "10.20.1.2"]);
    desk.kernel
        .outputs
        .insert("iptables-restore", failed(1, "no\n"));
    desk.tell_later(endpoints(&["10.20.1.2"]));
    desk.kernel.outputs.clear();
    desk.pass(crate::desk::HOUR);
    assert!(desk.typed("conntrack").is_empty());
}

#[test]
fn nothing_to_delete_is_no_error() {
    let mut desk = synced("1.31", &["10.20.1.1"]);
    let nothing = "conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted.\n";
    desk.kernel
        .outputs
        .insert("conntrack -D", failed(1, nothing));
    desk.tell_later(endpoints(&["10.20.1.2"]));
    assert!(!desk.said().contains("Failed"), "{}", desk.said());
    desk.kernel
        .outputs
        .insert("conntrack -D", failed(127, "not found\n"));
    desk.tell_later(endpoints(&["10.20.1.3"]));
    assert!(
        desk.said()
            .contains("Failed to delete stale endpoint connections"),
        "{}",
        desk.said()
    );
}

#[test]
fn from_1_32_flows_that_no_endpoint_answers_are_found_in_the_table() {
    let mut desk = synced("1.32", &["10.20.1.1", "10.20.1.2"]);
    let flow = |from: &str, to: &str, by: &str| {
        format!(
            "udp      17 29 src=10.20.9.{from} dst={to} sport=4000 dport=53 src={by} dst=10.20.9.{from} \
             sport=53 dport=4000 [ASSURED] mark=0 use=1\n"
        )
    };
    desk.kernel.flows = [
        flow("1", "10.96.0.10", "10.20.1.1"),
        flow("2", "10.96.0.10", "10.20.1.2"),
        flow("3", "192.0.2.53", "10.20.1.1"),
        flow("4", "10.20.7.7", "10.20.7.7"),
    ]
    .concat();
    desk.tell_later(endpoints(&["10.20.1.2"]));
    assert_eq!(
        desk.typed("conntrack"),
        [
            "conntrack -L -p udp",
            "conntrack -D -p udp --orig-src 10.20.9.1 --orig-dst 10.96.0.10 --sport 4000 --dport 53",
            "conntrack -D -p udp --orig-src 10.20.9.3 --orig-dst 192.0.2.53 --sport 4000 --dport 53",
        ]
    );
}

/// Issues 139628 and 141371.
#[test]
fn from_1_32_flows_of_a_service_without_endpoints_or_gone_stay() {
    let mut desk = synced("1.32", &["10.20.1.1"]);
    desk.kernel.flows = "udp 17 29 src=10.20.9.1 dst=10.96.0.10 sport=4000 dport=53 src=10.20.1.1 \
                         dst=10.20.9.1 sport=53 dport=4000 mark=0 use=1\n"
        .to_owned();
    desk.tell_later(endpoints(&[]));
    assert_eq!(desk.typed("conntrack"), ["conntrack -L -p udp"]);
    desk.tell_later(service_gone("dns"));
    assert_eq!(desk.typed("conntrack").len(), 1);
}

#[test]
fn tcp_services_need_no_conntrack() {
    for version in ["1.31", "1.32"] {
        let events = crate::objects::nginx();
        let mut desk = Desk::synced(config(version), Invented::default(), events);
        desk.tell_later(service_gone("nginx"));
        assert!(desk.typed("conntrack").is_empty(), "{version}");
    }
}
