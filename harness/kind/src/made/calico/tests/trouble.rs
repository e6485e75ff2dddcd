//! Pods that never get ready, and what is told of them.

use chainbreak_model::case::PodOwner;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::cluster::{Fate, installed};
use crate::{
    made::{calico::Way, spec::tests::with_calico},
    served,
};

/// What a kubelet tells of a container that ends again and again, on a node that has no memory left.
async fn crash(client: &Client) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "kube-system", "name": "calico-node-x7k2p", "labels": { "k8s-app": "calico-node" } },
        "spec": { "nodeName": "n2", "containers": [{ "name": "calico-node", "image": "calico/node:v3.28.1" }] },
    });
    let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
    let pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod)
        .await
        .expect("it can be made");
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container" } });
    let status = json!({ "status": { "phase": "Running", "containerStatuses": [{
        "name": "calico-node", "image": "calico/node:v3.28.1", "imageID": "", "ready": false, "restartCount": 3, "state": waiting,
        "lastState": { "terminated": { "reason": "Error", "exitCode": 3 } },
    }] } });
    let (params, status) = (PatchParams::default(), Patch::Merge(status));
    let told = pods
        .patch_status("calico-node-x7k2p", &params, &status)
        .await;
    told.expect("it takes a status");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "namespace": "kube-system", "name": "e1" },
        "involvedObject": { "kind": "Pod", "namespace": "kube-system", "name": "calico-node-x7k2p" },
        "reason": "Unhealthy", "message": "Readiness probe failed: calico/node is not ready: felix is not ready",
    });
    let events = Api::<Event>::namespaced(client.clone(), "kube-system");
    let event = serde_json::from_value(event).expect("an event");
    events
        .create(&PostParams::default(), &event)
        .await
        .expect("it can be made");
    node(client, json!([
        { "type": "DiskPressure", "status": "False", "message": "kubelet has no disk pressure" },
        { "type": "MemoryPressure", "status": "True", "message": "kubelet has insufficient memory available" },
    ]))
    .await;
}

/// The node n2, of which its kubelet tells this.
async fn node(client: &Client, conditions: Value) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n2" }, "status": { "conditions": conditions },
    });
    let nodes = Api::<Node>::all(client.clone());
    let node = serde_json::from_value(node).expect("a node");
    nodes
        .create(&PostParams::default(), &node)
        .await
        .expect("it can be made");
}

#[tokio::test]
async fn a_calico_pod_that_never_gets_ready_is_told_with_its_last_log_lines_events_and_its_nodes_lack()
 {
    let api = served::api();
    crash(&api).await;
    let log = "[INFO][8] startup/startup.go 431: Early log level set to info\n\
               [ERROR][8] startup/startup.go 158: failed to query kubeadm's config map\n";
    let client = served::logging(api, log);
    let cluster = with_calico(PodOwner::Calico);
    let done = installed(
        &client,
        &cluster,
        Way::Manifest,
        Fate::NeverReady,
        Vec::new(),
    )
    .await;
    let said = done.unwrap_err().to_string();
    // How long it waited depends on what went before.
    let said = said.split_once(" until ").expect("it waited").1;
    insta::assert_snapshot!(said);
}

#[tokio::test]
async fn pods_that_were_evicted_or_fit_nowhere_are_told_with_the_reason_and_the_full_disk() {
    let client = served::api();
    let full = "kubelet has disk pressure";
    node(
        &client,
        json!([{ "type": "DiskPressure", "status": "True", "message": full }]),
    )
    .await;
    let pod = |name: &str, status: Value| -> Pod {
        let pod = json!({ "metadata": { "namespace": "test", "name": name }, "status": status });
        serde_json::from_value(pod).unwrap()
    };
    let low = "The node was low on resource: ephemeral-storage.";
    let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": low });
    let nowhere = "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.";
    let unscheduled = json!({ "type": "PodScheduled", "status": "False", "message": nowhere });
    let pending = json!({ "phase": "Pending", "conditions": [unscheduled] });
    let pods = [pod("web-1", evicted), pod("web-2", pending)];
    assert_eq!(
        chainbreak_engine::evidence::of_pods(&client, &pods).await,
        format!(
            "web-1: Failed Evicted {low}\nweb-2: Pending\nweb-2 is on no node: {nowhere}\n\
             node n2, DiskPressure: {full}\n"
        )
    );
}
