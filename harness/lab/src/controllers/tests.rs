//! The controllers together against an API in memory: what they promise of a cluster that has come
//! to rest, and what they write on the way.

mod cluster;
mod live;
mod services;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_engine::log::EventLog;
use chainbreak_model::event::EventKind;
use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};
use kube::{ResourceExt, core::Status};
use serde_json::{Value, from_value, json};

use self::cluster::Cluster;
use super::{Outcome, Refusals, pods::node_name};

/// A pod of that name, not placed yet.
pub(super) fn pod(name: &str) -> Pod {
    from_value(json!({ "metadata": { "name": name, "namespace": "test", "uid": name } })).unwrap()
}

/// The pod on a node.
pub(super) fn placed(mut pod: Pod, node: &str) -> Pod {
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    pod
}

/// The pod, ready and with an address.
pub(super) fn ready(mut pod: Pod, address: &str) -> Pod {
    let conditions = json!([{ "type": "Ready", "status": "True" }]);
    let status = json!({ "phase": "Running", "podIP": address, "conditions": conditions });
    pod.status = Some(from_value(status).unwrap());
    pod
}

fn workload(replicas: i32, version: &str) -> Value {
    let container = json!({
        "name": "nginx", "image": format!("nginx:{version}"),
        "ports": [{ "name": "http", "containerPort": 8080 }],
    });
    json!({
        "replicas": replicas,
        "selector": { "matchLabels": { "app": "nginx" } },
        "template": {
            "metadata": { "labels": { "app": "nginx" } },
            "spec": { "containers": [container] },
        },
    })
}

fn service(extra: &Value) -> Value {
    let mut spec = json!({
        "selector": { "app": "nginx" }, "clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"],
        "ports": [{ "name": "http", "port": 80, "targetPort": "http", "appProtocol": "http" }],
    });
    for (field, value) in extra.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

/// Two nodes, a deployment of that many pods and its service, at rest.
fn shop(replicas: i32) -> Cluster {
    let mut cluster = Cluster::new(2);
    cluster.deployment("nginx", workload(replicas, "1.27"));
    cluster.service("nginx", service(&json!({})));
    cluster.rest();
    cluster
}

fn per_node<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in pods.into_iter().filter_map(node_name) {
        *counts.entry(node.to_owned()).or_default() += 1;
    }
    counts
}

fn endpoints(slices: &[EndpointSlice]) -> BTreeSet<String> {
    let all = slices.iter().flat_map(|slice| &slice.endpoints);
    all.flat_map(|endpoint| endpoint.addresses.clone())
        .collect()
}

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

#[test]
fn a_deployment_and_its_service_come_to_rest_with_every_pod_behind_a_slice() {
    let cluster = shop(5);
    let (pods, slices) = (cluster.pods(), cluster.slices());
    assert_eq!(pods.len(), 5);
    let set = cluster.replica_sets().remove(0).name_any();
    assert!(set.starts_with("nginx-"), "{set}");
    assert!(
        pods.iter()
            .all(|pod| pod.name_any().starts_with(&format!("{set}-")))
    );
    assert_eq!(pods[0].owner_references()[0].kind, "ReplicaSet");
    assert_eq!(per_node(&pods).into_values().collect::<Vec<_>>(), [3, 2]);
    assert_eq!(slices.len(), 1);
    assert_eq!(endpoints(&slices).len(), 5);
    let port = &slices[0].ports.as_ref().unwrap()[0];
    assert_eq!(
        (port.port, port.name.as_deref()),
        (Some(8080), Some("http"))
    );
    assert_eq!(port.app_protocol.as_deref(), Some("http"));
    let labels = slices[0].labels();
    assert_eq!(labels["kubernetes.io/service-name"], "nginx");
    assert_eq!(
        labels["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    assert_eq!(slices[0].owner_references()[0].kind, "Service");
    let endpoint = &slices[0].endpoints[0];
    let target = endpoint.target_ref.as_ref().unwrap();
    let pod = pods
        .iter()
        .find(|pod| pod.metadata.name == target.name)
        .unwrap();
    assert_eq!(target.uid, pod.metadata.uid);
    assert_eq!(endpoint.node_name.as_deref(), node_name(pod));
    let status = cluster.deployment_status("nginx");
    assert_eq!(status.ready_replicas, Some(5));
    assert_eq!(status.observed_generation, Some(1));
}

#[test]
fn a_cluster_at_rest_writes_nothing() {
    let mut cluster = shop(3);
    cluster.service(
        "other",
        service(&json!({ "selector": { "app": "nobody" } })),
    );
    cluster.daemon_set("agent", workload(0, "1"));
    cluster.rest();
    assert_eq!(cluster.rest(), Vec::<String>::new());
}

#[test]
fn the_same_seed_gives_the_same_names() {
    assert_eq!(names(&shop(4).pods()), names(&shop(4).pods()));
}

#[test]
fn a_write_that_the_api_refuses_for_good_is_trouble_once_and_in_its_words() {
    let (log, mut events) = EventLog::new();
    let mut refusals = Refusals::new(log);
    let mut weigh = |code| {
        let status = Status::failure("spec.x: Required value", "Invalid").with_code(code);
        refusals.weigh("Create pod test/a", &kube::Error::Api(Box::new(status)))
    };
    // Decided on what has changed meanwhile.
    assert_eq!([weigh(404), weigh(409)], [Outcome::Settled; 2]);
    assert_eq!(weigh(500), Outcome::Failed);
    assert!(events.try_recv().is_err());
    assert_eq!([weigh(422), weigh(422)], [Outcome::Settled; 2]);
    let said = events.try_recv().unwrap().what;
    let text = "the API refuses \"Create pod test/a\": spec.x: Required value".to_owned();
    assert_eq!(said, EventKind::Trouble { text });
    assert!(events.try_recv().is_err(), "once");
}
