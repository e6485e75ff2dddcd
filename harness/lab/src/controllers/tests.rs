//! The controllers together against an API in memory: what they promise of a cluster that has come
//! to rest, and what they write on the way.

mod cluster;
mod live;

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_engine::log::EventLog;
use chainbreak_model::event::What;
use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};
use kube::{ResourceExt, core::Status};
use serde_json::{Value, from_value, json};

use self::cluster::Cluster;
use super::{
    Outcome, Refusals,
    pods::{is_terminating, node_name},
};

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
fn scaling_down_takes_the_youngest_and_up_gives_new_names() {
    let mut cluster = shop(2);
    let old = names(&cluster.pods());
    let mut ever = old.clone();
    for _ in 0..10 {
        cluster.deployment("nginx", workload(3, "1.27"));
        cluster.rest();
        let three = names(&cluster.pods());
        assert_eq!(three.len(), 3);
        assert!(three.is_superset(&old));
        let new = three.difference(&ever).count();
        assert_eq!(new, 1, "a name came back");
        ever.extend(three);
        cluster.deployment("nginx", workload(2, "1.27"));
        cluster.rest();
        assert_eq!(names(&cluster.pods()), old);
        assert_eq!(endpoints(&cluster.slices()).len(), 2);
    }
}

#[test]
fn one_pods_end_is_two_writes_of_one_slice() {
    let mut cluster = shop(3);
    cluster.deployment("nginx", workload(2, "1.27"));
    let written = cluster.rest();
    let slices = written
        .iter()
        .filter(|text| text.contains("endpoint slice"));
    // Once it is terminating, once it is gone.
    assert_eq!(slices.count(), 2, "{written:#?}");
}

#[test]
fn a_leaving_pod_is_terminating_and_serving_until_it_is_gone() {
    let mut cluster = shop(2);
    cluster.deployment("nginx", workload(1, "1.27"));
    cluster.settle();
    let leaving = cluster.pods().into_iter().find(is_terminating).unwrap();
    let slices = cluster.slices();
    let of = |pod: &Pod| {
        let name = pod.metadata.name.clone();
        let mut all = slices[0].endpoints.iter();
        all.find(|endpoint| endpoint.target_ref.as_ref().unwrap().name == name)
            .unwrap()
    };
    let conditions = of(&leaving).conditions.clone().unwrap();
    assert_eq!(
        (conditions.ready, conditions.serving, conditions.terminating),
        (Some(false), Some(true), Some(true))
    );
}

#[test]
fn a_new_template_replaces_every_pod_and_never_serves_with_fewer_than_allowed() {
    let mut cluster = shop(4);
    let old = names(&cluster.pods());
    cluster.deployment("nginx", workload(4, "1.28"));
    // A quarter of four is one more and one fewer.
    cluster.rest_while(|cluster| {
        let active = cluster
            .pods()
            .iter()
            .filter(|pod| !is_terminating(pod))
            .count();
        assert!(active <= 5, "{active} pods");
        assert!(cluster.serving() >= 3, "{} serve", cluster.serving());
    });
    let new = names(&cluster.pods());
    assert_eq!(new.len(), 4);
    assert!(new.is_disjoint(&old));
    assert_eq!(cluster.replica_sets().len(), 2);
    let status = cluster.deployment_status("nginx");
    assert_eq!(
        (status.updated_replicas, status.available_replicas),
        (Some(4), Some(4))
    );
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(cluster.revision("nginx"), "2");
    // And back: the old replica set is used again.
    cluster.deployment("nginx", workload(4, "1.27"));
    cluster.rest();
    assert_eq!(cluster.replica_sets().len(), 2);
    assert_eq!(names(&cluster.pods()).len(), 4);
    assert_eq!(cluster.revision("nginx"), "3");
}

