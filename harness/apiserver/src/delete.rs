//! Deleting objects, and what follows from it: finalizers, grace periods, dependents, namespaces.
//!
//! Garbage collection happens within the request that causes it, not some time after.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    crd,
    error::ApiError,
    kinds::Kind,
    object::{Key, Object, as_map, items, map_at, meta, text},
    state::State,
    store::Storage,
};

/// The finalizer of an owner that waits for its dependents.
const FOREGROUND: &str = "foregroundDeletion";

/// What becomes of the dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Dependents {
    #[default]
    Background,
    Foreground,
    Orphan,
}

/// How to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) dependents: Dependents,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
}

/// What a deletion came to.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; its last state.
    Gone(Arc<Object>),
    /// It is marked, and goes when its finalizers, containers or contents have gone.
    Terminating(Arc<Object>),
}

/// Deletes an object on a client's behalf.
pub(crate) fn delete(
    state: &mut State,
    kind: &Kind,
    key: &Key,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let object = state.existing(kind, key)?;
    for (wanted, field) in [
        (&options.uid, "uid"),
        (&options.revision, "resourceVersion"),
    ] {
        if wanted
            .as_ref()
            .is_some_and(|wanted| wanted != meta(object.value(), field))
        {
            return Err(ApiError::Conflict {
                resource: kind.resource(),
                name: key.name.clone(),
                why: format!("the {field} in the precondition does not match"),
            });
        }
    }
    Ok(begin(state, &kind.storage, key, &object, options))
}

fn begin(
    state: &mut State,
    storage: &Storage,
    key: &Key,
    object: &Object,
    options: &DeleteOptions,
) -> Deleted {
    let uid = meta(object.value(), "uid").to_owned();
    if options.dependents == Dependents::Orphan {
        orphan(state, &uid);
    }
    let mut value = object.value().clone();
    let grace = grace(storage, &value, options);
    mark(state, &mut value, grace);
    if options.dependents == Dependents::Foreground && !state.store.dependents(&uid).is_empty() {
        let finalizers = map_at(&mut value, "metadata")
            .entry("finalizers")
            .or_insert(Value::Null);
        let mut list = finalizers.as_array().cloned().unwrap_or_default();
        if !list.contains(&FOREGROUND.into()) {
            list.push(FOREGROUND.into());
        }
        *finalizers = list.into();
    }
    if &**storage == "namespaces" {
        value["status"]["phase"] = "Terminating".into();
    }
    let free = is_free(state, storage, &value);
    // A pod is marked even where it goes at once (an API server of 1.34.10 was watched): its end is two changes to all who watch.
    if value != *object.value() && (!free || &**storage == "pods") {
        state.store.put(storage, value);
    }
    if free {
        return Deleted::Gone(remove(state, storage, key).expect("the object is stored"));
    }
    let last = state.store.get(storage, key).cloned();
    let last = last.expect("the object is stored");
    if &**storage == "namespaces" {
        empty_namespace(state, &key.name);
    }
    if options.dependents == Dependents::Foreground {
        collect(state, &uid);
    }
    match state.store.get(storage, key) {
        Some(object) => Deleted::Terminating(Arc::clone(object)),
        None => Deleted::Gone(last),
    }
}

