//! Creating objects.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admission,
    convert::to_storage,
    crd, delete,
    error::ApiError,
    kinds::Kind,
    object::{Key, Object, as_map, items, map_at, meta, text},
    state::State,
};

/// Stores a new object.
pub(crate) fn create(
    state: &mut State,
    kind: &Kind,
    namespace: Option<&str>,
    body: Value,
) -> Result<Arc<Object>, ApiError> {
    check_type(kind, &body)?;
    let mut value = to_storage(kind, body);
    place(kind, namespace, &mut value)?;
    if meta(&value, "name").is_empty() && !meta(&value, "generateName").is_empty() {
        let name = format!("{}{}", meta(&value, "generateName"), state.new_suffix());
        value["metadata"]["name"] = name.into();
    }
    let key = Key::of(&value);
    check_namespace(state, kind, &key)?;
    admission::defaults(kind, &mut value);
    admission::check(kind, &value)?;
    if state.store.get(&kind.storage, &key).is_some() {
        return Err(ApiError::AlreadyExists {
            resource: kind.resource(),
            name: key.name,
        });
    }
    admission::first_status(kind, &mut value);
    match &*kind.storage {
        "services" => state.addresses.settle(&mut value, None)?,
        "customresourcedefinitions.apiextensions.k8s.io" => crd::establish(state, &mut value)?,
        _ => {}
    }
    stamp(state, kind, &mut value);
    let object = state.store.put(&kind.storage, value);
    delete::collect_if_orphaned(state, &kind.storage, &key);
    if &*kind.storage == "namespaces" {
        // Its controller makes it at once.
        let accounts = ("", "v1", "serviceaccounts");
        let namespace = Some(&*key.name);
        add(state, accounts, namespace, admission::ACCOUNT, json!({}))?;
    }
    Ok(object)
}

/// The same, of a kind and with a name that the server knows by itself.
pub(crate) fn add(
    state: &mut State,
    (group, version, plural): (&str, &str, &str),
    namespace: Option<&str>,
    name: &str,
    mut object: Value,
) -> Result<(), ApiError> {
    let kind = state.kinds.find(group, version, plural).cloned();
    let kind = kind.ok_or(ApiError::NoSuchResource)?;
    object["metadata"]["name"] = name.into();
    create(state, &kind, namespace, object).map(drop)
}

/// A body must be of the kind its path says; one that does not say its kind is taken as that.
pub(crate) fn check_type(kind: &Kind, body: &Value) -> Result<(), ApiError> {
    if !body.is_object() {
        return Err(ApiError::BadRequest(
            "the request body is not an object".to_owned(),
        ));
    }
    for field in ["metadata", "spec", "status"] {
        if body
            .get(field)
            .is_some_and(|part| !part.is_null() && !part.is_object())
        {
            let why = format!("{} in the body: {field} is not an object", kind.kind);
            return Err(ApiError::BadRequest(why));
        }
    }
    let (said, version) = (text(body, "/kind"), text(body, "/apiVersion"));
    if (!said.is_empty() && said != kind.kind)
        || (!version.is_empty() && version != kind.group_version())
    {
        return Err(ApiError::BadRequest(format!(
            "{version}, Kind={said} in the body does not match the expected {}, Kind={}",
            kind.group_version(),
            kind.kind
        )));
    }
    Ok(())
}

/// Puts the path's namespace into the object, which must not name another.
fn place(kind: &Kind, namespace: Option<&str>, value: &mut Value) -> Result<(), ApiError> {
    let said = meta(value, "namespace").to_owned();
    let metadata = map_at(value, "metadata");
    if !kind.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    let namespace = namespace.ok_or(ApiError::MethodNotAllowed)?;
    if !said.is_empty() && said != namespace {
        return Err(ApiError::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
                .to_owned(),
        ));
    }
    metadata.insert("namespace".to_owned(), namespace.into());
    Ok(())
}

fn check_namespace(state: &State, kind: &Kind, key: &Key) -> Result<(), ApiError> {
    if !kind.namespaced {
        return Ok(());
    }
    let namespace = state
        .store
        .get(&"namespaces".into(), &Key::new("", &key.namespace));
    match namespace {
        None => Err(ApiError::NotFound {
            resource: "namespaces".to_owned(),
            name: key.namespace.clone(),
        }),
        Some(namespace) if !meta(namespace.value(), "deletionTimestamp").is_empty() => {
            Err(ApiError::Forbidden {
                resource: kind.resource(),
                name: key.name.clone(),
                why: format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    key.namespace
                ),
            })
        }
        Some(_) => Ok(()),
    }
}

fn stamp(state: &mut State, kind: &Kind, value: &mut Value) {
    let (uid, now) = (state.new_uid(), state.now());
    let metadata = map_at(value, "metadata");
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
    if kind.generation {
        metadata.insert("generation".to_owned(), 1.into());
    }
    drop_nulls(metadata.entry("labels").or_insert(Value::Null));
    if items(value, "/metadata/ownerReferences").is_empty() {
        map_at(value, "metadata").remove("ownerReferences");
    }
    let metadata = map_at(value, "metadata");
    metadata.retain(|_, v| !v.is_null() && v.as_object().is_none_or(|map| !map.is_empty()));
}

fn drop_nulls(labels: &mut Value) {
    as_map(labels).retain(|_, v| !v.is_null());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerConfig;

    /// What a pod with that spec is in a new namespace, and whether that has the account it asks for.
    fn pod(spec: &Value) -> (String, bool) {
        let config = ServerConfig::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        let mut state = State::new(&config);
        let mut made = |plural: &str, namespace: Option<&str>, object: Value| {
            let kind = state.kinds.find("", "v1", plural).cloned().unwrap();
            create(&mut state, &kind, namespace, object).unwrap()
        };
        made(
            "namespaces",
            None,
            json!({ "metadata": { "name": "test" } }),
        );
        let object = json!({ "metadata": { "name": "web" }, "spec": spec });
        let pod = made("pods", Some("test"), object);
        let account = text(pod.value(), "/spec/serviceAccountName").to_owned();
        let key = Key::new("test", &account);
        let accounts = state.kinds.find("", "v1", "serviceaccounts").cloned();
        let is_there = state.store.get(&accounts.unwrap().storage, &key).is_some();
        (account, is_there)
    }

    #[test]
    fn a_pod_that_asks_for_no_account_has_the_one_that_its_namespace_was_given() {
        let spec = json!({ "containers": [{ "name": "web", "image": "nginx" }] });
        assert_eq!(pod(&spec), ("default".to_owned(), true));
        for field in ["serviceAccountName", "serviceAccount"] {
            let mut spec = spec.clone();
            spec[field] = "builder".into();
            assert_eq!(pod(&spec), ("builder".to_owned(), false), "{field}");
        }
    }
}
