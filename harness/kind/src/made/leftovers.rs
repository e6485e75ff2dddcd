//! What a case leaves in a cluster that is kept for the next one: its objects, which are deleted, the last one first.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, TypeMeta},
    discovery::Scope,
};
use serde_json::{Value, json};

use crate::{error::KindError, shared::nodes::Nodes, wait};

/// What all objects together may take to be gone.
const GONE: Duration = Duration::from_secs(120);

/// Deletes the objects of these manifests and waits until they are gone: the next case may have the same ones.
pub(crate) async fn remove(client: &Client, manifests: &[Value]) -> Result<(), KindError> {
    let mut going = Vec::new();
    for manifest in manifests.iter().rev() {
        let Some((api, name)) = find(client, manifest).await? else {
            continue;
        };
        // Nobody waits for a `sleep` that does not care for SIGTERM.
        let params = DeleteParams::background().grace_period(0);
        match api.delete(&name, &params).await {
            Ok(_) => going.push((api, name)),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(KindError::api(format!("delete {name}"))(error)),
        }
    }
    let look = || async {
        for (api, name) in &going {
            match api.get_opt(name).await {
                Ok(None) => {}
                Ok(Some(_)) => return Err(format!("{name} is still there")),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    };
    let what = "the case's objects are gone";
    wait::until(what, GONE, look, wait::nothing).await
}

/// Keeps rules and mounts of every node, for [`scrub`] to set them back.
pub(crate) async fn keep(nodes: &Nodes) -> Result<(), KindError> {
    const KEEP: &str = "\
        awk '{ print $5 }' /proc/self/mountinfo > /kind/chainbreak.mounts; \
        for f in iptables ip6tables; do for b in legacy nft; do \
          $f-$b-save > /kind/chainbreak-$f-$b.rules 2>/dev/null; \
        done; done";
    on_every(nodes, KEEP).await
}

/// Sets back on every node what no object stands for: files that something was mounted over, rules, whoever wrote them, sets of Felix's
/// model, which has ended, and connections that are tracked. kube-proxy, which may write meanwhile, begins anew with the next case.
pub(crate) async fn scrub(nodes: &Nodes) -> Result<(), KindError> {
    const SCRUB: &str = "\
        [ ! -e /kind/chainbreak.mounts ] || for m in $(awk '{ print $5 }' /proc/self/mountinfo | grep -e ^/usr/ -e ^/etc/ | \
            grep -vxFf /kind/chainbreak.mounts); do umount $m || exit 1; done; \
        for f in iptables ip6tables; do for b in legacy nft; do \
          kept=/kind/chainbreak-$f-$b.rules; [ -e $kept ] || continue; \
          for t in raw mangle nat filter; do \
            grep -q \"^\\*$t\" $kept && continue; \
            $f-$b-save -t $t 2>/dev/null | grep -q -e ^-A -e '^:[^ ]* -' || continue; \
            $f-$b -t $t -F && $f-$b -t $t -X || exit 1; \
          done; \
          $f-$b-restore < $kept || exit 1; \
        done; done; \
        for set in $(ipset list -name 2>/dev/null | grep ^cali); do ipset destroy $set || exit 1; done; \
        conntrack -F 2>/dev/null || exit 1";
    on_every(nodes, SCRUB).await
}

async fn on_every(nodes: &Nodes, script: &str) -> Result<(), KindError> {
    for node in &nodes.0 {
        node.run(&["sh", "-c", script]).await?;
    }
    Ok(())
}

/// Takes the cluster's name service away. Scenarios speak in addresses, and the lab has none: a Service more, whose pods come and
/// go, would decide what a partial sync of kube-proxy is about.
pub(crate) async fn without_names(client: &Client) -> Result<(), KindError> {
    let object = |api_version: &str, kind: &str, name: &str| {
        let metadata = json!({ "namespace": "kube-system", "name": name });
        json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata })
    };
    let objects = [
        object("v1", "Service", "kube-dns"),
        object("apps/v1", "Deployment", "coredns"),
        // Without it kubeadm makes them anew when it upgrades a cluster (cmd/kubeadm/app/phases/upgrade/postupgrade.go).
        object("v1", "ConfigMap", "coredns"),
    ];
    remove(client, &objects).await
}

/// Where the object of a manifest is. Namespaces of the cluster itself stay.
async fn find(
    client: &Client,
    manifest: &Value,
) -> Result<Option<(Api<DynamicObject>, String)>, KindError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
    let namespace = manifest["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    if kind == "Namespace" && (name == "default" || name.starts_with("kube-")) {
        return Ok(None);
    }
    let Some((resource, scope)) = resource(client, &text(&manifest["apiVersion"]), &kind).await?
    else {
        return Ok(None);
    };
    let api = match scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    Ok(Some((api, name)))
}

/// How the API serves a kind; `None` when it does not.
pub(crate) async fn resource(
    client: &Client,
    api_version: &str,
    kind: &str,
) -> Result<Option<(ApiResource, Scope)>, KindError> {
    let types = TypeMeta {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    };
    let gvk = GroupVersionKind::try_from(&types).map_err(|error| KindError::Manifest {
        origin: format!("{api_version} {kind}"),
        why: error.to_string(),
    })?;
    match kube::discovery::pinned_kind(client, &gvk).await {
        Ok((resource, capabilities)) => Ok(Some((resource, capabilities.scope))),
        // Of a group that it does not serve it says so in plain text.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) => Err(KindError::api(format!("look for the kind {kind}"))(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::Response;
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn a_kind_of_a_group_that_the_api_does_not_serve_is_nowhere() {
        // As Kubernetes 1.34.10 answers.
        let unknown = tower::service_fn(|_request| async {
            let body = Body::from(b"404 page not found\n".to_vec());
            let answer = Response::builder().status(404).body(body);
            Ok::<_, Infallible>(answer.expect("an answer"))
        });
        let client = Client::new(unknown, "default");
        let found = resource(&client, "projectcalico.org/v3", "IPPool").await;
        assert!(matches!(found, Ok(None)), "{found:?}");
    }
}
