//! A node without pods that others could do the work of: cordoned, and what a controller would make again elsewhere evicted.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{EvictParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{error::KindError, wait};

/// What evicted pods may take to be gone; a disruption budget may keep them for a while.
const GONE: Duration = Duration::from_secs(120);

/// Lets no new pods onto the node and evicts those of controllers, but for DaemonSets. How many.
pub(super) async fn drain(client: &Client, node: &str) -> Result<usize, KindError> {
    allow_pods(client, node, false).await?;
    let all = Api::<Pod>::all(client.clone());
    let there = || async {
        let on = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let listed = all.list(&on).await.map_err(|error| error.to_string())?;
        Ok::<Vec<Pod>, String>(listed.items.into_iter().filter(is_replaced).collect())
    };
    let what = format!("the pods on {node} are known");
    let before = wait::until(&what, GONE, there, wait::nothing).await?;
    let look = || async {
        let left = there().await?;
        let mut still = Ok(());
        for pod in &left {
            let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            // Refused where it would break a budget.
            let evicted = pods.evict(&pod.name_any(), &EvictParams::default()).await;
            let why = evicted.map_or_else(|error| format!(": {error}"), |_| String::new());
            still = Err(format!("{} is still there{why}", pod.name_any()));
        }
        still
    };
    let what = format!("{node} is drained");
    wait::until(&what, GONE, look, wait::nothing).await?;
    Ok(before.len())
}

/// Whether a controller makes it again on another node.
fn is_replaced(pod: &Pod) -> bool {
    let owner = pod
        .owner_references()
        .iter()
        .find(|it| it.controller == Some(true));
    owner.is_some_and(|owner| !["DaemonSet", "Node"].contains(&owner.kind.as_str()))
}

/// Whether new pods may run on the node.
pub(super) async fn allow_pods(client: &Client, node: &str, allow: bool) -> Result<(), KindError> {
    let nodes = Api::<NodeObject>::all(client.clone());
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": !allow } }));
    let look = || async {
        let patched = nodes.patch(node, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    // The API may be just coming back.
    let what = format!(
        "pods {} run on {node}",
        if allow { "may" } else { "may not" }
    );
    wait::until(&what, GONE, look, wait::nothing).await
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use serde_json::Value;

    use super::*;
    use crate::served;

    fn pod(name: &str, owner: Option<&str>) -> Pod {
        let owners = owner.map(|kind| {
            json!([{ "apiVersion": "v1", "kind": kind, "name": "it", "uid": "1", "controller": true }])
        });
        let pod = json!({
            "metadata": { "name": name, "ownerReferences": owners.unwrap_or(json!([])) },
            "spec": { "nodeName": "n1", "containers": [{ "name": "it", "image": "nginx" }] },
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn what_a_controller_makes_again_elsewhere_goes_and_all_else_stays() {
        let kinds = [
            (None, false),
            (Some("DaemonSet"), false),
            (Some("Node"), false),
            (Some("ReplicaSet"), true),
            (Some("StatefulSet"), true),
        ];
        for (owner, goes) in kinds {
            assert_eq!(is_replaced(&pod("one", owner)), goes, "{owner:?}");
        }
    }

    #[tokio::test]
    async fn a_node_is_closed_for_pods_and_open_again() {
        let client = served::api();
        let nodes = Api::<NodeObject>::all(client.clone());
        let node = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let closed = async || {
            let node = serde_json::to_value(nodes.get("n1").await.unwrap()).unwrap();
            node["spec"]["unschedulable"] == Value::Bool(true)
        };
        assert_eq!(drain(&client, "n1").await.unwrap(), 0);
        assert!(closed().await);
        allow_pods(&client, "n1", true).await.unwrap();
        assert!(!closed().await);
    }
}
