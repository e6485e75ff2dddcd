//! Restarts and upgrades of agents that are pods of DaemonSets: one pod is deleted, and the DaemonSet makes the next, of another
//! image where it was given one.
//!
//! For an upgrade the DaemonSet is told to wait for pods to be deleted (`updateStrategy: OnDelete`): so it is upgraded where and
//! when the timeline says.

use std::time::Duration;

use chainbreak_engine::evidence::is_ready;
use chainbreak_model::{case::IpFamily, names::AgentName};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    error::KindError,
    shared::{first_sync, logs::DaemonPod, nodes::Node},
    versions::{Version, Versions},
    wait,
};

/// What a pod may take to be ready in place of another one, with the image that it may need.
const WITHIN: Duration = Duration::from_secs(300);

/// Ends the agent's pod on a node, and waits until the next one has begun, from then on in that version: until it is ready, and where it is a
/// kube-proxy, which kubeadm gives no readiness probe, until it has synced. One whose metrics nobody can read is taken for ready as it is.
pub(crate) async fn restart_with(
    client: &Client,
    agent: AgentName,
    node: &Node,
    version: Option<Version>,
    families: &[IpFamily],
) -> Result<(), KindError> {
    let tells = agent == AgentName::KubeProxy && first_sync::is_told(node).await;
    renew(client, agent, &node.registered, version).await?;
    if tells {
        first_sync::seen(node, families).await?;
    }
    Ok(())
}

/// The same, as far as Kubernetes knows it, which has a name of its own for the node.
async fn renew(
    client: &Client,
    agent: AgentName,
    node: &str,
    version: Option<Version>,
) -> Result<(), KindError> {
    let set = DaemonPod::of(client, agent).await?;
    if let Some(version) = version {
        bring_to(client, set, version).await?;
    }
    let old = set.on(client, node).await?;
    let lost = || KindError::Unable(format!("{} on {node} has no pod", set.name));
    let old = old.ok_or_else(lost)?;
    let pods = Api::<Pod>::namespaced(client.clone(), set.namespace);
    let deleted = pods.delete(&old.name_any(), &DeleteParams::default()).await;
    deleted.map_err(KindError::api(format!("end {agent} on {node}")))?;
    let look = || async {
        match set.on(client, node).await {
            Ok(Some(new)) if new.uid() == old.uid() => Err("the old pod is still there".to_owned()),
            Ok(Some(new)) if is_ready(&new) => Ok(()),
            Ok(Some(_)) => Err("its new pod is not ready".to_owned()),
            Ok(None) => Err("it has no pod".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let evidence = || set.evidence(client);
    wait::until(
        &format!("{agent} on {node} is ready again"),
        WITHIN,
        look,
        evidence,
    )
    .await
}

/// Gives the next pods the image of that version: the same repository's, with the version as its tag.
async fn bring_to(client: &Client, set: DaemonPod, version: Version) -> Result<(), KindError> {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), set.namespace);
    let found = sets.get(set.name).await;
    let found = found.map_err(KindError::api(format!("read daemonset {}", set.name)))?;
    let pod = found.spec.and_then(|spec| spec.template.spec);
    let mut containers = pod.iter().flat_map(|pod| &pod.containers);
    let image = containers.find(|it| it.name == set.name);
    let image = image.and_then(|container| container.image.as_deref());
    let unknown = || {
        KindError::Unable(format!(
            "daemonset {} has no container of that name",
            set.name
        ))
    };
    let image = format!("{}:{version}", repository(image.ok_or_else(unknown)?));
    let patch = json!({ "spec": {
        // Strategic merge would keep the rolling update's parameters, which OnDelete must not have.
        "updateStrategy": { "$patch": "replace", "type": "OnDelete" },
        "template": { "spec": { "containers": [{ "name": set.name, "image": image }] } },
    }});
    let params = PatchParams::default();
    let patched = sets
        .patch(set.name, &params, &Patch::Strategic(patch))
        .await;
    let doing = format!("have daemonset {} use {image}", set.name);
    patched.map(drop).map_err(KindError::api(doing))
}

/// An image's name without tag and digest. A registry's port is no tag.
pub(crate) fn repository(image: &str) -> &str {
    let named = image.split('@').next().unwrap_or(image);
    match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => named,
    }
}

