//! Replacing objects. Patches end here too: they are a read, a change and an update.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    admission,
    convert::to_storage,
    crd,
    create::check_type,
    delete,
    error::ApiError,
    kinds::Kind,
    object::{Key, Object, as_map, items, map_at, meta},
    state::State,
    store::without_bookkeeping,
};

/// What an update may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status, where that is a subresource.
    Main,
    /// Only the status.
    Status,
}

/// Replaces an object. A resource version in the body must be the current one. An update that
/// changes nothing writes nothing.
pub(crate) fn update(
    state: &mut State,
    kind: &Kind,
    key: &Key,
    part: Part,
    body: Value,
) -> Result<Arc<Object>, ApiError> {
    check_type(kind, &body)?;
    let old = state.existing(kind, key)?;
    let body = to_storage(kind, body);
    check_identity(kind, key, &old, &body)?;
    let mut value = match part {
        Part::Main => body,
        Part::Status => {
            let mut value = old.value().clone();
            value["status"] = body["status"].clone();
            if ["nodes", "pods"].contains(&&*kind.storage) {
                mark(&mut value, &body);
            }
            value
        }
    };
    if part == Part::Main {
        settle(state, kind, old.value(), &mut value)?;
    }
    carry_metadata(kind, old.value(), &mut value);
    if without_bookkeeping(&value) == without_bookkeeping(old.value()) {
        return Ok(old);
    }
    let object = state.store.put(&kind.storage, value);
    if !meta(object.value(), "deletionTimestamp").is_empty() {
        return Ok(delete::finish_if_free(state, &kind.storage, key).unwrap_or(object));
    }
    delete::collect_if_orphaned(state, &kind.storage, key);
    Ok(object)
}

/// Takes over labels and annotations. The status of a node or a pod is written with them: the strategies
/// in `pkg/registry/core` keep back only the spec, and Calico marks its nodes that way.
fn mark(value: &mut Value, body: &Value) {
    for field in ["labels", "annotations"] {
        value["metadata"][field] = body["metadata"][field].clone();
    }
}

fn check_identity(kind: &Kind, key: &Key, old: &Object, body: &Value) -> Result<(), ApiError> {
    let conflict = |why: &str| ApiError::Conflict {
        resource: kind.resource(),
        name: key.name.clone(),
        why: why.to_owned(),
    };
    let said = Key::of(body);
    if said.name != key.name {
        return Err(ApiError::BadRequest(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            said.name, key.name
        )));
    }
    if kind.namespaced && !said.namespace.is_empty() && said.namespace != key.namespace {
        return Err(ApiError::BadRequest(format!(
            "the namespace of the object ({}) does not match the namespace on the request ({})",
            said.namespace, key.namespace
        )));
    }
    let uid = meta(body, "uid");
    if !uid.is_empty() && uid != meta(old.value(), "uid") {
        return Err(conflict(
            "Precondition failed: UID in precondition does not match",
        ));
    }
    let revision = meta(body, "resourceVersion");
    if !revision.is_empty() && revision != meta(old.value(), "resourceVersion") {
        return Err(conflict(
            "the object has been modified; please apply your changes to the latest version and \
             try again",
        ));
    }
    Ok(())
}

fn settle(state: &mut State, kind: &Kind, old: &Value, value: &mut Value) -> Result<(), ApiError> {
    if kind.status {
        match old.get("status") {
            Some(status) => value["status"] = status.clone(),
            None => drop(as_map(value).remove("status")),
        }
    }
    admission::defaults(kind, value);
    admission::check(kind, value)?;
    match &*kind.storage {
        "services" => state.addresses.settle(value, Some(old)),
        "customresourcedefinitions.apiextensions.k8s.io" => crd::establish(state, value),
        _ => Ok(()),
    }
}

/// What of the metadata a client cannot change, and the generation.
fn carry_metadata(kind: &Kind, old: &Value, value: &mut Value) {
    let bare = |value: &Value| {
        let mut map = value.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        map.remove("status");
        map
    };
    let changed = bare(value) != bare(old);
    let metadata = map_at(value, "metadata");
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "generateName",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
    ] {
        match old["metadata"].get(field) {
            Some(kept) => metadata.insert(field.to_owned(), kept.clone()),
            None => metadata.remove(field),
        };
    }
    metadata.retain(|_, v| !v.is_null());
    for field in ["labels", "annotations"] {
        if metadata
            .get(field)
            .and_then(Value::as_object)
            .is_some_and(serde_json::Map::is_empty)
        {
            metadata.remove(field);
        }
    }
    if kind.generation && changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        metadata.insert("generation".to_owned(), generation.into());
    }
    for list in ["finalizers", "ownerReferences"] {
        if items(value, &format!("/metadata/{list}")).is_empty() {
            map_at(value, "metadata").remove(list);
        }
    }
}
