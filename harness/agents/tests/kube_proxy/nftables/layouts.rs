//! Both layouts: what real ones left in a world of two services, and what an upgrade makes of the other one.

use std::collections::BTreeMap;

use chainbreak_agents::kube_proxy::{Config, Event, Family};
use serde_json::json;

use super::{blocks, nftables};
use crate::{
    desk::{Desk, SECOND},
    netns::{BACKENDS, Netns},
    objects::{nginx, plain, service, service_with, slice, slice_of},
};

type Table = BTreeMap<String, String>;

/// What real kube-proxies of these releases left in one and the same world, and the last parts of the addresses
/// that nginx and web had there.
const REAL: [(&str, &str, [&str; 4]); 5] = [
    (
        "1.32.3",
        include_str!("../golden/nftables/1.32.3.txt"),
        ["2", "3", "5", "6"],
    ),
    (
        "1.33.13",
        include_str!("../golden/nftables/1.33.13.txt"),
        ["2", "3", "5", "6"],
    ),
    (
        "1.34.2",
        include_str!("../golden/nftables/1.34.2.txt"),
        ["2", "4", "3", "5"],
    ),
    (
        "1.35.4",
        include_str!("../golden/nftables/1.35.4.txt"),
        ["3", "4", "5", "6"],
    ),
    (
        "1.36.1",
        include_str!("../golden/nftables/1.36.1.txt"),
        ["2", "3", "4", "5"],
    ),
];

#[test]
fn the_table_is_that_of_the_real_one_of_every_release() {
    for (version, real, ends) in REAL {
        let config = Config {
            node_ip: Some("10.0.1.1".parse().unwrap()),
            ..nftables(version)
        };
        let [a, b, c, d] = ends.map(|end| format!("10.20.1.{end}"));
        let events = [
            Event::ServiceCidrs(vec!["10.96.0.0/16".parse().unwrap()]),
            plain("nginx", "10.96.1.0"),
            slice("nginx", &[(&a, "n1"), (&b, "n1")]),
            plain("web", "10.96.1.1"),
            slice("web", &[(&c, "n1"), (&d, "n1")]),
        ];
        // Only those that follow them are told of networks of cluster IPs.
        let told = events
            .into_iter()
            .skip(usize::from(version.starts_with("1.32")));
        let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), told);
        assert_eq!(
            desk.kernel.table(),
            blocks(real),
            "{version}: {}",
            desk.said()
        );
    }
}

/// The patches on both sides of the move.
#[test]
fn filter_chains_come_after_dnat_from_1_33_6_and_1_34_0_on() {
    for (version, moved) in [
        ("1.32", false),
        ("1.33.5", false),
        ("1.33.6", true),
        ("1.33", true),
        ("1.34.0", true),
    ] {
        let table = fresh(version);
        let there = |chain: &str| table.contains_key(&format!("chain {chain} {{"));
        assert_eq!(there("filter-prerouting-pre-dnat"), moved, "{version}");
        assert_eq!(there("filter-output-post-dnat"), !moved, "{version}");
    }
}

fn fresh(version: &str) -> Table {
    let mut desk = Desk::synced(nftables(version), Netns::new(BACKENDS[0]), nginx());
    desk.kernel.table()
}

/// One release after the other in the same kernel, and the second one's table after its first sync and after
/// the first that begins more than a second later.
fn after(first: &str, second: &str) -> [Table; 2] {
    let mut old = Desk::synced(nftables(first), Netns::new(BACKENDS[0]), nginx());
    old.pass(5 * SECOND);
    let mut new = Desk::synced(nftables(second), old.kernel, nginx());
    let at_once = listed(&mut new);
    new.tell_later(plain("another", "10.96.10.77"));
    [at_once, listed(&mut new)]
}

/// Empty chains too.
fn listed(desk: &mut Desk<Netns>) -> Table {
    let listed = desk.kernel.sh("nft list table ip kube-proxy");
    let mut table = blocks(&listed);
    for line in listed.lines().filter_map(|line| line.strip_prefix('\t')) {
        if line.ends_with('{') && line.starts_with(|it: char| !it.is_whitespace()) {
            table.entry(line.to_owned()).or_default();
        }
    }
    table
}

fn names<'a>(table: &'a Table, part: &str) -> Vec<&'a str> {
    let names = table.keys().map(String::as_str);
    names.filter(|name| name.contains(part)).collect()
}

#[test]
fn an_upgrade_to_1_36_empties_endpoint_chains_at_once_and_keeps_the_chain_that_marked() {
    let [at_once, later] = after("1.35", "1.36");
    let service = &at_once["chain service-3DQLO4TQ-test/nginx/tcp/http {"];
    assert!(
        service.contains("dnat ip to numgen random mod 2 map"),
        "{service}"
    );
    let left = names(&at_once, "chain endpoint-");
    assert_eq!(left.len(), 2, "{left:?}");
    for chain in left {
        assert_eq!(at_once[chain], "", "{chain}");
    }
    assert_eq!(names(&later, "chain endpoint-"), [""; 0]);
    // Nobody knows its name any more, and nothing leads to it.
    assert!(later["chain mark-for-masquerade {"].contains("meta mark | 0x00004000"));
    let jumps = later
        .values()
        .filter(|it| it.contains("mark-for-masquerade"));
    assert_eq!(jumps.count(), 0);
}

