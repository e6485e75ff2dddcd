//! `scale`, and what may be posted to a pod: `binding`, `eviction`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::{
    delete::{self, DeleteOptions, Deleted},
    error::{ApiError, Cause},
    kinds::Kind,
    object::{Key, Object, items, map_at, meta, text},
    state::State,
    update::{Part, update},
};

/// The `autoscaling/v1` Scale of a workload.
pub(crate) fn scale_of(object: &Value) -> Value {
    let copied: Map<String, Value> = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ]
    .into_iter()
    .filter_map(|f| Some((f.to_owned(), object["metadata"].get(f)?.clone())))
    .collect();
    let replicas = |part: &str| object[part]["replicas"].as_i64().unwrap_or_default();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": copied,
        "spec": {"replicas": replicas("spec")},
        "status": {"replicas": replicas("status"), "selector": selector(&object["spec"]["selector"])},
    })
}

/// A selector as query text.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<String> = labels
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    for term in items(selector, "/matchExpressions") {
        let values: Vec<&str> = items(term, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let (key, values) = (text(term, "/key"), values.join(","));
        terms.push(match text(term, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}

/// Scales a workload to what a Scale says.
pub(crate) fn set_scale(
    state: &mut State,
    kind: &Kind,
    key: &Key,
    scale: &Value,
) -> Result<Arc<Object>, ApiError> {
    let replicas = &scale["spec"]["replicas"];
    let count = if replicas.is_null() {
        Some(0)
    } else {
        replicas.as_i64()
    };
    let Some(count) = count.filter(|count| *count >= 0) else {
        let wrong = "must be greater than or equal to 0";
        return Err(ApiError::Invalid {
            kind: "Scale.autoscaling".to_owned(),
            name: key.name.clone(),
            causes: vec![Cause::invalid("spec.replicas", replicas, wrong)],
        });
    };
    let mut value = state.existing(kind, key)?.value().clone();
    map_at(&mut value, "spec").insert("replicas".to_owned(), count.into());
    let revision = meta(scale, "resourceVersion");
    if !revision.is_empty() {
        value["metadata"]["resourceVersion"] = revision.into();
    }
    update(state, kind, key, Part::Main, value)
}

/// Puts a pod on a node, once.
pub(crate) fn bind(
    state: &mut State,
    kind: &Kind,
    key: &Key,
    binding: &Value,
) -> Result<(), ApiError> {
    let node = text(binding, "/target/name");
    if node.is_empty() {
        return Err(ApiError::BadRequest(
            "target.name: Required value".to_owned(),
        ));
    }
    let mut value = state.existing(kind, key)?.value().clone();
    let bound = text(&value, "/spec/nodeName");
    if !bound.is_empty() {
        return Err(ApiError::Conflict {
            resource: "pods/binding".to_owned(),
            name: key.name.clone(),
            why: format!("pod {} is already assigned to node {bound:?}", key.name),
        });
    }
    value["spec"]["nodeName"] = node.into();
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": state.now()});
    match value["status"]["conditions"].as_array_mut() {
        Some(conditions) => {
            conditions.retain(|c| c["type"] != "PodScheduled");
            conditions.push(condition);
        }
        None => value["status"]["conditions"] = json!([condition]),
    }
    // One write, seen by watchers as one change: node and condition together.
    state.store.put(&kind.storage, value);
    Ok(())
}

/// Evicts a pod: a deletion; disruption budgets are not kept.
pub(crate) fn evict(
    state: &mut State,
    kind: &Kind,
    key: &Key,
    body: &Value,
) -> Result<Deleted, ApiError> {
    let grace = body["deleteOptions"]["gracePeriodSeconds"].as_i64();
    delete::delete(
        state,
        kind,
        key,
        &DeleteOptions {
            grace,
            ..DeleteOptions::default()
        },
    )
}
