//! What stands in the kernel after a sync, as `nft` prints it.

use chainbreak_agents::kube_proxy::{Config, Event, Family};
use serde_json::json;

use super::{blocks, nftables};
use crate::{
    desk::Desk,
    netns::{BACKENDS, Netns},
    objects::{nginx, plain, service, service_with, slice, slice_of},
};

fn cidrs() -> Event {
    let cidrs = ["10.96.0.0/16", "fd00:96::/112"];
    Event::ServiceCidrs(cidrs.map(|it| it.parse().unwrap()).to_vec())
}

#[test]
fn one_service_gives_the_recorded_table() {
    // Node ports everywhere: the node's own address is not known.
    let config = Config {
        node_ip: None,
        ..nftables("1.32")
    };
    let events = [cidrs()].into_iter().chain(nginx());
    let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), events);
    let golden = include_str!("../golden/nftables-1.32.txt");
    assert_eq!(desk.kernel.table(), blocks(golden), "{}", desk.said());
}

#[test]
fn node_ports_are_open_at_the_nodes_own_address_alone() {
    let mut desk = Desk::synced(nftables("1.32"), Netns::new(BACKENDS[0]), nginx());
    let table = desk.kernel.table();
    assert!(table["set nodeport-ips {"].contains("elements = { 172.18.0.2 }"));
    assert_eq!(
        table["chain services {"],
        "ip daddr . meta l4proto . th dport vmap @service-ips\n\
         ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports\n"
    );
    assert_eq!(
        table["chain nodeport-endpoints-check {"],
        "ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports\n"
    );
    assert_eq!(
        table["chain cluster-ips-check {"],
        "ip daddr @cluster-ips reject comment \"Reject traffic to invalid ports of ClusterIPs\"\n",
        "nobody told 1.32 of the networks"
    );
}

/// The table that a cluster on EKS showed: another place for the filter chains.
#[test]
fn from_1_34_filter_chains_come_after_dnat() {
    let mut desk = Desk::synced(nftables("1.34"), Netns::new(BACKENDS[0]), nginx());
    let table = desk.kernel.table();
    let chain = |name: &str| table[&format!("chain {name} {{")].as_str();
    assert_eq!(
        chain("filter-prerouting-pre-dnat"),
        "type filter hook prerouting priority dstnat - 10; policy accept;\n\
         ct state new jump firewall-check\n"
    );
    assert_eq!(
        chain("filter-output"),
        "type filter hook output priority filter; policy accept;\n\
         ct state new jump service-endpoints-check\nct state new jump cluster-ips-check\n"
    );
    assert_eq!(
        chain("filter-output-pre-dnat"),
        "type filter hook output priority -110; policy accept;\nct state new jump firewall-check\n"
    );
    assert!(!table.contains_key("chain filter-output-post-dnat {"));
    let service = chain("service-3DQLO4TQ-test/nginx/tcp/http");
    assert!(
        service.starts_with("ip daddr 10.96.10.10 ip saddr != 10.20.0.0/16 jump mark-for-masq"),
        "{service}"
    );
}

