//! Applying manifests: the same for every backend, through the API and nothing else.

use chainbreak_model::case::ObjectRef;
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
        TypeMeta,
    },
};
use serde_json::Value;

use crate::trouble::Trouble;

/// Creates the objects in order; one that is there already is merged over.
pub(crate) async fn apply(client: &Client, manifests: &[Value]) -> Result<(), Trouble> {
    for manifest in manifests {
        let mut object: DynamicObject = serde_json::from_value(manifest.clone())
            .map_err(|error| Trouble::new("read a manifest", error))?;
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
            .map_err(|error| Trouble::new(what, error))?;
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
        other => other.map(drop),
    }
}

/// Asks for an object's deletion, and returns when the API has taken note.
pub(crate) async fn delete(client: &Client, object: &ObjectRef) -> Result<(), kube::Error> {
    let types = as_kept(TypeMeta {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
    });
    let api = api(client, &types, object.namespace.as_deref());
    let deleted = api.delete(&object.name, &DeleteParams::default()).await;
    deleted.map(drop)
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