/// The release that a scenario means by a version of kube-proxy: the one that is written, or the pinned one of a minor version.
pub(crate) fn release(written: &str) -> Result<Version, KindError> {
    let exact = Version::parse(written);
    let pinned = || {
        let pins = Versions::pinned()?;
        let image = pins.node_image(written).map(|image| image.version);
        image.ok_or_else(|| {
            KindError::Unable(format!(
                "no Kubernetes {written} is pinned: write its patch version"
            ))
        })
    };
    exact.map_or_else(pinned, Ok)
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use tokio::time::timeout;

    use super::*;
    use crate::served;

    /// As kubeadm makes it, as far as this goes.
    fn daemon_set() -> DaemonSet {
        serde_json::from_value(json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "namespace": "kube-system", "name": "kube-proxy" },
            "spec": {
                "selector": { "matchLabels": { "k8s-app": "kube-proxy" } },
                "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
                "template": {
                    "metadata": { "labels": { "k8s-app": "kube-proxy" } },
                    "spec": { "containers": [{
                        "name": "kube-proxy",
                        "image": "registry.k8s.io/kube-proxy:v1.32.8",
                        "command": ["/usr/local/bin/kube-proxy"],
                    }] },
                },
            },
        }))
        .expect("a daemonset")
    }

    /// What its controller and a kubelet would make.
    async fn make_pod(pods: &Api<Pod>, name: &str, node: &str, image: &str) {
        let pod = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "namespace": "kube-system", "name": name, "labels": { "k8s-app": "kube-proxy" } },
            "spec": { "nodeName": node, "containers": [{ "name": "kube-proxy", "image": image }] },
        }));
        let made = pods
            .create(&PostParams::default(), &pod.expect("a pod"))
            .await;
        made.expect("it can be made");
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        let told = pods
            .patch_status(name, &PatchParams::default(), &Patch::Merge(ready))
            .await;
        told.expect("it can be ready");
    }

    /// Ends a pod that is told to end, and makes the next one of the image that the DaemonSet has by then.
    async fn control(client: Client, old: &str) {
        let sets = Api::<DaemonSet>::namespaced(client.clone(), "kube-system");
        let pods = Api::<Pod>::namespaced(client, "kube-system");
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while let Some(pod) = pods.get_opt(old).await.expect("it answers") {
            ticks.tick().await;
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteParams::default().grace_period(0);
                pods.delete(old, &now).await.expect("it can end");
            }
        }
        let set = serde_json::to_value(sets.get("kube-proxy").await.expect("it is there"));
        let set = set.expect("JSON");
        let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
        make_pod(&pods, "new", "n2", image.as_str().expect("an image")).await;
    }

    async fn cluster() -> Client {
        let client = served::api();
        let sets = Api::<DaemonSet>::namespaced(client.clone(), "kube-system");
        let made = sets.create(&PostParams::default(), &daemon_set()).await;
        made.expect("it can be made");
        let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
        for (name, node) in [("other", "n1"), ("old", "n2")] {
            make_pod(&pods, name, node, "registry.k8s.io/kube-proxy:v1.32.8").await;
        }
        client
    }

    async fn spec(client: &Client) -> serde_json::Value {
        let sets = Api::<DaemonSet>::namespaced(client.clone(), "kube-system");
        let set = sets.get("kube-proxy").await.expect("it is there");
        serde_json::to_value(set).expect("JSON")["spec"].take()
    }

    #[tokio::test]
    async fn an_upgrade_gives_the_daemonset_the_new_image_and_ends_the_pod_of_that_node_alone() {
        let client = cluster().await;
        let (node, version) = ("n2", Version([1, 33, 4]));
        let restarting = renew(&client, AgentName::KubeProxy, node, Some(version));
        let (restarted, ()) = tokio::join!(restarting, control(client.clone(), "old"));
        restarted.unwrap();
        let spec = spec(&client).await;
        assert_eq!(spec["updateStrategy"], json!({ "type": "OnDelete" }));
        let containers = spec["template"]["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        assert_eq!(containers[0]["image"], "registry.k8s.io/kube-proxy:v1.33.4");
        let command = json!(["/usr/local/bin/kube-proxy"]);
        assert_eq!(containers[0]["command"], command);
        let pods = Api::<Pod>::namespaced(client, "kube-system");
        let pods = pods.list(&kube::api::ListParams::default()).await.unwrap();
        let image = |pod: &Pod| {
            pod.spec.as_ref().unwrap().containers[0]
                .image
                .clone()
                .unwrap()
        };
        let pods: Vec<_> = pods
            .iter()
            .map(|pod| (pod.name_any(), image(pod)))
            .collect();
        let (new, old) = (
            "registry.k8s.io/kube-proxy:v1.33.4",
            "registry.k8s.io/kube-proxy:v1.32.8",
        );
        assert_eq!(
            pods,
            [
                ("new".to_owned(), new.to_owned()),
                ("other".to_owned(), old.to_owned())
            ]
        );
    }

    #[tokio::test]
    async fn a_restart_ends_the_pod_and_leaves_the_daemonset_alone() {
        let client = cluster().await;
        let (node, before) = ("n2", spec(&client).await);
        let restarting = renew(&client, AgentName::KubeProxy, node, None);
        let (restarted, ()) = tokio::join!(restarting, control(client.clone(), "old"));
        restarted.unwrap();
        assert_eq!(spec(&client).await, before);
    }

    #[tokio::test]
    async fn a_restart_is_over_when_the_new_pod_is_ready_however_long_the_old_one_still_is() {
        let client = cluster().await;
        let mut restarting = Box::pin(renew(&client, AgentName::KubeProxy, "n2", None));
        let early = timeout(Duration::from_millis(300), &mut restarting).await;
        assert!(early.is_err(), "{early:?}: the old pod is still there");
        let (restarted, ()) = tokio::join!(restarting, control(client.clone(), "old"));
        restarted.unwrap();
    }

    #[test]
    fn a_tag_is_taken_from_an_image_and_a_port_is_not() {
        for (image, name) in [
            (
                "registry.k8s.io/kube-proxy:v1.32.8",
                "registry.k8s.io/kube-proxy",
            ),
            ("localhost:5000/kube-proxy", "localhost:5000/kube-proxy"),
            (
                "localhost:5000/kube-proxy:v1@sha256:00",
                "localhost:5000/kube-proxy",
            ),
        ] {
            assert_eq!(repository(image), name);
        }
    }

    #[test]
    fn a_minor_version_is_the_pinned_release_and_a_patch_version_is_itself() {
        assert_eq!(release("1.33").unwrap().to_string(), "v1.33.4");
        assert_eq!(release("1.20.2").unwrap().to_string(), "v1.20.2");
        let why = release("1.99").unwrap_err().to_string();
        assert!(why.contains("no Kubernetes 1.99 is pinned"), "{why}");
    }
}
