//! What a case leaves in a cluster that is kept for the next one: its objects, which are deleted, and what no object stands for.

pub(super) mod standing_rules;
mod sweep;

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams,
        TypeMeta,
    },
    discovery::Scope,
};
use serde_json::{Value, json};

use crate::{error::KindError, made::objects::Kinds, shared::nodes::Nodes, wait};

/// What all objects together may take to be gone.
const GONE: Duration = Duration::from_secs(120);
/// What is in a namespace because it is one, by kind and name.
const OF_A_NAMESPACE: [(&str, &str); 2] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ServiceAccount", "default"),
];
/// How the Secret of its `ServiceAccount` begins, which is there, too, up to 1.23.
const TOKEN: &str = "default-token-";

/// Deletes the objects of these manifests and waits until they are gone: the next case may have the same ones. Of others than namespaces, which
/// go as soon as they are empty, the last one goes first.
pub(crate) async fn remove(client: &Client, manifests: &[Value]) -> Result<(), KindError> {
    let namespaces = async {
        if let Err(error) = hurry(client, manifests).await {
            // Kubernetes ends them itself, later.
            tracing::debug!(%error, "no namespace was hurried");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        gone = delete(client, manifests) => gone,
        () = namespaces => Ok(()),
    }
}

async fn delete(client: &Client, manifests: &[Value]) -> Result<(), KindError> {
    let mut going = Vec::new();
    // Where a namespace is being deleted nothing takes the place of what is.
    let is_namespace = |manifest: &&Value| namespace(manifest).is_some();
    let (namespaces, others): (Vec<_>, Vec<_>) = manifests.iter().partition(is_namespace);
    for manifest in &namespaces {
        going.extend(begin(client, manifest).await?);
    }
    for name in namespaces.into_iter().filter_map(namespace) {
        if let Err(error) = shorten_grace_period(client, name).await {
            // They end by themselves, later.
            tracing::debug!(%error, "no pod was told to hurry");
        }
    }
    for manifest in others.into_iter().rev() {
        going.extend(begin(client, manifest).await?);
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

/// Begins to delete the object of a manifest; `None` where it is gone.
async fn begin(
    client: &Client,
    manifest: &Value,
) -> Result<Option<(Api<DynamicObject>, String)>, KindError> {
    let Some((api, name)) = find(client, manifest).await? else {
        return Ok(None);
    };
    // Nobody waits for a `sleep` that does not care for SIGTERM.
    let params = DeleteParams::background().grace_period(0);
    match api.delete(&name, &params).await {
        Ok(_) => Ok(Some((api, name))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(KindError::api(format!("delete {name}"))(error)),
    }
}

/// Ends pods of a namespace in a second, also those that would wait before they end, as long as nobody has begun to. Not in none: of older
/// kubelets that is as long as the pod's own specification says (`calculateEffectiveGracePeriod` of `pkg/kubelet/pod_workers.go`).
async fn shorten_grace_period(client: &Client, namespace: &str) -> Result<(), KindError> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let params = DeleteParams::background().grace_period(1);
    let hastened = pods
        .delete_collection(&params, &ListParams::default())
        .await;
    let doing = format!("end the pods of {namespace}");
    hastened.map(drop).map_err(KindError::api(doing))
}

/// Has namespaces go as soon as they are empty. Kubernetes leaves each for five seconds as it is, and empties it then
/// (kube-controller-manager 1.20 to 1.36, `namespaceDeletionGracePeriod`).
async fn hurry(client: &Client, manifests: &[Value]) -> Result<(), KindError> {
    let names = manifests.iter().filter_map(namespace);
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return Ok(());
    }
    let kinds = Kinds::served(client).await?;
    let hurried = names.iter().map(|name| end(client, &kinds, name));
    // Each for itself: Kubernetes may have been faster with one.
    join_all(hurried).await.into_iter().collect()
}

/// Waits until nothing is in a namespace that is being deleted but what is in each, and ends it.
async fn end(client: &Client, kinds: &Kinds, name: &str) -> Result<(), KindError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let pods = Api::<Pod>::namespaced(client.clone(), name);
    let look = || async {
        let words = |error: kube::Error| error.to_string();
        let found = namespaces.get_opt(name).await.map_err(words)?;
        let found = found.ok_or_else(|| format!("{name} is gone already"))?;
        if found.metadata.deletion_timestamp.is_none() {
            return Err(format!("{name} is not being deleted yet"));
        }
        // They take longest, and are one question.
        let pods = pods.list_metadata(&ListParams::default()).await;
        if !pods.map_err(words)?.items.is_empty() {
            return Err("there are pods".to_owned());
        }
        let inside = kinds.names_in(client, name).await;
        let inside = inside.map_err(|error| error.to_string())?;
        match inside.iter().find(|line| !is_of_every(name, line)) {
            Some(left) => Err(format!("{left} is still there")),
            None => Ok(found),
        }
    };
    let mut found = wait::until("the namespace is empty", GONE, look, wait::nothing).await?;
    let every = DeleteParams::default();
    let events = Api::<Event>::namespaced(client.clone(), name);
    let forgotten = events
        .delete_collection(&every, &ListParams::default())
        .await;
    forgotten.map_err(KindError::api(format!("forget events of {name}")))?;
    let own = OF_A_NAMESPACE.map(|(kind, own)| {
        let metadata = json!({ "namespace": name, "name": own });
        json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata })
    });
    delete(client, &own).await?;
    // Whatever its status is meanwhile.
    (found.spec, found.metadata.resource_version) = (None, None);
    let params = PostParams::default();
    let ended = namespaces.replace_subresource("finalize", name, &params, &found);
    let ended = ended.await.map(drop);
    ended.map_err(KindError::api(format!("end namespace {name}")))
}

