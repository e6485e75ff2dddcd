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
            .contains("\"Failed to delete endpoint connections\" err=\"error deleting conntrack entries for UDP peer"),
        "{}",
        desk.said()
    );
}

/// A flow from a client to a service, answered by that endpoint's port.
fn flow(client: &str, to: &str, by: &str, port: u16) -> String {
    format!(
        "udp 17 29 src=10.20.9.{client} dst={to} sport=4000 dport=53 src={by} dst=10.20.9.{client} \
         sport={port} dport=4000 [ASSURED] mark=0 use=1\n"
    )
}

/// From which clients the flows are that were asked to be deleted.
fn deleted(desk: &Desk<Invented>) -> Vec<String> {
    let asked = desk.ran.iter().map(|(_, it)| it);
    let asked = asked.filter(|it| it.argv.join(" ") == "netlink conntrack delete ipv4");
    let flows = asked.flat_map(|it| it.input.lines());
    let clients = flows.filter_map(|line| line.split_once("src=10.20.9.")?.1.split(' ').next());
    clients.map(str::to_owned).collect()
}

#[test]
fn from_1_32_flows_that_no_endpoint_answers_are_found_in_the_table() {
    let mut desk = synced("1.32", &["10.20.1.1", "10.20.1.2"]);
    desk.kernel.flows = [
        flow("1", "10.96.0.10", "10.20.1.1", 53),
        flow("2", "10.96.0.10", "10.20.1.2", 53),
        flow("3", "192.0.2.53", "10.20.1.1", 53),
        flow("4", "10.20.7.7", "10.20.7.7", 53),
        // Nobody answered: the service had no rules.
        flow("5", "10.96.0.10", "10.96.0.10", 53),
    ]
    .concat();
    desk.tell_later(endpoints(&["10.20.1.2"]));
    assert_eq!(deleted(&desk), ["1", "3", "5"]);
    assert_eq!(
        desk.typed("netlink"),
        [
            "netlink conntrack list ipv4",
            "netlink conntrack delete ipv4"
        ],
        "in one go"
    );
    assert!(desk.typed("conntrack").is_empty(), "no program is needed");
}

#[test]
fn flows_to_another_port_of_an_endpoint_are_stale_from_1_34_only() {
    for (version, expected) in [("1.33", vec![]), ("1.34.0", vec!["1"])] {
        let mut desk = synced(version, &["10.20.1.1"]);
        desk.kernel.flows = flow("1", "10.96.0.10", "10.20.1.1", 5353);
        desk.tell_later(endpoints(&["10.20.1.1", "10.20.1.2"]));
        assert_eq!(deleted(&desk), expected, "{version}");
    }
}

/// Whatever changes in the slices of a service with a UDP port, the table is looked through.
#[test]
fn from_1_32_any_change_of_endpoints_of_udp_looks_at_the_table() {
    let lists = |desk: &Desk<Invented>| desk.typed("netlink").len();
    for (version, expected) in [("1.31", 0), ("1.32", 1), ("1.36", 1)] {
        let mut desk = synced(version, &["10.20.1.1"]);
        desk.tell_later(endpoints(&["10.20.1.1", "10.20.1.2"]));
        assert_eq!(lists(&desk), expected, "{version}: one more");
        desk.forget();
        desk.tell_later(service_gone("dns"));
        assert_eq!(lists(&desk), 0, "{version}: slices as before");
    }
}

/// Issues 139628 and 141371.
#[test]
fn from_1_32_3_flows_of_a_service_without_endpoints_or_gone_stay() {
    for (version, expected) in [("1.32.2", vec!["1"]), ("1.32.3", vec![]), ("1.36", vec![])] {
        let mut desk = synced(version, &["10.20.1.1"]);
        desk.kernel.flows = flow("1", "10.96.0.10", "10.20.1.1", 53);
        desk.tell_later(endpoints(&[]));
        assert_eq!(deleted(&desk), expected, "{version}");
        desk.forget();
        desk.tell_later(service_gone("dns"));
        assert!(desk.typed("netlink").is_empty());
    }
}

/// A listing that a change interrupts is given up in 1.32, and used as far as it came later.
#[test]
fn an_interrupted_listing_is_tried_again_from_1_33() {
    for (version, lists, expected) in [("1.32", 1, vec![]), ("1.33", 5, vec!["1"])] {
        let mut desk = synced(version, &["10.20.1.1", "10.20.1.2"]);
        let mut partial = failed(4, "interrupted system call");
        partial.stdout = flow("1", "10.96.0.10", "10.20.1.1", 53);
        desk.kernel.outputs.insert("conntrack list", partial);
        desk.tell_later(endpoints(&["10.20.1.2"]));
        let listed = desk.typed("netlink");
        let listed = listed.iter().filter(|it| it.contains(" list ")).count();
        assert_eq!(
            (listed, deleted(&desk)),
            (
                lists,
                expected.iter().map(|it: &&str| (*it).to_owned()).collect()
            ),
            "{version}"
        );
        let gave_up = desk
            .said()
            .contains("\"Failed to list conntrack entries\" err=\"interrupted");
        assert_eq!(gave_up, version == "1.32", "{}", desk.said());
        assert!(!desk.said().contains("Sync failed"));
    }
}

#[test]
fn tcp_services_need_no_conntrack() {
    for version in ["1.31", "1.32"] {
        let events = crate::objects::nginx();
        let mut desk = Desk::synced(config(version), Invented::default(), events);
        desk.forget();
        desk.tell_later(service_gone("nginx"));
        assert!(desk.typed("conntrack").is_empty(), "{version}");
        assert!(desk.typed("netlink").is_empty(), "{version}");
    }
}
