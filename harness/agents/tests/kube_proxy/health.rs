//! What is published for the health servers, and what they answer from it.

use std::time::Duration;

use chainbreak_agents::kube_proxy::{
    Answer, Check, ClockReading, Config, Event, Health, Namespaced,
};
use serde_json::{Value, json};

use crate::{
    desk::{Desk, HOUR, Invented, SECOND, failed},
    objects::{config, node, plain, service, slice_of},
};

const VERSIONS: [&str; 5] = ["1.20", "1.26", "1.27", "1.33", "1.34"];

fn lb(policy: &str) -> Event {
    let spec = json!({
        "type": "LoadBalancer",
        "clusterIP": "10.96.10.10",
        "externalTrafficPolicy": policy,
        "healthCheckNodePort": 32100,
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
    });
    service("lb", spec)
}

/// Endpoints of the port `http`: address, node, ready.
fn endpoints(of: &[(&str, &str, bool)]) -> Event {
    let endpoints = of.iter().map(|(ip, node, ready)| {
        let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
        json!({"addresses": [ip], "nodeName": node, "conditions": conditions})
    });
    slice_of(
        "lb",
        json!({"name": "http", "port": 80}),
        endpoints.collect(),
    )
}

fn synced(version: &str, events: impl IntoIterator<Item = Event>) -> Desk<Invented> {
    Desk::synced(config(version), Invented::default(), events)
}

fn last(desk: &Desk<Invented>) -> Health {
    desk.health
        .borrow()
        .last()
        .cloned()
        .expect("a sync succeeded")
}

fn checks(desk: &Desk<Invented>) -> Vec<(String, u16, usize)> {
    let told = last(desk).checks.into_iter();
    told.map(|(name, it)| (name.to_string(), it.port, it.local_endpoints))
        .collect()
}

fn broken(desk: &mut Desk<Invented>) {
    let broken = [(
        "iptables-restore",
        failed(4, "Another app is currently holding the lock\n"),
    )];
    desk.kernel.outputs = broken.into();
}

#[test]
fn a_check_counts_the_addresses_that_are_ready_on_this_node() {
    for version in VERSIONS {
        let here = [
            ("10.20.1.1", "n1", true),
            ("10.20.1.2", "n1", true),
            ("10.20.1.3", "n1", false),
            ("10.20.2.1", "n2", true),
        ];
        let mut desk = synced(version, [lb("Local"), endpoints(&here)]);
        let check = |count| vec![("test/lb".to_owned(), 32100, count)];
        assert_eq!(checks(&desk), check(2), "{version}");
        desk.tell_later(endpoints(&[("10.20.2.1", "n2", true)]));
        assert_eq!(checks(&desk), check(0), "{version}");
        desk.tell_later(lb("Cluster"));
        assert_eq!(checks(&desk), [], "{version}");
    }
}