/// Seconds to go; only a pod that is on a node and may still run gets any.
fn grace(storage: &Storage, value: &Value, options: &DeleteOptions) -> i64 {
    let ended = matches!(text(value, "/status/phase"), "Succeeded" | "Failed");
    if &**storage != "pods" || text(value, "/spec/nodeName").is_empty() || ended {
        return 0;
    }
    let wanted = value["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(30);
    options.grace.unwrap_or(wanted).max(0)
}

fn mark(state: &State, value: &mut Value, grace: i64) {
    let left = value["metadata"]["deletionGracePeriodSeconds"].as_i64();
    // A second deletion can only shorten what is left.
    if left.is_some_and(|left| left <= grace) {
        return;
    }
    let when = state.after(grace);
    let metadata = map_at(value, "metadata");
    metadata.insert("deletionTimestamp".to_owned(), when.into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
}

/// Nothing holds a marked object any more.
fn is_free(state: &State, storage: &Storage, value: &Value) -> bool {
    items(value, "/metadata/finalizers").is_empty()
        && value["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or_default()
            == 0
        && (&**storage != "namespaces" || state.store.storages_in(meta(value, "name")).is_empty())
}

/// Removes a marked object when nothing holds it any more.
pub(crate) fn finish_if_free(
    state: &mut State,
    storage: &Storage,
    key: &Key,
) -> Option<Arc<Object>> {
    let object = Arc::clone(state.store.get(storage, key)?);
    let marked = !meta(object.value(), "deletionTimestamp").is_empty();
    if marked && is_free(state, storage, object.value()) {
        return remove(state, storage, key);
    }
    None
}

fn remove(state: &mut State, storage: &Storage, key: &Key) -> Option<Arc<Object>> {
    let object = state.store.remove(storage, key)?;
    let value = object.value();
    match &**storage {
        "services" => state.addresses.release(value),
        "customresourcedefinitions.apiextensions.k8s.io" => undefine(state, value),
        _ => {}
    }
    collect(state, meta(value, "uid"));
    for owner in items(value, "/metadata/ownerReferences") {
        release_owner(state, text(owner, "/uid"));
    }
    if !key.namespace.is_empty() {
        finish_if_free(state, &"namespaces".into(), &Key::new("", &key.namespace));
    }
    Some(object)
}

fn undefine(state: &mut State, definition: &Value) {
    let (group, plural) = crd::defined(definition);
    state.kinds.drop_custom(group, plural);
    let storage: Storage = meta(definition, "name").into();
    let keys: Vec<Key> = state
        .store
        .list(&storage, None)
        .map(|(key, _)| key.clone())
        .collect();
    for key in keys {
        remove(state, &storage, &key);
    }
}

/// Deletes the dependents of an owner that is gone or waits for them.
fn collect(state: &mut State, uid: &str) {
    for (storage, key) in state.store.dependents(uid) {
        let Some(object) = state.store.get(&storage, &key).cloned() else {
            continue;
        };
        let alive = |owner: &Value| {
            let other = text(owner, "/uid");
            other != uid && state.store.place(other).is_some()
        };
        if !items(object.value(), "/metadata/ownerReferences")
            .iter()
            .any(alive)
        {
            begin(state, &storage, &key, &object, &DeleteOptions::default());
        }
    }
}

/// An object whose owners are all gone goes too.
pub(crate) fn collect_if_orphaned(state: &mut State, storage: &Storage, key: &Key) {
    let Some(object) = state.store.get(storage, key).cloned() else {
        return;
    };
    let owners = items(object.value(), "/metadata/ownerReferences");
    let gone = |owner: &Value| state.store.place(text(owner, "/uid")).is_none();
    if !owners.is_empty() && owners.iter().all(gone) {
        begin(state, storage, key, &object, &DeleteOptions::default());
    }
}

fn orphan(state: &mut State, uid: &str) {
    for (storage, key) in state.store.dependents(uid) {
        let Some(object) = state.store.get(&storage, &key).cloned() else {
            continue;
        };
        let mut value = object.value().clone();
        if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| text(owner, "/uid") != uid);
            if owners.is_empty() {
                map_at(&mut value, "metadata").remove("ownerReferences");
            }
        }
        state.store.put(&storage, value);
    }
}

/// Lets an owner go that waited for its last dependent.
fn release_owner(state: &mut State, uid: &str) {
    if !state.store.dependents(uid).is_empty() {
        return;
    }
    let Some((storage, key)) = state.store.place(uid).cloned() else {
        return;
    };
    let Some(object) = state.store.get(&storage, &key).cloned() else {
        return;
    };
    let mut value = object.value().clone();
    let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() else {
        return;
    };
    let before = finalizers.len();
    finalizers.retain(|f| f != FOREGROUND);
    if finalizers.len() == before {
        return;
    }
    if finalizers.is_empty() {
        map_at(&mut value, "metadata").remove("finalizers");
    }
    as_map(&mut value);
    state.store.put(&storage, value);
    finish_if_free(state, &storage, &key);
}

fn empty_namespace(state: &mut State, namespace: &str) {
    for storage in state.store.storages_in(namespace) {
        let keys: Vec<Key> = state
            .store
            .list(&storage, Some(namespace))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            if let Some(object) = state.store.get(&storage, &key).cloned() {
                begin(state, &storage, &key, &object, &DeleteOptions::default());
            }
        }
    }
    finish_if_free(state, &"namespaces".into(), &Key::new("", namespace));
}
