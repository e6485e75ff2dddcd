//! FelixConfiguration `default`, where Calico itself keeps it: `projectcalico.org/v3` is there only where Calico's own API server,
//! or its newer definitions, are.

use chainbreak_model::event::EventKind;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Map, Value, json};

use crate::{infra_error::InfraError, log::EventLog};

fn api(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", "FelixConfiguration");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// Its `spec`; empty when it is not there.
pub(crate) async fn get(client: &Client) -> Result<Map<String, Value>, InfraError> {
    let found = api(client).get_opt("default").await;
    let found = found.map_err(|error| InfraError::new("read FelixConfiguration", error))?;
    let spec = found.map(|mut object| object.data["spec"].take());
    Ok(match spec {
        Some(Value::Object(spec)) => spec,
        _ => Map::new(),
    })
}

/// Merges the fields into it.
pub(crate) async fn merge(
    client: &Client,
    spec: &Map<String, Value>,
    log: &EventLog,
) -> Result<(), InfraError> {
    let text = format!("set FelixConfiguration {}", Value::Object(spec.clone()));
    log.append(EventKind::Step { text: text.clone() });
    let patch = Patch::Merge(json!({ "spec": spec }));
    let patched = api(client)
        .patch("default", &PatchParams::default(), &patch)
        .await;
    patched
        .map(drop)
        .map_err(|error| InfraError::new(text, error))
}