#[test]
fn a_downgrade_from_1_36_makes_endpoint_chains_and_leaves_the_set_of_hairpins() {
    let [at_once, _] = after("1.36", "1.35");
    assert_eq!(names(&at_once, "chain endpoint-").len(), 2);
    let service = &at_once["chain service-3DQLO4TQ-test/nginx/tcp/http {"];
    assert!(service.contains("vmap"), "{service}");
    assert!(!service.contains("dnat"), "{service}");
    assert!(at_once["set hairpin-connections {"].contains("elements = { 10.20.10.127"));
    let lookups = at_once.values().filter(|it| it.contains("@hairpin"));
    assert_eq!(lookups.count(), 0);
}

#[test]
fn an_upgrade_over_the_move_leaves_the_old_base_chains_with_their_jumps() {
    let [_, later] = after("1.33.5", "1.33.6");
    for (chain, jump) in [
        ("filter-prerouting", "firewall-check"),
        ("filter-output-post-dnat", "cluster-ips-check"),
    ] {
        let rules = &later[&format!("chain {chain} {{")];
        assert!(rules.contains(&format!("jump {jump}")), "{chain}: {rules}");
    }
}

fn sticky(affinity: bool) -> Event {
    let affinity = if affinity { "ClientIP" } else { "None" };
    let spec = json!({
        "clusterIP": "10.96.10.10", "sessionAffinity": affinity, "ports": [{"name": "http", "port": 80}],
    });
    service("nginx", spec)
}

/// Only a service that remembers its clients has chains for endpoints, which nobody marks in.
#[test]
fn in_1_36_affinity_brings_endpoint_chains_and_their_end_takes_them_away() {
    let [_, both] = nginx();
    let mut desk = Desk::synced(
        nftables("1.36"),
        Netns::new(BACKENDS[0]),
        [sticky(true), both],
    );
    let table = desk.kernel.table();
    let chain = &table["chain endpoint-5YCAXA76-test/nginx/tcp/http__10.20.10.127/80 {"];
    assert_eq!(
        *chain,
        "update @affinity-5YCAXA76-test/nginx/tcp/http__10.20.10.127/80 { ip saddr }\n\
         meta l4proto tcp dnat to 10.20.10.127:80\n"
    );
    let service = &table["chain service-3DQLO4TQ-test/nginx/tcp/http {"];
    let lines: Vec<&str> = service.lines().collect();
    assert_eq!(lines.len(), 3, "{service}");
    assert!(lines[0].starts_with("ip saddr @affinity-"), "{service}");
    assert!(
        lines[2].starts_with("numgen random mod 2 vmap { 0 : goto endpoint-"),
        "{service}"
    );

    desk.tell_later(sticky(false));
    let table = listed(&mut desk);
    assert_eq!(names(&table, "set affinity-"), [""; 0], "sets go at once");
    let left = names(&table, "chain endpoint-");
    assert!(left.len() == 2 && left.iter().all(|chain| table[*chain].is_empty()));
    desk.tell_later(plain("another", "10.96.10.77"));
    assert_eq!(names(&listed(&mut desk), "chain endpoint-"), [""; 0]);
}

/// Whatever its service does: the set is of this node's endpoints, and follows them in partial syncs.
#[test]
fn hairpins_are_those_of_the_nodes_own_endpoints() {
    let mut desk = Desk::synced(nftables("1.36"), Netns::new(BACKENDS[0]), nginx());
    let elements =
        |desk: &mut Desk<Netns>| desk.kernel.table()["set hairpin-connections {"].clone();
    let of = |ip: &str| format!("{ip} . {ip} . tcp . 80");
    let first = elements(&mut desk);
    assert!(first.contains(&of("10.20.10.127")), "{first}");
    assert!(
        !first.contains("10.20.11.179"),
        "it is on the other node: {first}"
    );
    desk.tell_later(slice(
        "nginx",
        &[("10.20.10.128", "n1"), ("10.20.10.129", "n1")],
    ));
    let second = elements(&mut desk);
    assert!(second.contains(&of("10.20.10.128")) && second.contains(&of("10.20.10.129")));
    assert!(!second.contains("10.20.10.127"), "{second}");
    // What somebody else takes out of it is not missed.
    desk.kernel
        .sh("nft flush set ip kube-proxy hairpin-connections");
    desk.tell_later(plain("another", "10.96.10.77"));
    assert!(!elements(&mut desk).contains("elements"));
}