/// Whether an object, as `Kind namespace/name`, is there because the namespace is.
fn is_of_every(namespace: &str, object: &str) -> bool {
    let mut all = OF_A_NAMESPACE.iter();
    all.any(|(kind, name)| object == format!("{kind} {namespace}/{name}"))
        || object.starts_with(&format!("Secret {namespace}/{TOKEN}"))
}

/// Prints a node's interfaces to pods. Felix in eBPF mode has two of that type for itself, from its first start with it on.
const PODS: &str = "ip -o link show type veth | sed -n '/^[0-9]*: bpf\\(in\\|out\\)\\.cali/!s/^[0-9]*: *\\([^@:]*\\).*/\\1/p'";

/// Notes on every node which interfaces to pods it has before a case, for [`scrub`]: pods of the cluster's own may begin after [`keep`], or be
/// others than then.
pub(crate) async fn note_pods(nodes: &Nodes) -> Result<(), KindError> {
    let script = format!("{PODS} > /kind/chainbreak.pods");
    nodes.run(&["sh", "-c", &script]).await
}

/// Keeps rules and mounts of every node, for [`scrub`] to set them back.
pub(crate) async fn keep(nodes: &Nodes) -> Result<(), KindError> {
    const KEEP: &str = "\
        awk '{ print $5 }' /proc/self/mountinfo > /kind/chainbreak.mounts; \
        for f in iptables ip6tables; do for b in legacy nft; do \
          $f-$b-save > /kind/chainbreak-$f-$b.rules 2>/dev/null; \
        done; done";
    nodes.run(&["sh", "-c", KEEP]).await
}