#[test]
fn recreate_starts_nothing_before_everything_old_has_gone() {
    let recreate = |version: &str| {
        let mut spec = workload(3, version);
        spec["strategy"] = json!({ "type": "Recreate" });
        spec
    };
    let mut cluster = Cluster::new(2);
    cluster.deployment("nginx", recreate("1"));
    cluster.rest();
    let old = names(&cluster.pods());
    cluster.deployment("nginx", recreate("2"));
    cluster.rest_while(|cluster| {
        let now = names(&cluster.pods());
        assert!(now.is_subset(&old) || now.is_disjoint(&old), "{now:?}");
    });
    assert_eq!(cluster.pods().len(), 3);
}

#[test]
fn a_daemon_set_has_one_pod_on_every_node_and_follows_new_nodes() {
    let mut cluster = Cluster::new(3);
    cluster.taint("n2");
    cluster.daemon_set("agent", workload(0, "1"));
    cluster.rest();
    let expect = |cluster: &Cluster, nodes: usize| {
        let per_node = per_node(&cluster.pods());
        assert_eq!(per_node.len(), nodes);
        assert!(per_node.values().all(|&pods| pods == 1));
        let status = cluster.daemon_set_status("agent");
        assert_eq!(usize::try_from(status.number_ready).unwrap(), nodes);
        assert_eq!(status.desired_number_scheduled, status.number_ready);
    };
    expect(&cluster, 3);
    cluster.node("n4");
    cluster.rest();
    expect(&cluster, 4);
    let old = names(&cluster.pods());
    cluster.daemon_set("agent", workload(0, "2"));
    cluster.rest_while(|cluster| assert!(cluster.serving() >= 3));
    expect(&cluster, 4);
    assert!(names(&cluster.pods()).is_disjoint(&old));
}

#[test]
fn pods_go_to_the_least_loaded_node_and_keep_clear_of_closed_ones() {
    let mut cluster = Cluster::new(3);
    cluster.taint("n3");
    cluster.pod(placed(pod("client"), "n1"));
    cluster.deployment("nginx", workload(1, "1"));
    cluster.rest();
    assert_eq!(
        per_node(&cluster.pods()),
        BTreeMap::from([("n1".into(), 1), ("n2".into(), 1)])
    );
    let mut picky = pod("picky");
    picky.spec = from_value(json!({
        "containers": [], "nodeSelector": { "kubernetes.io/hostname": "n9" }
    }))
    .unwrap();
    cluster.pod(picky);
    let written = cluster.rest();
    assert_eq!(written, ["Status pod test/picky"]);
    cluster.node("n9");
    cluster.rest();
    assert!(
        cluster
            .pods()
            .iter()
            .any(|pod| node_name(pod) == Some("n9"))
    );
}

#[test]
fn a_slice_holds_a_hundred_and_a_service_without_endpoints_one_empty_slice() {
    let mut cluster = shop(250);
    let mut sizes: Vec<usize> = cluster
        .slices()
        .iter()
        .map(|it| it.endpoints.len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [50, 100, 100]);
    assert_eq!(endpoints(&cluster.slices()).len(), 250);
    cluster.deployment("nginx", workload(0, "1.27"));
    cluster.rest();
    let slices = cluster.slices();
    assert_eq!(slices.len(), 1);
    assert!(slices[0].endpoints.is_empty());
    cluster.deployment("nginx", workload(1, "1.27"));
    cluster.rest();
    assert_eq!(
        cluster.slices()[0].name_any(),
        slices[0].name_any(),
        "it is used again"
    );
    assert_eq!(endpoints(&cluster.slices()).len(), 1);
}

