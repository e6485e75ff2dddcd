//! Objects of the API as tests tell them to kube-proxy.

#![expect(
    clippy::needless_pass_by_value,
    reason = "a test hands over the `json!` it writes"
)]

use chainbreak_agents::kube_proxy::{Config, Event};
use serde_json::{Value, json};

/// The example of all recorded rules: one node of two, and pods in 10.20.0.0/16.
pub(crate) fn config(version: &str) -> Config {
    Config {
        cluster_cidr: Some("10.20.0.0/16".parse().unwrap()),
        node_ip: Some("172.18.0.2".parse().unwrap()),
        ..Config::new(version.parse().unwrap(), "n1")
    }
}

/// A service of namespace `test` with that `spec`.
pub(crate) fn service(name: &str, spec: Value) -> Event {
    service_with(name, json!({}), spec, json!({}))
}

pub(crate) fn service_with(name: &str, annotations: Value, spec: Value, status: Value) -> Event {
    let metadata = json!({"namespace": "test", "name": name, "annotations": annotations});
    let service = json!({"metadata": metadata, "spec": spec, "status": status});
    Event::Service(serde_json::from_value(service).unwrap())
}

/// A service with one named TCP port.
pub(crate) fn plain(name: &str, ip: &str) -> Event {
    service(
        name,
        json!({"clusterIP": ip, "ports": [{"name": "http", "port": 80}]}),
    )
}

pub(crate) fn service_gone(name: &str) -> Event {
    Event::ServiceGone {
        namespace: "test".to_owned(),
        name: name.to_owned(),
    }
}

/// The endpoints of a service's port `http`, in one slice: address and node.
pub(crate) fn slice(service: &str, endpoints: &[(&str, &str)]) -> Event {
    let endpoints = endpoints
        .iter()
        .map(|(ip, node)| json!({"addresses": [ip], "nodeName": node}))
        .collect();
    slice_of(service, json!({"name": "http", "port": 80}), endpoints)
}

pub(crate) fn slice_of(service: &str, port: Value, endpoints: Vec<Value>) -> Event {
    let slice = json!({
        "metadata": {
            "namespace": "test",
            "name": format!("{service}-1"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [port],
    });
    Event::Slice(serde_json::from_value(slice).unwrap())
}

pub(crate) fn node(labels: Value) -> Event {
    let node = json!({"metadata": {"name": "n1", "labels": labels}});
    Event::Node(serde_json::from_value(node).unwrap())
}

/// The service of the recorded rules with both its endpoints.
pub(crate) fn nginx() -> [Event; 2] {
    [
        plain("nginx", "10.96.10.10"),
        slice("nginx", &[("10.20.10.127", "n1"), ("10.20.11.179", "n2")]),
    ]
}

/// Another service, to change while nginx stays as it is.
pub(crate) fn other(endpoints: &[(&str, &str)]) -> [Event; 2] {
    [plain("other", "10.96.10.11"), slice("other", endpoints)]
}