fn balancer(policy: &str) -> Event {
    let spec = json!({
        "type": "LoadBalancer",
        "clusterIP": "10.96.10.20",
        "externalTrafficPolicy": policy,
        "externalIPs": ["192.0.2.77"],
        "loadBalancerSourceRanges": [" 203.0.113.0/24"],
        "sessionAffinity": "ClientIP",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
    service_with("lb", json!({}), spec, status)
}

#[test]
fn a_sticky_load_balancer_with_ranges_and_a_local_policy() {
    let endpoints = slice("lb", &[("10.20.10.127", "n1"), ("10.20.11.179", "n2")]);
    let events = [balancer("Local"), endpoints];
    let mut desk = Desk::synced(nftables("1.32"), Netns::new(BACKENDS[0]), events);
    let table = desk.kernel.table();
    let own = table.iter().filter(|(name, _)| name.contains("test/lb"));
    let own: Vec<String> = own.map(|(name, body)| format!("{name}\n{body}")).collect();
    insta::assert_snapshot!(own.concat());
    let maps = ["service-ips", "service-nodeports", "firewall-ips"];
    let elements = maps.map(|map| &*table[&format!("map {map} {{")]);
    insta::assert_snapshot!(elements.concat());

    // Nobody here any more: what comes from outside is dropped, pods and the node go on.
    desk.tell_later(slice("lb", &[("10.20.11.179", "n2")]));
    let table = desk.kernel.table();
    let refused = ["no-endpoint-services", "no-endpoint-nodeports"];
    let refused = refused.map(|map| &*table[&format!("map {map} {{")]);
    insta::assert_snapshot!(refused.concat());
}

#[test]
fn a_service_without_endpoints_is_rejected_everywhere() {
    let spec = json!({
        "type": "NodePort", "clusterIP": "10.96.10.99", "ports": [{"port": 80, "nodePort": 30099}],
    });
    let mut desk = Desk::synced(
        nftables("1.32"),
        Netns::new(BACKENDS[0]),
        [service("empty", spec)],
    );
    let table = desk.kernel.table();
    let elements = |map: &str| table[&format!("map {map} {{")].clone();
    assert!(elements("no-endpoint-services").contains(
        "elements = { 10.96.10.99 . tcp . 80 comment \"test/empty\" : goto reject-chain }"
    ));
    assert!(
        elements("no-endpoint-nodeports")
            .contains("elements = { tcp . 30099 comment \"test/empty\" : goto reject-chain }")
    );
    assert!(!elements("service-ips").contains("elements"));
}

#[test]
fn an_internal_policy_that_is_local_uses_the_nodes_own_endpoints() {
    let spec = json!({
        "clusterIP": "10.96.10.30", "internalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80}],
    });
    let local = slice("near", &[("10.20.10.1", "n1"), ("10.20.11.1", "n2")]);
    let mut desk = Desk::synced(
        nftables("1.32"),
        Netns::new(BACKENDS[0]),
        [service("near", spec), local],
    );
    let table = desk.kernel.table();
    assert!(table["map service-ips {"].contains(": goto local-"));
    let (_, chain) = table
        .iter()
        .find(|(name, _)| name.contains("local-"))
        .unwrap();
    assert!(
        chain.contains("numgen random mod 1 vmap { 0 : goto endpoint-")
            && chain.contains("__10.20.10.1/80 }"),
        "{chain}"
    );
    desk.tell_later(slice("near", &[("10.20.11.1", "n2")]));
    let table = desk.kernel.table();
    assert!(
        table["map no-endpoint-services {"]
            .contains("10.96.10.30 . tcp . 80 comment \"test/near:http\" : drop")
    );
    assert!(!table["map service-ips {"].contains("elements"));
}

#[test]
fn chains_that_nothing_uses_are_emptied_now_and_deleted_later() {
    let [service, both] = nginx();
    let mut desk = Desk::synced(nftables("1.32"), Netns::new(BACKENDS[0]), [service, both]);
    let gone = "chain endpoint-6RAEUZJO-test/nginx/tcp/http__10.20.11.179/80 {";
    desk.tell_later(slice("nginx", &[("10.20.10.127", "n1")]));
    assert!(
        !desk.kernel.table().contains_key(gone),
        "nothing is left in it"
    );
    let listed = desk.kernel.sh("nft list table ip kube-proxy");
    assert!(listed.contains(gone), "{listed}");
    desk.tell_later(plain("other", "10.96.10.11"));
    let listed = desk.kernel.sh("nft list table ip kube-proxy");
    assert!(!listed.contains(gone), "{listed}");
    assert!(
        desk.said()
            .contains("\"Deleting stale nftables chains\" ipFamily=\"IPv4\" numChains=1")
    );
}

/// The family is a parameter: its table, loopback and brackets.
#[test]
fn an_ipv6_service_is_in_the_table_of_its_own_family() {
    let config = Config {
        family: Family::Ipv6,
        cluster_cidr: Some("fd00:20::/32".parse().unwrap()),
        node_ip: None,
        ..nftables("1.34")
    };
    let port = json!({"name": "http", "port": 80});
    let endpoints = vec![json!({"addresses": ["fd00:20::1"]})];
    let Event::Slice(mut endpoints) = slice_of("six", port.clone(), endpoints) else {
        unreachable!()
    };
    endpoints.address_type = "IPv6".to_owned();
    let spec = json!({"clusterIP": "fd00:96::10", "ports": [port]});
    let events = [
        cidrs(),
        service("six", spec),
        Event::Slice(endpoints),
        plain("four", "10.96.0.1"),
    ];
    let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), events);
    let listed = desk.kernel.sh("nft list table ip6 kube-proxy");
    for part in [
        "dnat to [fd00:20::1]:80",
        "ip6 saddr != fd00:20::/32 jump mark-for-masquerade",
        "ip6 daddr fd00:96::/112 drop",
        "fib daddr type local ip6 daddr != ::1 meta l4proto . th dport vmap @service-nodeports",
        "__fd00.20..1/80 {",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(!listed.contains("test/four"), "{listed}");
}
