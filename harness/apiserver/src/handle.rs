//! From a request for objects to its answer.

mod dry_run;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{
    convert::from_storage,
    create::{check_type, create},
    delete::{self, DeleteOptions, Deleted, Dependents},
    error::ApiError,
    kinds::Kind,
    object::{Key, Object, encode, meta, text},
    options,
    patch::{PatchKind, apply::Apply, patched},
    path::Address,
    protobuf,
    query::{Continue, Query},
    respond::{Representation, View},
    review,
    selector::Selector,
    state::State,
    store::revision_of,
    subresource,
    update::{Part, update},
    watch::WatchOptions,
};

/// One request for objects.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) address: Address,
    pub(crate) query: Query,
    pub(crate) accept: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) body: Bytes,
}

/// What is sent back.
#[derive(Debug)]
pub(crate) enum Answer {
    Body(u16, Bytes),
    Watch(Box<WatchOptions>),
}

type Handled = Result<Answer, ApiError>;

/// Does what a request asks for; what is only to be tried is done in a copy of the state.
pub(crate) fn handle(state: &mut State, call: &Call) -> Handled {
    if dry_run::asked(call)? {
        return serve(&mut state.trial(), call);
    }
    serve(state, call)
}

fn serve(state: &mut State, call: &Call) -> Handled {
    let address = &call.address;
    let named = address.name.is_some();
    match (call.method, address.subresource.as_deref()) {
        ("POST", None) if address.kind.review && !named => {
            review::answer(&address.kind, call.json()?).map(|it| Answer::Body(201, encode(&it)))
        }
        _ if address.kind.review => Err(ApiError::MethodNotAllowed),
        (_, Some("scale")) => scale(state, call),
        ("POST", Some("binding")) => {
            subresource::bind(state, &address.kind, &call.key(), &call.json()?)?;
            Ok(Answer::Body(201, encode(&success(None))))
        }
        ("POST", Some("eviction")) => {
            let deleted = subresource::evict(state, &address.kind, &call.key(), &call.json()?)?;
            Ok(Answer::Body(
                201,
                encode(&success(Some((&address.kind, deleted.object())))),
            ))
        }
        ("GET" | "PUT" | "PATCH", Some("status") | None) if named => one(state, call),
        ("GET", None) if call.query.flag("watch") => watch(state, call),
        ("GET", None) => list(state, call),
        ("POST", None) if !named => {
            let body = call.json()?;
            let object = create(state, &address.kind, address.namespace.as_deref(), body)?;
            Ok(Answer::Body(
                201,
                call.representation(state).object(&object),
            ))
        }
        ("DELETE", None) if named => delete_one(state, call),
        ("DELETE", None) => delete_many(state, call),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

impl Call<'_> {
    fn key(&self) -> Key {
        let address = &self.address;
        Key::new(
            address.namespace.as_deref().unwrap_or_default(),
            address.name.as_deref().unwrap_or_default(),
        )
    }

    fn part(&self) -> Part {
        if self.address.subresource.is_some() {
            Part::Status
        } else {
            Part::Main
        }
    }

    fn representation(&self, state: &State) -> Representation {
        Representation {
            kind: Arc::clone(&self.address.kind),
            view: View::of(self.accept),
            now: state.clock(),
        }
    }

    fn selector(&self) -> Result<Selector, ApiError> {
        let (labels, fields) = (
            self.query.text("labelSelector"),
            self.query.text("fieldSelector"),
        );
        Selector::parse(&self.address.kind, labels, fields)
    }

    fn json(&self) -> Result<Value, ApiError> {
        if protobuf::is(&self.body) {
            return protobuf::decode(&self.body);
        }
        if self.content_type.contains("protobuf") {
            return Err(protobuf::unsupported());
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            ApiError::BadRequest(format!("couldn't decode the body as JSON: {error}"))
        })
    }
}

impl Deleted {
    fn object(&self) -> &Object {
        match self {
            Self::Gone(object) | Self::Terminating(object) => object,
        }
    }
}

fn one(state: &mut State, call: &Call) -> Handled {
    let (kind, key) = (&call.address.kind, call.key());
    let object = match call.method {
        "GET" => state.existing(kind, &key)?,
        "PUT" => update(state, kind, &key, call.part(), call.json()?)?,
        _ => return patch(state, call),
    };
    Ok(Answer::Body(
        200,
        call.representation(state).object(&object),
    ))
}

