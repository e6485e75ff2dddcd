//! Objects of Calico's manifests, applied one after the other: definitions first, since what is of their kinds comes after them.

use std::time::Duration;

use chainbreak_engine::evidence;
use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    discovery::Scope,
};
use serde_json::Value;

use crate::{
    error::KindError,
    made::{
        crds::{self, FIELD_MANAGER},
        leftovers::resource,
    },
    wait,
};

/// Applies the definitions among the objects, waits until the API serves what they define, and gives the others back.
pub(super) async fn definitions(
    client: &Client,
    objects: Vec<Value>,
) -> Result<Vec<Value>, KindError> {
    let (definitions, others): (Vec<Value>, Vec<Value>) = objects
        .into_iter()
        .partition(|it| it["kind"] == "CustomResourceDefinition");
    for definition in &definitions {
        apply(client, definition).await?;
    }
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let names = definitions.iter();
    for name in names.filter_map(|it| it["metadata"]["name"].as_str()) {
        crds::established(&api, name).await?;
    }
    Ok(others)
}

/// Applies one object: as `kubectl apply --server-side --force-conflicts` does.
pub(super) async fn apply(client: &Client, object: &Value) -> Result<(), KindError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let version = text(&object["apiVersion"]);
    let what = format!("apply Calico's {kind} {name}");
    let Some((resource, scope)) = resource(client, &version, &kind).await? else {
        // It keeps evictions in order, which nobody here makes; policy/v1 came with Kubernetes 1.21.
        if kind == "PodDisruptionBudget" {
            return Ok(());
        }
        let why = format!("could not {what}: this Kubernetes has no {version} {kind}");
        return Err(KindError::Unable(why));
    };
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.unwrap_or("default");
    let api: Api<DynamicObject> = match scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.map(drop).map_err(KindError::api(what))
}

/// Waits until a Deployment has all its pods, of its newest template.
pub(super) async fn deployed(
    client: &Client,
    namespace: &str,
    name: &str,
    within: Duration,
) -> Result<(), KindError> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let look = || async {
        let found = deployments.get(name).await;
        let found = found.map_err(|error| error.to_string())?;
        let wanted = found.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let status = found.status.unwrap_or_default();
        let observed = status.observed_generation == found.metadata.generation;
        let updated = status.updated_replicas.unwrap_or(0);
        let available = status.available_replicas.unwrap_or(0);
        if observed && updated == wanted && available == wanted {
            return Ok(());
        }
        Err(format!("{available} of {wanted} pods are available"))
    };
    let what = format!("deployment {name} is available");
    let evidence = || evidence::of_labelled(client, namespace, name);
    wait::until(&what, within, look, evidence).await
}
