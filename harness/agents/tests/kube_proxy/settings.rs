//! Settings that clusters have beside their mode and periods.

use chainbreak_agents::kube_proxy::{Config, DetectLocal, Event};
use ipnet::IpNet;
use serde_json::json;

use crate::{
    desk::{Desk, Invented},
    objects::{config, service, slice},
};

fn node_port() -> [Event; 2] {
    let spec = json!({
        "type": "NodePort",
        "clusterIP": "10.96.10.10",
        "externalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    [
        service("nginx", spec),
        slice("nginx", &[("10.20.1.1", "n1")]),
    ]
}

fn input(config: Config) -> String {
    let desk = Desk::synced(config, Invented::counting(), node_port());
    desk.last_restore().to_owned()
}

fn nets(all: &[&str]) -> Vec<IpNet> {
    all.iter().map(|net| net.parse().unwrap()).collect()
}

#[test]
fn without_a_cluster_cidr_nobody_is_known_to_be_a_pod() {
    for version in ["1.20", "1.23", "1.32"] {
        let none = Config {
            cluster_cidr: None,
            ..config(version)
        };
        let input = input(none);
        assert!(!input.contains("10.20.0.0/16"), "{version}: {input}");
        assert!(!input.contains("pod traffic"), "{version}");
        assert!(!input.contains("Redirect pods"), "{version}");
    }
}

#[test]
fn pods_are_told_by_the_interface_that_they_come_in_by() {
    for (detect_local, matched) in [
        (DetectLocal::Bridge("cbr0".to_owned()), "-i cbr0"),
        (DetectLocal::Prefix("eni".to_owned()), "-i eni+"),
    ] {
        let by_interface = Config {
            detect_local,
            ..config("1.32")
        };
        let input = input(by_interface);
        assert!(!input.contains("10.20.0.0/16"), "{input}");
        let pods = format!("pod traffic for test/nginx:http external destinations\" {matched} -j ");
        assert!(input.contains(&pods), "{input}");
        let others = format!("--dport 80 ! {matched} -j KUBE-MARK-MASQ\n");
        assert!(input.contains(&others), "{input}");
    }
}

#[test]
fn with_masquerade_all_everything_to_a_cluster_ip_is_masqueraded() {
    let all = Config {
        masquerade_all: true,
        ..config("1.32")
    };
    let input = input(all);
    assert!(input.contains("-d 10.96.10.10 --dport 80 -j KUBE-MARK-MASQ\n"));
}

#[test]
fn the_mark_is_the_bit_that_was_asked_for() {
    let bit = Config {
        masquerade_bit: 15,
        ..config("1.32")
    };
    let input = input(bit);
    assert!(input.contains("-j MARK --or-mark 0x00008000\n"), "{input}");
    assert!(input.contains("--mark 0x00008000/0x00008000 -j ACCEPT\n"));
    assert!(!input.contains("0x00004000"));
}

#[test]
fn node_ports_are_taken_at_the_addresses_that_are_named() {
    let at = |version: &str, networks: &[&str]| {
        let some = Config {
            node_port_addresses: nets(networks),
            node_addresses: ["127.0.0.1", "172.18.0.2", "10.9.0.2"]
                .map(|ip| ip.parse().unwrap())
                .to_vec(),
            ..config(version)
        };
        input(some)
    };
    let jump = |to: &str| {
        format!("NOTE: this must be the last rule in this chain\" {to} -j KUBE-NODEPORTS\n")
    };
    let one = at("1.32", &["172.18.0.0/16"]);
    assert!(one.contains(&jump("-d 172.18.0.2")), "{one}");
    assert_eq!(one.matches("-j KUBE-NODEPORTS\n").count(), 1);
    assert!(!one.contains("localhost_nps"), "the loopback is left out");
    assert!(!one.contains("block incoming localnet"), "{one}");
    let two = at("1.32", &["10.0.0.0/8", "127.0.0.0/8"]);
    assert!(two.contains(&jump("-d 10.9.0.2")) && two.contains(&jump("-d 127.0.0.1")));
    assert!(two.contains("localhost_nps"), "{two}");
    let all = at("1.32", &["0.0.0.0/0"]);
    assert!(all.contains(&jump("-m addrtype --dst-type LOCAL")), "{all}");
    let other_family = at("1.32", &["fd00::/8"]);
    assert!(other_family.contains(&jump("-m addrtype --dst-type LOCAL")));
}

#[test]
fn a_loopback_that_takes_no_node_ports_is_left_out_and_complained_of() {
    let closed = Config {
        localhost_node_ports: false,
        node_port_addresses: nets(&["127.0.0.0/8"]),
        node_addresses: vec!["127.0.0.1".parse().unwrap()],
        ..config("1.32")
    };
    let desk = Desk::synced(closed, Invented::counting(), node_port());
    assert!(!desk.last_restore().contains("-j KUBE-NODEPORTS\n"));
    assert!(
        desk.said().contains(
            "\"--nodeport-addresses includes localhost but --iptables-localhost-nodeports=false was \
             passed\" ipFamily=\"IPv4\" address=\"127.0.0.1\""
        ),
        "{}",
        desk.said()
    );
}
