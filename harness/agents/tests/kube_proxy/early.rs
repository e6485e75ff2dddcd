//! Where 1.20 differs from all that came later, as a real 1.20.2 was seen to do.

use chainbreak_agents::kube_proxy::Event;
use serde_json::{Value, json};

use crate::{
    desk::{Desk, Invented, failed},
    objects::{config, plain, service_gone, service_with, slice, slice_of},
};

fn dns() -> Event {
    let spec = json!({
        "type": "LoadBalancer",
        "clusterIP": "10.96.0.10",
        "externalIPs": ["198.51.100.53"],
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}],
    });
    let ingress = json!([{"ip": "192.0.2.53"}, {"hostname": "balancer.example"}]);
    let status = json!({"loadBalancer": {"ingress": ingress}});
    service_with("dns", json!({}), spec, status)
}

fn endpoints(ips: &[&str]) -> Event {
    let port = json!({"name": "dns", "port": 53, "protocol": "UDP"});
    let endpoints = ips.iter().map(|ip| json!({"addresses": [ip]})).collect();
    slice_of("dns", port, endpoints)
}

fn synced(ips: &[&str]) -> Desk<Invented> {
    Desk::synced(config("1.20"), Invented::default(), [dns(), endpoints(ips)])
}

/// Later releases delete them whenever the service gets its first endpoint, and those to load balancers.
#[test]
fn flows_to_a_node_port_are_deleted_once_when_its_port_is_opened() {
    let mut desk = synced(&["10.20.1.1"]);
    assert_eq!(
        desk.typed("conntrack"),
        [
            "conntrack -D -p udp --dport 30053",
            "conntrack -D --orig-dst 10.96.0.10 -p udp",
            "conntrack -D --orig-dst 198.51.100.53 -p udp",
        ]
    );
    let restored = |(_, command): &(_, chainbreak_agents::step::Command)| {
        command.argv[0] == "iptables-restore"
    };
    let before = desk.ran.iter().take_while(|it| !restored(it));
    let before = before.filter(|(_, it)| it.argv[0] == "conntrack").count();
    assert_eq!(before, 1, "the port is opened before the rules are written");
    desk.tell_later(endpoints(&[]));
    desk.forget();
    desk.tell_later(endpoints(&["10.20.1.1"]));
    assert_eq!(
        desk.typed("conntrack"),
        [
            "conntrack -D --orig-dst 10.96.0.10 -p udp",
            "conntrack -D --orig-dst 198.51.100.53 -p udp",
        ]
    );
    desk.tell_later(service_gone("dns"));
    desk.forget();
    desk.tell_later(dns());
    let opened = "conntrack -D -p udp --dport 30053".to_owned();
    assert!(
        desk.typed("conntrack").contains(&opened),
        "given back and reopened"
    );
}

#[test]
fn a_port_that_could_not_be_kept_by_a_failed_sync_is_opened_again() {
    let mut desk = synced(&["10.20.1.1"]);
    desk.tell_later(service_gone("dns"));
    desk.kernel
        .outputs
        .insert("iptables-restore", failed(1, "no\n"));
    desk.forget();
    desk.tell_later(dns());
    desk.kernel.outputs.clear();
    desk.tell_later(plain("other", "10.96.0.11"));
    let opened = desk.typed("conntrack");
    let opened = opened.iter().filter(|it| it.ends_with("--dport 30053"));
    assert_eq!(opened.count(), 2);
}

/// `LoabBalancerIP` is its own spelling.
#[test]
fn a_load_balancer_known_by_name_is_an_address_without_text() {
    let mut desk = synced(&["10.20.1.1", "10.20.1.2"]);
    desk.forget();
    desk.kernel
        .outputs
        .insert("conntrack -D", failed(2, "Invalid IP address `'\n"));
    desk.tell_later(endpoints(&["10.20.1.1"]));
    assert_eq!(
        desk.typed("conntrack").last().map(String::as_str),
        Some("conntrack -D --orig-dst  --dst-nat 10.20.1.2 -p udp")
    );
    let complaint = "proxier.go:788] Failed to delete test/dns:dns endpoint connections for \
                     LoabBalancerIP , error: error deleting conntrack entries for udp peer \
                     {, 10.20.1.2}, error: conntrack command returned: \"Invalid IP address `'\\n\", \
                     error message: exit status 2";
    assert!(desk.said().contains(complaint), "{}", desk.said());
}

fn second_slice(ip: &str, port: u16) -> Event {
    let port = json!({"name": "http", "port": port});
    let Event::Slice(mut slice) = slice_of("nginx", port, vec![json!({"addresses": [ip]})]) else {
        unreachable!("a slice is a slice");
    };
    slice.metadata.name = Some("nginx-2".to_owned());
    Event::Slice(slice)
}

#[test]
fn an_address_is_one_endpoint_of_a_port_whatever_its_numbers() {
    let destinations = |version: &str| {
        let events = [
            plain("nginx", "10.96.10.10"),
            slice("nginx", &[("10.20.1.1", "n2")]),
            second_slice("10.20.1.1", 8080),
        ];
        let desk = Desk::synced(config(version), Invented::default(), events);
        desk.last_restore()
            .matches("--to-destination 10.20.1.1:")
            .count()
    };
    assert_eq!((destinations("1.20"), destinations("1.26")), (1, 2));
}

#[test]
fn services_and_their_ports_are_told() {
    let mut desk = synced(&["10.20.1.1"]);
    let told = |desk: &Desk<Invented>, texts: &[&str]| {
        for text in texts {
            assert!(
                desk.said().contains(text),
                "{text} is not in {}",
                desk.said()
            );
        }
    };
    told(
        &desk,
        &[
            "proxier.go:286] iptables(IPv4) masquerade mark: 0x00004000",
            "service.go:275] Service test/dns updated: 1 ports",
            "service.go:390] Adding new service port \"test/dns:dns\" at 10.96.0.10:53/UDP",
            "proxier.go:853] Stale udp service test/dns:dns -> 10.96.0.10",
            "proxier.go:1707] Opened local port \"nodePort for test/dns:dns\" (:30053/udp)",
        ],
    );
    let Event::Service(mut moved) = dns() else {
        unreachable!("a service is a service");
    };
    let spec = moved.spec.as_mut().unwrap();
    spec.ports.as_mut().unwrap()[0].port = 54;
    desk.tell_later(Event::Service(moved));
    told(
        &desk,
        &["service.go:392] Updating existing service port \"test/dns:dns\" at 10.96.0.10:54/UDP"],
    );
    desk.tell_later(service_gone("dns"));
    told(
        &desk,
        &[
            "Removing service port \"test/dns:dns\"",
            "Service test/dns updated: 0 ports",
        ],
    );
    let later = Desk::synced(config("1.26"), Invented::default(), [dns()]);
    let silent: Value = json!(later.said());
    assert!(!silent.to_string().contains("service port"), "{silent}");
}