/// Sets back on every node what no object stands for: files that something was mounted over, rules, and connections that are tracked; sets of
/// Felix's model, too, which has ended. kube-proxy, which may write meanwhile, begins anew with the next case where its rules are others then. All rules are as they were,
/// whoever wrote them, where that is foreseen (of nftables tables that were not there go whole: empty ones would be a difference); beside a
/// real Felix those go that neither it nor kube-proxy wrote, and connections to the API are still tracked.
///
/// A pod's interface goes after its object. As long as one is there on any node, a connection that was not closed sends again, and every node on
/// its way tracks it again.
pub(crate) async fn scrub(nodes: &Nodes, is_foreseen: bool) -> Result<(), KindError> {
    const UNMOUNT: &str = "\
        [ ! -e /kind/chainbreak.mounts ] || for m in $(awk '{ print $5 }' /proc/self/mountinfo | grep -e ^/usr/ -e ^/etc/ | \
            grep -vxFf /kind/chainbreak.mounts); do umount $m || exit 1; done; ";
    const RESTORE: &str = "\
        for f in iptables ip6tables; do for b in legacy nft; do \
          kept=/kind/chainbreak-$f-$b.rules; [ -e $kept ] || continue; \
          for t in raw mangle nat filter; do \
            grep -q \"^\\*$t\" $kept && continue; \
            [ $b = legacy ] || ! command -v nft >/dev/null || nft delete table ${f%tables} $t 2>/dev/null; \
            $f-$b-save -t $t 2>/dev/null | grep -q -e ^-A -e '^:[^ ]* -' || continue; \
            $f-$b -t $t -F && $f-$b -t $t -X || exit 1; \
          done; \
          $f-$b-restore < $kept || exit 1; \
        done; done; \
        for set in $(ipset list -name 2>/dev/null | grep ^cali); do ipset destroy $set || exit 1; done; ";
    const FORGET: &str = "conntrack -F 2>/dev/null || exit 1";
    const WAIT: &str = "\
        [ ! -e /kind/chainbreak.pods ] || for look in $(seq 100); do pods | grep -qvxFf /kind/chainbreak.pods || break; sleep 0.1; done";
    let (rules, forget) = if is_foreseen {
        (RESTORE, FORGET)
    } else {
        (sweep::SWEEP, sweep::FORGET)
    };
    let script = format!("pods() {{ {PODS}; }}; {UNMOUNT}{rules}{WAIT}");
    nodes.run(&["sh", "-c", &script]).await?;
    // When no node has an interface to a pod of the case any more.
    nodes.run(&["sh", "-c", forget]).await
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

/// The name of the namespace that a manifest makes. Those of the cluster itself stay.
pub(super) fn namespace(manifest: &Value) -> Option<&str> {
    let name = manifest["metadata"]["name"].as_str()?;
    let is_its_own = name == "default" || name.starts_with("kube-");
    (manifest["kind"] == "Namespace" && !is_its_own).then_some(name)
}

/// Where the object of a manifest is.
async fn find(
    client: &Client,
    manifest: &Value,
) -> Result<Option<(Api<DynamicObject>, String)>, KindError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
    let namespace = manifest["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    if kind == "Namespace" && self::namespace(manifest).is_none() {
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

    #[test]
    fn what_is_in_each_namespace_is_told_from_what_a_case_left_there() {
        for (object, is_its) in [
            ("ConfigMap test/kube-root-ca.crt", true),
            ("ServiceAccount test/default", true),
            ("Secret test/default-token-x7k2p", true),
            ("Secret test/mine", false),
            ("ServiceAccount test/default-viewer", false),
            ("ConfigMap test/chainbreak-tells", false),
            ("EndpointSlice test/web-abcde", false),
            ("ConfigMap other/kube-root-ca.crt", false),
        ] {
            assert_eq!(is_of_every("test", object), is_its, "{object}");
        }
    }

    #[test]
    fn namespaces_of_the_cluster_itself_are_none_of_a_cases() {
        let of = |kind: &str, name: &str| {
            let object = json!({ "kind": kind, "metadata": { "name": name } });
            namespace(&object).map(str::to_owned)
        };
        assert_eq!(of("Namespace", "test").as_deref(), Some("test"));
        for (kind, name) in [
            ("Namespace", "default"),
            ("Namespace", "kube-system"),
            ("Pod", "test"),
        ] {
            assert_eq!(of(kind, name), None, "{kind} {name}");
        }
    }

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