fn patch(state: &mut State, call: &Call) -> Handled {
    let (kind, key) = (&call.address.kind, call.key());
    let how = PatchKind::of(call.content_type, kind)?;
    let body = call.json()?;
    if how == PatchKind::Apply {
        return apply(state, call, body);
    }
    let old = state.existing(kind, &key)?;
    let shown = from_storage(kind, old.value());
    let value = patched(how, shown.as_ref().unwrap_or_else(|| old.value()), &body)?;
    let object = update(state, kind, &key, call.part(), value)?;
    Ok(Answer::Body(
        200,
        call.representation(state).object(&object),
    ))
}

fn apply(state: &mut State, call: &Call, mut applied: Value) -> Handled {
    let (kind, key) = (&call.address.kind, call.key());
    if text(&applied, "/kind").is_empty() {
        return Err(ApiError::BadRequest("apply: kind is required".to_owned()));
    }
    check_type(kind, &applied)?;
    applied["metadata"]["name"] = key.name.clone().into();
    if kind.namespaced {
        applied["metadata"]["namespace"] = key.namespace.clone().into();
    }
    let now = state.now();
    let apply = Apply {
        manager: call.query.text("fieldManager"),
        force: call.query.flag("force"),
        custom: kind.custom,
        now: &now,
    };
    let Some(old) = state.store.get(&kind.storage, &key).cloned() else {
        if !meta(&applied, "uid").is_empty() || !meta(&applied, "resourceVersion").is_empty() {
            state.existing(kind, &key)?;
        }
        let value = apply.to(&json!({}), &applied)?;
        let object = create(state, kind, call.address.namespace.as_deref(), value)?;
        return Ok(Answer::Body(
            201,
            call.representation(state).object(&object),
        ));
    };
    let shown = from_storage(kind, old.value());
    let value = apply.to(shown.as_ref().unwrap_or_else(|| old.value()), &applied)?;
    let object = update(state, kind, &key, call.part(), value)?;
    Ok(Answer::Body(
        200,
        call.representation(state).object(&object),
    ))
}

fn scale(state: &mut State, call: &Call) -> Handled {
    let (kind, key) = (&call.address.kind, call.key());
    let object = state.existing(kind, &key)?;
    let scale = match call.method {
        "GET" => {
            return Ok(Answer::Body(
                200,
                encode(&subresource::scale_of(object.value())),
            ));
        }
        "PUT" => call.json()?,
        "PATCH" => {
            let how = PatchKind::of(call.content_type, kind)?;
            patched(how, &subresource::scale_of(object.value()), &call.json()?)?
        }
        _ => return Err(ApiError::MethodNotAllowed),
    };
    let object = subresource::set_scale(state, kind, &key, &scale)?;
    Ok(Answer::Body(
        200,
        encode(&subresource::scale_of(object.value())),
    ))
}

fn watch(state: &State, call: &Call) -> Handled {
    options::check(&call.query)?;
    let mut selector = call.query.text("fieldSelector").to_owned();
    if let Some(name) = &call.address.name {
        selector = format!("metadata.name={name}");
    }
    let kind = &call.address.kind;
    Ok(Answer::Watch(Box::new(WatchOptions {
        representation: call.representation(state),
        namespace: call.address.namespace.clone(),
        selector: Selector::parse(kind, call.query.text("labelSelector"), &selector)?,
        begin: options::begin(&call.query, state.store.revision())?,
        timeout: call.query.timeout()?,
        bookmarks: call.query.flag("allowWatchBookmarks"),
    })))
}

