//! Applying manifests: the same for every backend, through the API and nothing else.

use std::time::Duration;

use chainbreak_model::case::ObjectRef;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
        TypeMeta,
    },
    core::Status,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{infra_error::InfraError, wait};

/// What a controller may take to make a new namespace's service account.
const ACCOUNT: Duration = Duration::from_secs(60);

/// Creates the objects in order; one that is there already is merged over.
pub(crate) async fn apply(client: &Client, manifests: &[Value]) -> Result<(), InfraError> {
    for manifest in manifests {
        let mut object: DynamicObject = serde_json::from_value(manifest.clone())
            .map_err(|error| InfraError::new("read a manifest", error))?;
        object.types = object.types.map(as_kept);
        let what = format!(
            "apply {} {}",
            object
                .types
                .as_ref()
                .map_or("object", |types| types.kind.as_str()),
            object.name_any()
        );
        apply_one(client, object)
            .await
            .map_err(|error| InfraError::new(what, error))?;
    }
    Ok(())
}

/// Calico keeps an object of its API in a definition of the same kind, which is there also where its API server is not.
fn as_kept(types: TypeMeta) -> TypeMeta {
    if types.api_version == "projectcalico.org/v3" {
        let api_version = "crd.projectcalico.org/v1".to_owned();
        return TypeMeta {
            api_version,
            ..types
        };
    }
    types
}

async fn apply_one(client: &Client, object: DynamicObject) -> Result<(), kube::Error> {
    let types = object.types.clone().unwrap_or_default();
    let namespace = object.namespace();
    let api = api(client, &types, namespace.as_deref());
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patch = Patch::Merge(&object);
            api.patch(&object.name_any(), &PatchParams::default(), &patch)
                .await
                .map(drop)
        }
        Err(kube::Error::Api(status)) if lacks_account(&status) => {
            let namespace = namespace.as_deref().unwrap_or("default");
            if !has_account(client, namespace).await {
                return Err(kube::Error::Api(status));
            }
            let created = api.create(&PostParams::default(), &object).await;
            created.map(drop)
        }
        other => other.map(drop),
    }
}

/// Whether a pod was refused because its namespace is so new that it has nothing to run as (Kubernetes,
/// plugin/pkg/admission/serviceaccount, which itself looks for a second).
fn lacks_account(status: &Status) -> bool {
    let lacks = "serviceaccount \"default\" not found";
    status.is_forbidden() && status.message.contains(lacks)
}

/// Waits until it has; not longer than [`ACCOUNT`].
async fn has_account(client: &Client, namespace: &str) -> bool {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let look = async || match accounts.get_opt("default").await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("it has none".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let what = "a namespace has its service account";
    wait::until(what, Instant::now() + ACCOUNT, look)
        .await
        .is_ok()
}

/// Asks for an object's deletion, and returns when the API has taken note.
pub async fn delete(client: &Client, object: &ObjectRef) -> Result<(), kube::Error> {
    let deleted = api_of(client, object)
        .delete(&object.name, &DeleteParams::default())
        .await;
    deleted.map(drop)
}

/// Whether the API has it. One of a kind that it does not know it does not have.
pub async fn exists(client: &Client, object: &ObjectRef) -> Result<bool, kube::Error> {
    let found = api_of(client, object).get_opt(&object.name).await;
    found.map(|found| found.is_some())
}

fn api_of(client: &Client, object: &ObjectRef) -> Api<DynamicObject> {
    let types = as_kept(TypeMeta {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
    });
    api(client, &types, object.namespace.as_deref())
}

fn api(client: &Client, types: &TypeMeta, namespace: Option<&str>) -> Api<DynamicObject> {
    let kind = GroupVersionKind::try_from(types)
        .unwrap_or_else(|_invalid| GroupVersionKind::gvk("", &types.api_version, &types.kind));
    let resource = ApiResource::from_gvk(&kind);
    if is_cluster_scoped(&kind.kind) {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), &resource)
    }
}

/// Whether objects of a kind that scenarios have live outside namespaces.
pub fn is_cluster_scoped(kind: &str) -> bool {
    CLUSTER_SCOPED.contains(&kind)
}

/// The kinds of scenarios that live outside namespaces.
const CLUSTER_SCOPED: [&str; 8] = [
    "Namespace",
    "Node",
    "FelixConfiguration",
    "IPPool",
    "GlobalNetworkPolicy",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_came_before_its_namespaces_account_is_known_by_the_refusal() {
        // As Kubernetes 1.20.2 says it.
        let said = "pods \"one\" is forbidden: error looking up service account test/default: \
                    serviceaccount \"default\" not found";
        let refused = Status::failure(said, "Forbidden").with_code(403);
        assert!(lacks_account(&refused));
        let quota = "pods \"one\" is forbidden: exceeded quota";
        assert!(!lacks_account(
            &Status::failure(quota, "Forbidden").with_code(403)
        ));
    }
}
