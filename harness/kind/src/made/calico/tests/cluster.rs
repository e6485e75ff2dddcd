//! What an API server alone lacks to be a cluster: the controllers, the kubelets and Calico's operator.

use std::{collections::BTreeMap, time::Duration};

use chainbreak_model::case::ClusterSpec;
use futures::FutureExt;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use crate::{
    error::KindError,
    made::{
        calico::{Install, Order, Way, documents},
        spec::{Spec, tests::spec},
    },
    shared::nodes::Nodes,
};

pub(super) const BY_MANIFEST: &str = include_str!("../fixtures/calico.yaml");
const BY_OPERATOR: &str = include_str!("../fixtures/tigera-operator.yaml");
/// Far more than what is waited for takes here.
const ENOUGH: Duration = Duration::from_secs(60);
/// Short: what is waited for does not come.
const SOON: Duration = Duration::from_secs(2);

/// What the controllers make of what they are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Ready,
    /// calico-node's pods stay as they are.
    NeverReady,
    /// The operator says why not.
    Degraded,
}

/// What a case asks for, where the API is at that address.
fn order<'a>(
    spec: &'a Spec,
    cluster: &'a ClusterSpec,
    way: Way,
    pools: Vec<Value>,
    api: &str,
) -> Order<'a> {
    Order {
        spec,
        way,
        felix: &cluster.felix,
        pools,
        api: spec.asks_directly().then(|| api.to_owned()),
    }
}

/// Installs it in a new cluster, or in one that is there.
pub(super) async fn installed(
    client: &Client,
    cluster: &ClusterSpec,
    way: Way,
    fate: Fate,
    pools: Vec<Value>,
) -> Result<(), KindError> {
    let text = match way {
        Way::Manifest => BY_MANIFEST,
        Way::Operator => BY_OPERATOR,
    };
    installed_from(client, cluster, way, text, fate, pools).await
}

/// What a case has otherwise, in a cluster that has Calico by its manifest.
pub(super) async fn renewed(
    client: &Client,
    cluster: &ClusterSpec,
    nodes: &Nodes,
) -> Result<(), KindError> {
    let manifest = documents(Way::Manifest, BY_MANIFEST, "the fixture").expect("it is Calico's");
    let spec = spec(cluster).expect("it can be");
    let install = Install {
        client,
        order: order(&spec, cluster, Way::Manifest, Vec::new(), "172.18.0.3"),
        until: Instant::now() + ENOUGH,
    };
    let gone = Notify::new();
    let done = tokio::select! {
        done = install.renew(nodes, &manifest, &gone) => done,
        () = controllers(client, Fate::Ready) => unreachable!("they never end"),
    };
    assert!(
        gone.notified().now_or_never().is_some(),
        "kube-proxy may write"
    );
    done
}

pub(super) async fn installed_from(
    client: &Client,
    cluster: &ClusterSpec,
    way: Way,
    text: &str,
    fate: Fate,
    pools: Vec<Value>,
) -> Result<(), KindError> {
    let manifest = documents(way, text, "the fixture").expect("it is Calico's");
    let spec = spec(cluster).expect("it can be");
    let install = Install {
        client,
        order: order(&spec, cluster, way, pools, "172.18.0.2"),
        until: Instant::now() + if fate == Fate::Ready { ENOUGH } else { SOON },
    };
    tokio::select! {
        done = install.apply(&manifest) => done,
        () = controllers(client, fate) => unreachable!("they never end"),
    }
}

