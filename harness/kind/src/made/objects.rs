//! The names of the objects that an API has.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    discovery::{ApiGroup, Discovery, Scope, verbs},
};

use crate::error::KindError;

/// The group of pods and services.
const CORE: &str = ApiGroup::CORE_GROUP;
/// What the cluster says of its objects.
const EVENT: &str = "Event";
/// Kinds whose objects come and go while nobody does anything.
const VOLATILE: [&str; 9] = [
    "CertificateSigningRequest",
    "ComponentStatus",
    "ControllerRevision",
    "Endpoints",
    "EndpointSlice",
    EVENT,
    "IPAddress",
    "Lease",
    "Secret",
];
/// Labels by which agents are made to run on some nodes only.
const OURS_OF_AGENTS: &str = "chainbreak.dev/runs-";
/// Whose objects are the cluster's own pods.
const PODS_KINDS: [&str; 2] = ["Pod", "ReplicaSet"];
/// Where those are.
const OWN: [&str; 2] = ["kube-system", "local-path-storage"];

/// What the API can list.
pub(super) struct Kinds(Vec<(ApiResource, Scope)>);

impl Kinds {
    /// Those that it serves now.
    pub(super) async fn served(client: &Client) -> Result<Self, KindError> {
        // Two requests from Kubernetes 1.27 on, and before that one for each group: an API that does not know the question gives the answer
        // to another one, in which no group is found.
        let discovery = match Discovery::new(client.clone()).run_aggregated().await {
            Ok(discovery) if discovery.has_group(CORE) => Ok(discovery),
            Ok(_) | Err(_) => Discovery::new(client.clone()).run().await,
        };
        let discovery = discovery.map_err(KindError::api("ask for the kinds of objects"))?;
        let all = discovery.groups().flat_map(ApiGroup::recommended_resources);
        let all = all.filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST));
        let all = all.map(|(resource, capabilities)| (resource, capabilities.scope));
        Ok(Self(all.collect()))
    }

    /// Every object, but for what comes and goes, as `Kind namespace/name`.
    pub(super) async fn names(&self, client: &Client) -> Result<BTreeSet<String>, KindError> {
        let all = self.0.iter();
        let all = all.filter(|(it, _)| !VOLATILE.contains(&it.kind.as_str()));
        listed(client, all, None).await
    }

    /// Every object in a namespace, but for events.
    pub(super) async fn names_in(
        &self,
        client: &Client,
        namespace: &str,
    ) -> Result<BTreeSet<String>, KindError> {
        let all = self.0.iter();
        let all = all.filter(|(it, scope)| *scope == Scope::Namespaced && it.kind != EVENT);
        listed(client, all, Some(namespace)).await
    }
}

async fn listed(
    client: &Client,
    kinds: impl Iterator<Item = &(ApiResource, Scope)>,
    namespace: Option<&str>,
) -> Result<BTreeSet<String>, KindError> {
    let listed = kinds.map(async |(resource, scope)| {
        let kind = resource.kind.as_str();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        let listed = api.list_metadata(&ListParams::default()).await;
        let listed = listed.map_err(KindError::api(format!("list {kind}")))?;
        let lines = listed.items.iter();
        let lines = lines.flat_map(|it| told(kind, it, *scope == Scope::Namespaced));
        Ok(lines.collect::<Vec<_>>())
    });
    let listed = try_join_all(listed).await?;
    Ok(listed.into_iter().flatten().collect())
}

/// What is said of an object: its name, and of a node our labels.
fn told(kind: &str, object: &impl ResourceExt, is_namespaced: bool) -> Vec<String> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    if OWN.contains(&namespace.as_str()) && PODS_KINDS.contains(&kind) {
        return Vec::new();
    }
    let whole = if is_namespaced {
        format!("{kind} {namespace}/{name}")
    } else {
        format!("{kind} {name}")
    };
    let labels = object
        .labels()
        .keys()
        .filter(|it| it.starts_with(OURS_OF_AGENTS));
    let labels = labels.map(|label| format!("{whole} label {label}"));
    let labels: Vec<String> = labels.collect();
    std::iter::once(whole).chain(labels).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served;

    #[tokio::test]
    async fn an_api_that_does_not_list_its_kinds_at_once_is_asked_group_by_group() {
        let kinds = Kinds::served(&served::api()).await.unwrap();
        let has = |kind: &str| kinds.0.iter().any(|(it, _)| it.kind == kind);
        assert!(has("Pod") && has("Namespace"));
    }
}
