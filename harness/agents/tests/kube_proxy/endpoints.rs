//! Which endpoints a service uses.

use chainbreak_agents::kube_proxy::Event;
use serde_json::{Value, json};

use crate::{
    desk::{Desk, Invented},
    objects::{config, node, plain, service, service_with, slice, slice_of},
};

fn http() -> Value {
    json!({"name": "http", "port": 80})
}

/// The restore input for a service with these endpoints.
fn input(version: &str, service: Event, endpoints: Vec<Value>) -> String {
    let events = [service, slice_of("nginx", http(), endpoints)];
    let desk = Desk::synced(config(version), Invented::default(), events);
    desk.last_restore().to_owned()
}

fn destinations(input: &str) -> Vec<&str> {
    let rules = input
        .lines()
        .filter_map(|it| it.split_once("--to-destination "));
    rules.map(|(_, to)| to).collect()
}

fn terminating(ip: &str, node: &str, serving: bool) -> Value {
    let conditions = json!({"ready": false, "serving": serving, "terminating": true});
    json!({"addresses": [ip], "nodeName": node, "conditions": conditions})
}

fn ready(ip: &str, node: &str) -> Value {
    json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": true}})
}

#[test]
fn terminating_endpoints_that_serve_are_the_last_resort_from_1_26() {
    let nginx = || plain("nginx", "10.96.10.10");
    let leaving = || terminating("10.20.1.1", "n1", true);
    for (version, expected) in [
        ("1.20", vec![]),
        ("1.25", vec![]),
        ("1.26", vec!["10.20.1.1:80"]),
    ] {
        let input = input(version, nginx(), vec![leaving()]);
        assert_eq!(destinations(&input), expected, "{version}");
    }
    let both = vec![leaving(), ready("10.20.1.2", "n2")];
    let input_with_ready = input("1.32", nginx(), both);
    assert_eq!(destinations(&input_with_ready), ["10.20.1.2:80"]);
    let dead = input("1.32", nginx(), vec![terminating("10.20.1.1", "n1", false)]);
    assert!(
        dead.contains("\"test/nginx:http has no endpoints\""),
        "{dead}"
    );
}