#[test]
fn pods_that_name_their_ports_differently_are_in_slices_of_their_own() {
    let mut cluster = shop(2);
    let mut other = workload(2, "1.27");
    other["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9090);
    other["template"]["metadata"]["labels"]["track"] = json!("canary");
    other["selector"]["matchLabels"]["track"] = json!("canary");
    cluster.deployment("canary", other);
    cluster.rest();
    let slices = cluster.slices();
    let port = |slice: &EndpointSlice| slice.ports.as_ref().unwrap()[0].port.unwrap();
    let by_port: BTreeMap<i32, usize> = slices
        .iter()
        .map(|slice| (port(slice), slice.endpoints.len()))
        .collect();
    assert_eq!(by_port, BTreeMap::from([(8080, 2), (9090, 2)]));
}

#[test]
fn unready_addresses_are_published_only_on_demand() {
    for (publish, expected) in [(false, Some(false)), (true, Some(true))] {
        let mut cluster = Cluster::new(1);
        let mut unready = ready(placed(pod("a"), "n1"), "10.20.1.9");
        unready.labels_mut().insert("app".into(), "nginx".into());
        unready.status.as_mut().unwrap().conditions = None;
        cluster.pod_as_it_is(unready);
        cluster.service(
            "nginx",
            service(&json!({
                "publishNotReadyAddresses": publish, "ports": [{ "port": 80 }], "clusterIP": "None",
            })),
        );
        cluster.settle();
        let slice = cluster.slices().remove(0);
        let conditions = slice.endpoints[0].conditions.clone().unwrap();
        assert_eq!(
            (conditions.ready, conditions.serving),
            (expected, Some(false))
        );
        assert!(
            slice
                .labels()
                .contains_key("service.kubernetes.io/headless")
        );
    }
}

#[test]
fn a_service_without_a_selector_and_slices_of_others_are_left_alone() {
    let mut cluster = Cluster::new(1);
    cluster.service("manual", json!({ "ports": [{ "port": 80 }] }));
    cluster.service("away", service(&json!({ "type": "ExternalName" })));
    assert_eq!(cluster.rest(), Vec::<String>::new());
    cluster.service("nginx", service(&json!({})));
    cluster.foreign_slice("nginx");
    cluster.rest();
    assert_eq!(cluster.slices().len(), 2);
    cluster.deployment("nginx", workload(1, "1"));
    cluster.rest();
    assert_eq!(
        cluster
            .slices()
            .iter()
            .map(|slice| slice.endpoints.len())
            .sum::<usize>(),
        1
    );
}

#[test]
fn a_deployments_own_replica_sets_are_kept_only_as_far_back_as_asked() {
    let mut cluster = Cluster::new(1);
    for version in 0..6 {
        let mut spec = workload(1, &version.to_string());
        spec["revisionHistoryLimit"] = json!(2);
        cluster.deployment("nginx", spec);
        cluster.rest();
    }
    assert_eq!(cluster.replica_sets().len(), 3);
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
    assert_eq!(said, What::Trouble { text });
    assert!(events.try_recv().is_err(), "once");
}

#[test]
fn a_balanced_service_has_one_address_and_another_has_none() {
    let mut cluster = Cluster::new(1);
    cluster.service("web", service(&json!({ "type": "LoadBalancer" })));
    cluster.service(
        "own",
        service(&json!({ "type": "LoadBalancer", "loadBalancerIP": "192.0.2.77" })),
    );
    cluster.service("inner", service(&json!({})));
    let addresses = |cluster: &Cluster| {
        let services = cluster.seen.services.iter();
        let all: BTreeMap<String, Value> = services
            .map(|service| {
                (
                    service.name_any(),
                    json!(service)["status"]["loadBalancer"].clone(),
                )
            })
            .collect();
        all
    };
    cluster.rest();
    let first = addresses(&cluster);
    let given = first["web"]["ingress"][0]["ip"].as_str().unwrap();
    assert!(given.starts_with("192.0.2."), "{given}");
    assert_eq!(first["own"], json!({ "ingress": [{ "ip": "192.0.2.77" }] }));
    assert_eq!(first["inner"], Value::Null);
    // It stays while the service is one, and goes with the type.
    cluster.service(
        "web",
        service(&json!({ "type": "LoadBalancer", "sessionAffinity": "ClientIP" })),
    );
    cluster.rest();
    assert_eq!(addresses(&cluster), first);
    cluster.service("web", service(&json!({})));
    cluster.rest();
    assert_eq!(addresses(&cluster)["web"], json!({}));
}