#[test]
fn checks_listen_where_node_ports_are_open_from_1_23() {
    let at = |version: &str, networks: &[&str]| {
        let config = Config {
            node_port_addresses: networks.iter().map(|net| net.parse().unwrap()).collect(),
            node_addresses: ["127.0.0.1", "172.18.0.2", "10.9.0.2"]
                .map(|ip| ip.parse().unwrap())
                .to_vec(),
            ..config(version)
        };
        let desk = Desk::synced(config, Invented::default(), [lb("Local")]);
        let at = last(&desk).checks_at;
        at.map(|at| at.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let named = Some(vec!["10.9.0.2".to_owned()]);
    for (version, node_ports) in [("1.22", None), ("1.23", named)] {
        assert_eq!(at(version, &[]), None, "{version}");
        let named = at(version, &["10.0.0.0/8"]);
        assert_eq!(named, node_ports, "{version}");
    }
}

#[test]
fn an_address_that_serves_two_ports_counts_once() {
    let ports = json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]);
    let slice = json!({
        "metadata": {
            "namespace": "test",
            "name": "lb-1",
            "labels": {"kubernetes.io/service-name": "lb"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.20.1.1"], "nodeName": "n1"}],
        "ports": ports,
    });
    let slice = Event::Slice(serde_json::from_value(slice).unwrap());
    let desk = synced("1.32", [lb("Local"), slice]);
    assert_eq!(checks(&desk), [("test/lb".to_owned(), 32100, 1)]);
}

#[test]
fn nothing_is_told_of_services_before_a_sync_has_succeeded() {
    let mut desk = synced("1.32", [plain("nginx", "10.96.10.10")]);
    broken(&mut desk);
    desk.tell_later(lb("Local"));
    assert_eq!(checks(&desk), []);
    desk.kernel.outputs.clear();
    desk.pass(30 * SECOND);
    assert_eq!(checks(&desk), [("test/lb".to_owned(), 32100, 0)]);
}

/// Twice the sync period after the change, not after the failure; and until a sync succeeds.
#[test]
fn a_change_that_is_not_synced_makes_the_proxier_unhealthy_in_time() {
    for version in VERSIONS {
        let mut desk = synced(version, [plain("nginx", "10.96.10.10")]);
        broken(&mut desk);
        desk.tell_later(lb("Local"));
        let changed = desk.now;
        desk.pass(200 * SECOND);
        let late = last(&desk);
        assert_eq!(late.late_at, Some(changed + 60 * SECOND), "{version}");
        let before = changed + Duration::from_millis(59_999);
        assert!(late.proxier_healthy(before), "{version}");
        assert!(!late.proxier_healthy(changed + 60 * SECOND), "{version}");
        desk.kernel.outputs.clear();
        desk.pass(30 * SECOND);
        assert_eq!(last(&desk).late_at, None, "{version}");
    }
}

/// Issue 105742.
#[test]
fn until_1_24_constant_changes_keep_a_proxier_that_cannot_sync_healthy() {
    for (version, healthy) in [
        ("1.20", true),
        ("1.24", true),
        ("1.25", false),
        ("1.34", false),
    ] {
        let mut desk = synced(version, [plain("nginx", "10.96.10.10")]);
        broken(&mut desk);
        for i in 0..20 {
            desk.tell_later(plain(&format!("s{i}"), &format!("10.96.3.{i}")));
        }
        let now = desk.now;
        assert_eq!(last(&desk).proxier_healthy(now), healthy, "{version}");
    }
}

#[test]
fn a_silent_loss_of_rules_leaves_the_proxier_healthy() {
    for version in VERSIONS {
        let mut desk = synced(version, [lb("Local"), endpoints(&[])]);
        desk.kernel.lose("nat", "KUBE-SERVICES");
        desk.pass(HOUR / 2);
        let now = desk.now;
        assert!(last(&desk).proxier_healthy(now), "{version}");
    }
}

fn draining() -> Event {
    let taint = json!({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"});
    let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": [taint]}});
    Event::Node(serde_json::from_value(node).unwrap())
}

#[test]
fn a_node_that_is_about_to_be_deleted_is_not_eligible_from_1_30() {
    for (version, eligible) in [
        ("1.28", true),
        ("1.29", true),
        ("1.30", false),
        ("1.34", false),
    ] {
        let mut desk = synced(version, [node(json!({})), lb("Local")]);
        assert!(last(&desk).node_eligible, "{version}");
        desk.tell(draining());
        assert_eq!(last(&desk).node_eligible, eligible, "{version}");
        desk.tell(Event::NodeGone);
        assert_eq!(last(&desk).node_eligible, eligible, "{version}");
        desk.tell(node(json!({})));
        assert!(last(&desk).node_eligible, "{version}");
    }
}

#[test]
fn from_1_34_a_node_that_is_not_known_is_not_eligible() {
    for (version, eligible) in [("1.33", true), ("1.34", false)] {
        let desk = synced(version, [lb("Local")]);
        assert_eq!(last(&desk).node_eligible, eligible, "{version}");
    }
}

/// Ten seconds and a half after the start, half a second after the last sync.
fn reading() -> ClockReading {
    ClockReading {
        since_start: Duration::from_millis(10_500),
        wall: "2026-11-21T08:00:10.5Z".parse().unwrap(),
    }
}

fn health(late: bool) -> Health {
    let check = Check {
        port: 32100,
        local_endpoints: 2,
    };
    Health {
        updated: 10 * SECOND,
        late_at: late.then_some(10 * SECOND),
        node_eligible: true,
        checks: [(Namespaced::new("test", "lb"), check)].into(),
        checks_at: None,
    }
}

const NOW: &str = r#""2026-11-21 08:00:10.5 +0000 UTC m=+10.500000000""#;
const THEN: &str = r#""2026-11-21 08:00:10 +0000 UTC m=+10.000000000""#;

#[test]
fn healthz_answers_as_each_release_does() {
    let answer = |version: &str, path: &str, late: bool| {
        let config = config(version);
        let answer = health(late).of_proxy(&config, path, reading());
        (answer.status, answer.body)
    };
    let missing = || (404, "404 page not found\n".to_owned());
    for version in ["1.20", "1.27"] {
        let fine = format!(r#"{{"lastUpdated": {NOW},"currentTime": {NOW}}}"#);
        let late = format!(r#"{{"lastUpdated": {THEN},"currentTime": {NOW}}}"#);
        assert_eq!(answer(version, "/healthz", false), (200, fine));
        assert_eq!(answer(version, "/healthz", true), (503, late));
        assert_eq!(answer(version, "/livez", false), missing());
    }
    for version in ["1.28", "1.33"] {
        let fine =
            format!(r#"{{"lastUpdated": {NOW},"currentTime": {NOW}, "nodeEligible": true}}"#);
        let late = format!(r#"{{"lastUpdated": {THEN},"currentTime": {NOW}}}"#);
        assert_eq!(answer(version, "/healthz", false), (200, fine));
        assert_eq!(answer(version, "/livez", true), (503, late));
        assert_eq!(answer(version, "/", false), missing());
    }
    let fine = r#"{"lastUpdated":"2026-11-21T08:00:10.5Z","currentTime":"2026-11-21T08:00:10.5Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-11-21T08:00:10Z","healthy":true}}}"#;
    assert_eq!(answer("1.34", "/healthz", false), (200, fine.to_owned()));
    let late = r#"{"lastUpdated":"2026-11-21T08:00:10Z","currentTime":"2026-11-21T08:00:10.5Z","healthy":false,"status":{"IPv4":{"lastUpdated":"2026-11-21T08:00:10Z","healthy":false}}}"#;
    assert_eq!(answer("1.34", "/livez", true), (503, late.to_owned()));
}

/// The proxier stays what it is: `/livez` does not hear of the node.
#[test]
fn healthz_and_not_livez_fails_on_a_node_that_is_not_eligible() {
    for version in ["1.30", "1.34"] {
        let config = config(version);
        let leaving = Health {
            node_eligible: false,
            ..health(false)
        };
        let healthz = leaving.of_proxy(&config, "/healthz", reading());
        assert_eq!(healthz.status, 503, "{version}");
        let told: Value = serde_json::from_str(&healthz.body).unwrap();
        assert_eq!(told["nodeEligible"], json!(false), "{version}");
        assert_eq!(leaving.of_proxy(&config, "/livez", reading()).status, 200);
    }
}

#[test]
fn a_service_s_check_answers_as_each_release_does() {
    let answer = |version: &str, name: &str, late: bool| -> Answer {
        let config = config(version);
        health(late).of_service(&config, &Namespaced::new("test", name), reading())
    };
    let body = |name: &str, rest: &str| {
        format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": \"test\",\n\t\t\"name\": \"{name}\"\n\t}},\n\t\
             \"localEndpoints\": {rest}\n}}"
        )
    };
    let weight = |answer: &Answer| {
        let weight = "X-Load-Balancing-Endpoint-Weight";
        let mut headers = answer.headers.iter();
        headers.find(|it| it.0 == weight).map(|it| it.1.clone())
    };
    let early = answer("1.26", "lb", true);
    assert_eq!(
        (early.status, early.body.as_str()),
        (200, &*body("lb", "2"))
    );
    let fine = body("lb", "2,\n\t\"serviceProxyHealthy\": true");
    let late = body("lb", "2,\n\t\"serviceProxyHealthy\": false");
    for (version, header) in [("1.27", None), ("1.28", Some("2")), ("1.34", Some("2"))] {
        let healthy = answer(version, "lb", false);
        assert_eq!((healthy.status, &healthy.body), (200, &fine), "{version}");
        assert_eq!(weight(&healthy).as_deref(), header, "{version}");
        let unhealthy = answer(version, "lb", true);
        assert_eq!(
            (unhealthy.status, &unhealthy.body),
            (503, &late),
            "{version}"
        );
    }
    for version in VERSIONS {
        assert_eq!(answer(version, "gone", false).status, 503, "{version}");
    }
}