#[test]
fn the_local_policy_falls_back_to_terminating_endpoints_on_its_own() {
    let spec = json!({
        "type": "NodePort",
        "clusterIP": "10.96.10.10",
        "externalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    let endpoints = vec![
        terminating("10.20.1.1", "n1", true),
        ready("10.20.1.2", "n2"),
    ];
    let input = input("1.32", service("nginx", spec), endpoints);
    let rules = |chain: &str| -> Vec<&str> {
        let start = format!("-A {chain}IU46S4VZFN77LK6S ");
        let rules = input.lines().filter(|it| it.starts_with(&start));
        rules
            .filter_map(|it| it.split_once(" -> ")?.1.split('"').next())
            .collect()
    };
    assert_eq!(rules("KUBE-SVC-"), ["10.20.1.2:80"]);
    assert_eq!(rules("KUBE-SVL-"), ["10.20.1.1:80"]);
}

#[test]
fn a_local_policy_without_local_endpoints_drops_what_does_not_short_circuit() {
    let spec = json!({
        "type": "NodePort",
        "clusterIP": "10.96.10.10",
        "externalTrafficPolicy": "Local",
        "internalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    let elsewhere = vec![ready("10.20.1.2", "n2")];
    let input = input("1.32", service("nginx", spec), elsewhere);
    for rule in [
        "-A KUBE-SERVICES -m comment --comment \"test/nginx:http has no local endpoints\" -m tcp -p tcp \
         -d 10.96.10.10 --dport 80 -j DROP\n",
        "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"test/nginx:http has no local endpoints\" \
         -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j DROP\n",
        "-A KUBE-EXT-IU46S4VZFN77LK6S -m comment --comment \"pod traffic for test/nginx:http external \
         destinations\" -s 10.20.0.0/16 -j KUBE-SVC-IU46S4VZFN77LK6S\n",
    ] {
        assert!(input.contains(rule), "{rule}{input}");
    }
    assert!(!input.contains("KUBE-SVL-"), "{input}");
}

#[test]
fn a_source_range_with_the_node_in_it_lets_the_balancer_s_address_in() {
    let spec = json!({
        "type": "LoadBalancer",
        "clusterIP": "10.96.10.10",
        "loadBalancerSourceRanges": ["172.18.0.0/16", " 10.0.0.1/8"],
        "ports": [{"name": "http", "port": 80}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
    let service = service_with("nginx", json!({}), spec, status);
    let input = input("1.32", service, vec![ready("10.20.1.2", "n2")]);
    let start =
        "-A KUBE-FW-IU46S4VZFN77LK6S -m comment --comment \"test/nginx:http loadbalancer IP\" -s ";
    let sources = input
        .lines()
        .filter_map(|it| it.strip_prefix(start)?.split(' ').next());
    assert_eq!(
        sources.collect::<Vec<_>>(),
        ["172.18.0.0/16", "10.0.0.0/8", "192.0.2.10"]
    );
}

#[test]
fn a_source_range_of_length_zero_is_no_range_from_1_34() {
    for (version, firewall) in [("1.33", true), ("1.34.0", false), ("1.36", false)] {
        let spec = json!({
            "type": "LoadBalancer",
            "clusterIP": "10.96.10.10",
            "loadBalancerSourceRanges": ["203.0.113.0/24", "0.0.0.0/0"],
            "ports": [{"name": "http", "port": 80}],
        });
        let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
        let service = service_with("nginx", json!({}), spec, status);
        let input = input(version, service, vec![ready("10.20.1.2", "n2")]);
        assert_eq!(input.contains("KUBE-FW-"), firewall, "{version}: {input}");
        assert_eq!(input.contains("203.0.113.0/24"), firewall, "{version}");
    }
}

#[test]
fn hints_for_this_node_keep_traffic_on_it_from_1_34() {
    let hinted = |ip: &str, node: &str| {
        let hints = json!({"forNodes": [{"name": node}]});
        json!({"addresses": [ip], "nodeName": node, "hints": hints})
    };
    for (version, expected) in [("1.33", 2), ("1.34.0", 1), ("1.35", 1)] {
        let both = vec![hinted("10.20.1.1", "n1"), hinted("10.20.1.2", "n2")];
        let input = input(version, plain("nginx", "10.96.10.10"), both);
        assert_eq!(destinations(&input).len(), expected, "{version}");
    }
}

/// A new pod got the address of one that ends: two slices hold it.
#[test]
fn from_1_36_the_pod_that_runs_wins_over_one_with_its_address_that_ends() {
    let named = |name: &str, endpoint: Value| {
        let Event::Slice(mut slice) = slice_of("nginx", http(), vec![endpoint]) else {
            unreachable!()
        };
        slice.metadata.name = Some(name.to_owned());
        Event::Slice(slice)
    };
    for (version, answered) in [("1.35", false), ("1.36", true)] {
        let events = [
            plain("nginx", "10.96.10.10"),
            named("a", ready("10.20.1.1", "n2")),
            named("b", terminating("10.20.1.1", "n1", false)),
        ];
        let desk = Desk::synced(config(version), Invented::default(), events);
        let to = destinations(desk.last_restore());
        assert_eq!(!to.is_empty(), answered, "{version}: {to:?}");
    }
}

#[test]
fn an_address_with_ip_mode_proxy_has_no_rules_from_1_30() {
    for (version, there) in [("1.29", true), ("1.30", false)] {
        let spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.10.10", "ports": [http()]});
        let ingress = json!([{"ip": "192.0.2.10", "ipMode": "Proxy"}]);
        let status = json!({"loadBalancer": {"ingress": ingress}});
        let service = service_with("nginx", json!({}), spec, status);
        let input = input(version, service, vec![ready("10.20.1.2", "n2")]);
        assert_eq!(input.contains("192.0.2.10"), there, "{version}");
    }
}

#[test]
fn zone_hints_keep_traffic_in_the_zone_when_all_endpoints_have_them() {
    let hinted = |ip: &str, zone: &str| {
        let hints = json!({"forZones": [{"name": zone}]});
        json!({"addresses": [ip], "nodeName": "n2", "hints": hints})
    };
    let run = |version: &str, annotated: bool, endpoints: Vec<Value>| {
        let annotations = if annotated {
            json!({"service.kubernetes.io/topology-mode": "Auto"})
        } else {
            json!({})
        };
        let spec = json!({"clusterIP": "10.96.10.10", "ports": [http()]});
        let events = [
            node(json!({"topology.kubernetes.io/zone": "a"})),
            service_with("nginx", annotations, spec, json!({})),
            slice_of("nginx", http(), endpoints),
        ];
        let desk = Desk::synced(config(version), Invented::default(), events);
        destinations(desk.last_restore()).len()
    };
    let both = || vec![hinted("10.20.1.1", "a"), hinted("10.20.1.2", "b")];
    assert_eq!(run("1.32", false, both()), 1);
    assert_eq!(
        run("1.30", false, both()),
        2,
        "until 1.30 the annotation asks for it"
    );
    assert_eq!(run("1.30", true, both()), 1);
    assert_eq!(run("1.20", true, both()), 2);
    let one_without = vec![hinted("10.20.1.1", "a"), ready("10.20.1.2", "n2")];
    assert_eq!(run("1.32", false, one_without), 2);
    let none_here = vec![hinted("10.20.1.1", "b"), hinted("10.20.1.2", "b")];
    assert_eq!(run("1.32", false, none_here), 2);
}

/// Whoever writes it otherwise makes kube-proxy write the service anew, also where nothing comes of it.
#[test]
fn the_annotation_about_hints_is_part_of_a_service_from_1_21_to_1_32() {
    let mode = "service.kubernetes.io/topology-mode";
    let older = "service.kubernetes.io/topology-aware-hints";
    for (version, annotation, read) in [
        ("1.20", older, false),
        ("1.21", older, true),
        ("1.26", mode, false),
        ("1.27", mode, true),
        ("1.32", mode, true),
        ("1.33", mode, false),
        ("1.33", older, false),
    ] {
        let with = |annotations: Value| {
            let spec = json!({"clusterIP": "10.96.10.10", "ports": [http()]});
            service_with("nginx", annotations, spec, json!({}))
        };
        let mut desk = Desk::synced(config(version), Invented::default(), [with(json!({}))]);
        for value in ["auto", "Auto"] {
            desk.forget();
            desk.tell_later(with(json!({ annotation: value })));
            assert_eq!(
                !desk.restores().is_empty(),
                read,
                "{version} {annotation} {value}"
            );
        }
    }
}

/// By text: 10 comes before 9.
#[test]
fn endpoints_of_several_slices_are_merged_and_sorted_by_text() {
    let named = |name: &str, ips: &[&str]| {
        let endpoints = ips.iter().map(|ip| ready(ip, "n1")).collect();
        let Event::Slice(mut slice) = slice_of("nginx", http(), endpoints) else {
            unreachable!()
        };
        slice.metadata.name = Some(name.to_owned());
        Event::Slice(slice)
    };
    let events = [
        plain("nginx", "10.96.10.10"),
        named("a", &["10.20.1.9", "10.20.1.10"]),
        named("b", &["10.20.1.10", "10.20.1.1"]),
    ];
    let mut desk = Desk::synced(config("1.32"), Invented::default(), events);
    assert_eq!(
        destinations(desk.last_restore()),
        ["10.20.1.10:80", "10.20.1.1:80", "10.20.1.9:80"]
    );
    desk.tell_later(Event::SliceGone {
        namespace: "test".to_owned(),
        name: "b".to_owned(),
    });
    assert_eq!(
        destinations(desk.last_restore()),
        ["10.20.1.10:80", "10.20.1.9:80"]
    );
}

#[test]
fn session_affinity_remembers_for_as_long_as_it_is_told() {
    let spec = json!({
        "clusterIP": "10.96.10.10",
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "ports": [http()],
    });
    let events = [
        service("nginx", spec),
        slice("nginx", &[("10.20.10.127", "n1")]),
    ];
    let desk = Desk::synced(config("1.32"), Invented::default(), events);
    let to = "KUBE-SEP-XAAQ4E3V5J6GEKUJ";
    assert!(desk.last_restore().contains(&format!(
        "-m recent --name {to} --rcheck --seconds 60 --reap -j {to}\n"
    )));
    assert!(desk.last_restore().contains(&format!(
        "-m recent --name {to} --set -m tcp -p tcp -j DNAT"
    )));
}
