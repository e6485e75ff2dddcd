//! Services: the slices of their endpoints, and the addresses of balanced ones.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    super::pods::is_terminating, cluster::Cluster, endpoints, placed, pod, ready, service, shop,
    workload,
};

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