fn list(state: &State, call: &Call) -> Handled {
    let (kind, query) = (&call.address.kind, &call.query);
    options::check(query)?;
    let selector = call.selector()?;
    let asked = query.number("resourceVersion")?.unwrap_or_default();
    let current = state.store.revision();
    if asked > current {
        return Err(ApiError::TooLargeResourceVersion { asked, current });
    }
    let from = match query.text("continue") {
        "" => None,
        token => Some(Continue::parse(token)?),
    };
    let exact = query.text("resourceVersionMatch") == "Exact";
    let revision = from
        .as_ref()
        .map_or(if exact { asked } else { current }, |f| f.revision);
    let snapshot = state
        .store
        .at(&kind.storage, call.address.namespace.as_deref(), revision)?;
    let after = |key: &Key| from.as_ref().is_none_or(|from| *key > from.after);
    let mut selected: Vec<(Key, Arc<Object>)> = snapshot
        .into_iter()
        .filter(|(key, object)| after(key) && selector.matches(object.value()))
        .collect();
    let mut metadata =
        Map::from_iter([("resourceVersion".to_owned(), revision.to_string().into())]);
    let limit = query.number("limit")?.filter(|limit| *limit > 0);
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    if selected.len() > limit {
        let left = selected.len() - limit;
        selected.truncate(limit);
        if let Some((key, _)) = selected.last() {
            let token = Continue {
                revision,
                after: key.clone(),
            }
            .token();
            metadata.insert("continue".to_owned(), token.into());
            metadata.insert("remainingItemCount".to_owned(), left.into());
        }
    }
    let objects: Vec<Arc<Object>> = selected.into_iter().map(|(_, object)| object).collect();
    Ok(Answer::Body(
        200,
        call.representation(state).list(&objects, &metadata),
    ))
}

fn delete_one(state: &mut State, call: &Call) -> Handled {
    let kind = &call.address.kind;
    let deleted = delete::delete(state, kind, &call.key(), &delete_options(call)?)?;
    match deleted {
        Deleted::Gone(object) if &*kind.storage != "pods" => {
            Ok(Answer::Body(200, encode(&success(Some((kind, &object))))))
        }
        Deleted::Gone(object) | Deleted::Terminating(object) => Ok(Answer::Body(
            200,
            call.representation(state).object(&object),
        )),
    }
}

fn delete_many(state: &mut State, call: &Call) -> Handled {
    let (kind, options, selector) = (&call.address.kind, delete_options(call)?, call.selector()?);
    let namespace = call.address.namespace.as_deref();
    if kind.namespaced && namespace.is_none() {
        return Err(ApiError::MethodNotAllowed);
    }
    let keys: Vec<Key> = state
        .store
        .list(&kind.storage, namespace)
        .filter(|(_, object)| selector.matches(object.value()))
        .map(|(key, _)| key.clone())
        .collect();
    let mut objects = Vec::new();
    for key in keys {
        // One that went with another of them is no failure.
        if let Ok(Deleted::Gone(object) | Deleted::Terminating(object)) =
            delete::delete(state, kind, &key, &options)
        {
            objects.push(object);
        }
    }
    let revision = objects
        .last()
        .map_or(state.store.revision(), |o| revision_of(o.value()));
    let metadata = Map::from_iter([("resourceVersion".to_owned(), revision.to_string().into())]);
    Ok(Answer::Body(
        200,
        call.representation(state).list(&objects, &metadata),
    ))
}

fn delete_options(call: &Call) -> Result<DeleteOptions, ApiError> {
    let body = if call.body.is_empty() {
        Value::Null
    } else {
        call.json()?
    };
    let policy = match text(&body, "/propagationPolicy") {
        "" => call.query.text("propagationPolicy"),
        policy => policy,
    };
    let dependents = match policy {
        "" | "Background" if body["orphanDependents"] == true => Dependents::Orphan,
        "" | "Background" => Dependents::Background,
        "Foreground" => Dependents::Foreground,
        "Orphan" => Dependents::Orphan,
        other => {
            return Err(ApiError::BadRequest(format!(
                "invalid propagationPolicy: {other:?}"
            )));
        }
    };
    let asked = call
        .query
        .number("gracePeriodSeconds")?
        .and_then(|s| i64::try_from(s).ok());
    let precondition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
    Ok(DeleteOptions {
        grace: body["gracePeriodSeconds"].as_i64().or(asked),
        dependents,
        uid: precondition("uid"),
        revision: precondition("resourceVersion"),
    })
}

/// The Status of something done, with what it was done to.
fn success(done_to: Option<(&Kind, &Object)>) -> Value {
    let details = done_to.map(|(kind, object)| {
        json!({"name": meta(object.value(), "name"), "group": kind.group, "kind": kind.plural,
               "uid": meta(object.value(), "uid")})
    });
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
           "details": details})
}

#[cfg(test)]
mod tests;