#[test]
fn what_comes_from_outside_to_a_cluster_ip_is_marked_once_for_all_services_in_1_36() {
    for (all, rule) in [
        (
            false,
            "ip daddr @cluster-ips ip saddr != 10.20.0.0/16 meta mark set meta mark | 0x00004000 \
             comment \"masquerade clusterIP traffic from outside cluster\"",
        ),
        (
            true,
            "ip daddr @cluster-ips meta mark set meta mark | 0x00004000 comment \"masquerade all \
             clusterIP traffic\"",
        ),
    ] {
        let config = Config {
            masquerade_all: all,
            ..nftables("1.36")
        };
        let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), nginx());
        let table = desk.kernel.table();
        let services = table["chain services {"].clone();
        assert_eq!(services.lines().next(), Some(rule), "{services}");
    }
    let config = Config {
        cluster_cidr: None,
        ..nftables("1.36")
    };
    let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), nginx());
    assert_eq!(desk.kernel.table()["chain services {"].lines().count(), 2);
}

#[test]
fn an_external_address_is_masqueraded_by_a_rule_of_its_own_in_1_36() {
    for (policy, rules) in [
        (
            "Cluster",
            "meta mark set meta mark | 0x00004000 comment \"masquerade\"\ngoto service-",
        ),
        (
            "Local",
            "ip saddr 10.20.0.0/16 goto service-4KVTBF2J-test/lb/tcp/http comment \"short-circuit pod traffic\"\n\
             fib saddr type local meta mark set meta mark | 0x00004000 comment \"masquerade local traffic\"\n\
             fib saddr type local goto service-",
        ),
    ] {
        let spec = json!({
            "type": "NodePort", "clusterIP": "10.96.10.20", "externalTrafficPolicy": policy,
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
        });
        let endpoints = slice("lb", &[("10.20.10.127", "n1"), ("10.20.11.179", "n2")]);
        let mut desk = Desk::synced(
            nftables("1.36"),
            Netns::new(BACKENDS[0]),
            [service("lb", spec), endpoints],
        );
        let table = desk.kernel.table();
        let name = names(&table, "chain external-")[0];
        assert!(table[name].starts_with(rules), "{policy}: {}", table[name]);
    }
}

#[test]
fn in_ipv6_a_map_has_no_brackets() {
    let config = Config {
        family: Family::Ipv6,
        cluster_cidr: Some("fd00:20::/32".parse().unwrap()),
        node_ip: Some("fd00:10::1".parse().unwrap()),
        ..nftables("1.36")
    };
    let port = json!({"name": "http", "port": 80});
    let endpoints = vec![json!({"addresses": ["fd00:20::1"], "nodeName": "n1"})];
    let Event::Slice(mut endpoints) = slice_of("six", port.clone(), endpoints) else {
        unreachable!()
    };
    endpoints.address_type = "IPv6".to_owned();
    let spec = json!({"clusterIP": "fd00:96::10", "ports": [port]});
    let events = [service("six", spec), Event::Slice(endpoints)];
    let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), events);
    let listed = desk.kernel.sh("nft list table ip6 kube-proxy");
    for part in [
        "meta l4proto tcp dnat ip6 to numgen random mod 1 map { 0 : fd00:20::1 . 80 }",
        "elements = { fd00:20::1 . fd00:20::1 . tcp . 80 }",
        "ip6 daddr @cluster-ips ip6 saddr != fd00:20::/32 meta mark set",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
}

/// A source range that holds everything is none from 1.34.0 on.
#[test]
fn a_range_of_all_addresses_makes_a_firewall_chain_until_1_33() {
    for (version, made) in [("1.33", true), ("1.34.0", false), ("1.36", false)] {
        let spec = json!({
            "type": "LoadBalancer", "clusterIP": "10.96.10.20", "ports": [{"name": "http", "port": 80}],
            "loadBalancerSourceRanges": ["203.0.113.0/24", "0.0.0.0/0"],
        });
        let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
        let events = [
            service_with("lb", json!({}), spec, status),
            slice("lb", &[("10.20.10.127", "n1")]),
        ];
        let mut desk = Desk::synced(nftables(version), Netns::new(BACKENDS[0]), events);
        let table = desk.kernel.table();
        assert_eq!(
            names(&table, "test/lb")
                .iter()
                .any(|it| it.contains("firewall-")),
            made,
            "{version}"
        );
    }
}

/// How nft is asked for what there is.
#[test]
fn the_table_is_listed_as_a_whole_from_the_patches_on_that_do_so() {
    for (version, whole) in [
        ("1.32", false),
        ("1.33.9", false),
        ("1.33.11", true),
        ("1.33", true),
        ("1.34.2", false),
        ("1.34.7", true),
        ("1.35.3", false),
        ("1.35.4", true),
        ("1.36.0", true),
    ] {
        let desk = Desk::synced(nftables(version), Netns::new(BACKENDS[0]), nginx());
        let lists = desk.ran.iter().map(|(_, command)| command.argv.join(" "));
        let lists: Vec<String> = lists
            .filter(|it| {
                it.contains(" list ") && !it.contains(" list set ") && !it.contains(" list map ")
            })
            .collect();
        if whole {
            assert_eq!(
                lists,
                ["nft --json --terse list table ip kube-proxy"],
                "{version}"
            );
        } else {
            let both = ["nft --json list chains ip", "nft --json list sets ip"];
            assert_eq!(lists, both, "{version}");
        }
    }
}
