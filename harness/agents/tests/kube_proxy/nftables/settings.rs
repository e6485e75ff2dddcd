//! Settings that clusters have beside their mode and periods.

use std::collections::BTreeMap;

use chainbreak_agents::kube_proxy::{Config, DetectLocal};

use super::nftables;
use crate::{
    desk::Desk,
    netns::{BACKENDS, Netns},
    objects::nginx,
};

const SERVICE: &str = "chain service-3DQLO4TQ-test/nginx/tcp/http {";

fn table(config: Config) -> (BTreeMap<String, String>, String) {
    let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), nginx());
    (desk.kernel.table(), desk.said())
}

#[test]
fn the_mark_is_the_bit_that_was_asked_for() {
    for version in ["1.32", "1.36"] {
        let bit = Config {
            masquerade_bit: 15,
            ..nftables(version)
        };
        let (table, said) = table(bit);
        let all: String = table.into_values().collect();
        assert!(all.contains("0x00008000"), "{version}: {all} {said}");
        assert!(!all.contains("0x00004000"), "{version}: {all}");
    }
}

#[test]
fn pods_are_told_by_the_interface_that_they_come_in_by() {
    for (detect_local, matched) in [
        (DetectLocal::Bridge("cbr0".to_owned()), "\"cbr0\""),
        (DetectLocal::Prefix("eni".to_owned()), "\"eni*\""),
    ] {
        for (version, chain, rest) in [
            ("1.34.2", SERVICE, "jump mark-for-masquerade"),
            ("1.36", "chain services {", "meta mark set"),
        ] {
            let by_interface = Config {
                detect_local: detect_local.clone(),
                ..nftables(version)
            };
            let (table, said) = table(by_interface);
            let rule = format!(" iifname != {matched} {rest}");
            assert!(table[chain].contains(&rule), "{version}: {table:#?} {said}");
        }
    }
}

/// Nothing of that name is there: nft refuses all of what kube-proxy has to write.
#[test]
fn until_1_33_5_and_1_34_1_an_interface_that_is_not_there_keeps_every_rule_out() {
    for version in ["1.32.3", "1.33.5", "1.34.1"] {
        let by_bridge = Config {
            detect_local: DetectLocal::Bridge("cbr0".to_owned()),
            ..nftables(version)
        };
        let (table, said) = table(by_bridge);
        assert!(table.is_empty(), "{version}: {table:#?}");
        assert!(
            said.contains("Interface does not exist"),
            "{version}: {said}"
        );
    }
}

#[test]
fn without_a_cluster_cidr_nobody_is_known_to_be_a_pod() {
    for version in ["1.32", "1.36"] {
        let none = Config {
            cluster_cidr: None,
            ..nftables(version)
        };
        let (table, _) = table(none);
        let all: String = table.into_values().collect();
        assert!(!all.contains("10.20.0.0/16"), "{version}: {all}");
        assert!(!all.contains("pod traffic"), "{version}: {all}");
    }
}

#[test]
fn node_ports_are_taken_at_the_addresses_that_are_named() {
    let at = |networks: &[&str]| {
        let some = Config {
            node_port_addresses: networks.iter().map(|net| net.parse().unwrap()).collect(),
            node_addresses: ["127.0.0.1", "172.18.0.2", "10.9.0.2"]
                .map(|ip| ip.parse().unwrap())
                .to_vec(),
            ..nftables("1.34.2")
        };
        table(some)
    };
    let complaint = "not supported\" ipFamily=\"IPv4\" address=\"127.0.0.1\"";
    let (one, said) = at(&["10.0.0.0/8", "127.0.0.0/8"]);
    let set = &one["set nodeport-ips {"];
    assert!(set.contains("elements = { 10.9.0.2 }"), "{set}");
    assert!(said.contains(complaint), "{said}");
    for everywhere in [&["0.0.0.0/0"], &["fd00::/8"]] {
        let (all, said) = at(everywhere);
        assert!(!all.contains_key("set nodeport-ips {"), "{all:#?}");
        assert!(
            all["chain services {"].contains(
                "fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap \
                 @service-nodeports"
            ),
            "{all:#?}"
        );
        assert!(!said.contains(complaint), "{said}");
    }
}

/// Unless node ports have addresses of their own, checks listen at the node's alone in this mode.
#[test]
fn health_checks_listen_where_node_ports_are_open() {
    let at = |networks: &[&str]| {
        let config = Config {
            node_port_addresses: networks.iter().map(|net| net.parse().unwrap()).collect(),
            node_addresses: vec!["10.9.0.2".parse().unwrap()],
            ..nftables("1.31.4")
        };
        let desk = Desk::synced(config, Netns::new(BACKENDS[0]), nginx());
        let health = desk.health.borrow().last().cloned().unwrap();
        let at = health.checks_at?;
        Some(at.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(at(&[]), Some(vec!["172.18.0.2".to_owned()]));
    assert_eq!(at(&["10.0.0.0/8"]), Some(vec!["10.9.0.2".to_owned()]));
    assert_eq!(at(&["0.0.0.0/0"]), None);
}