/// Plays the controllers, the kubelets and Calico's operator.
async fn controllers(client: &Client, fate: Fate) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        let ready = if fate == Fate::NeverReady { 0 } else { 2 };
        let sets = Api::<DaemonSet>::all(client.clone());
        for set in sets.list(&ListParams::default()).await.expect("it answers") {
            let status = json!({ "status": {
                "observedGeneration": set.metadata.generation, "currentNumberScheduled": 2, "numberMisscheduled": 0,
                "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": ready,
            } });
            let sets = Api::<DaemonSet>::namespaced(client.clone(), &set.namespace().expect("one"));
            let (params, status) = (PatchParams::default(), Patch::Merge(status));
            let told = sets.patch_status(&set.name_any(), &params, &status).await;
            told.expect("it takes a status");
        }
        let deployments = Api::<Deployment>::all(client.clone());
        for one in deployments
            .list(&ListParams::default())
            .await
            .expect("it answers")
        {
            let status = json!({ "status": {
                "observedGeneration": one.metadata.generation, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1,
            } });
            let of = Api::<Deployment>::namespaced(client.clone(), &one.namespace().expect("one"));
            let (params, status) = (PatchParams::default(), Patch::Merge(status));
            let told = of.patch_status(&one.name_any(), &params, &status).await;
            told.expect("it takes a status");
        }
        operate(client, fate).await;
    }
}

/// What the operator does when it is asked for an Installation.
async fn operate(client: &Client, fate: Fate) {
    let installations = custom(client, "operator.tigera.io", "Installation");
    let Ok(Some(asked)) = installations.get_opt("default").await else {
        return;
    };
    let mut template = asked.data["spec"]["calicoNodeDaemonSet"]["spec"]["template"].clone();
    template["metadata"]["labels"] = json!({ "k8s-app": "calico-node" });
    if !template["spec"]["containers"].is_array() {
        template["spec"]["containers"] = json!([{ "name": "calico-node" }]);
    }
    template["spec"]["containers"][0]["image"] = "calico/node:v3.29.7".into();
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "calico-system" } });
    let applied = PatchParams::apply("operator").force();
    let namespace = Patch::Apply(namespace);
    let made = namespaces
        .patch("calico-system", &applied, &namespace)
        .await;
    made.expect("it can be made");
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "namespace": "calico-system", "name": "calico-node" },
        "spec": { "selector": { "matchLabels": { "k8s-app": "calico-node" } }, "template": template },
    });
    let sets = Api::<DynamicObject>::namespaced_with(
        client.clone(),
        "calico-system",
        &ApiResource::erase::<DaemonSet>(&()),
    );
    let made = sets
        .patch("calico-node", &applied, &Patch::Apply(set))
        .await;
    made.expect("it can be made");
    let available = if fate == Fate::Degraded {
        "False"
    } else {
        "True"
    };
    let seen = asked.metadata.generation;
    let conditions = json!([
        { "type": "Available", "status": available, "observedGeneration": seen, "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "Degraded", "status": if available == "True" { "False" } else { "True" }, "message": "Could not resolve CalicoNetwork IPPool",
          "observedGeneration": seen, "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]);
    let statuses = custom(client, "operator.tigera.io", "TigeraStatus");
    for (name, conditions) in [("calico", conditions), ("tiers", of_tiers())] {
        let status = json!({
            "apiVersion": "operator.tigera.io/v1", "kind": "TigeraStatus", "metadata": { "name": name },
            "status": { "conditions": conditions },
        });
        let status = Patch::Apply(&status);
        let told = statuses.patch(name, &applied, &status).await;
        told.expect("it can be made");
        let told = statuses.patch_status(name, &applied, &status).await;
        told.expect("it takes a status");
    }
}

/// Seen of v1.42.3, of Calico v3.32.1.
fn of_tiers() -> Value {
    json!([
        { "type": "Degraded", "status": "True", "message": "Waiting for Tigera API server to be ready",
          "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ])
}

pub(super) fn custom(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    let plural = match kind.kind.as_str() {
        "TigeraStatus" => "tigerastatuses".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    Api::all_with(client.clone(), &resource)
}

pub(super) async fn node_set(client: &Client, namespace: &str) -> Value {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let set = sets.get("calico-node").await.expect("it is there");
    serde_json::to_value(set).expect("JSON")
}

pub(super) async fn endpoint(client: &Client, namespace: &str) -> Option<BTreeMap<String, String>> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let found = maps.get_opt("kubernetes-services-endpoint").await;
    found.expect("it answers").and_then(|map| map.data)
}
