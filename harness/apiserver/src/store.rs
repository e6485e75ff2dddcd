//! Objects by resource, under one revision counter, with the history that watches are fed from.
//!
//! Each resource keeps its last `window` changes. Any state within the window can be told exactly
//! (`at`); anything older is expired. A change is announced after it is in the history, so a reader
//! woken by the announcement finds it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde_json::Value;
use tokio::sync::watch;

use crate::{
    error::ApiError,
    object::{Key, Object, as_map, items, map_at, meta, text},
};

/// Names a resource's storage, `services` or `deployments.apps`; shared by all served versions.
pub(crate) type Storage = Arc<str>;

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// The object before; none when it was created.
    pub(crate) before: Option<Arc<Object>>,
    /// The object after; the last state with the deletion's revision when it was removed.
    pub(crate) object: Arc<Object>,
    pub(crate) removed: bool,
}

#[derive(Debug)]
struct Collection {
    objects: BTreeMap<Key, Arc<Object>>,
    history: VecDeque<Change>,
    /// The newest revision that is no longer in the history.
    compacted: u64,
    tip: watch::Sender<u64>,
}

impl Default for Collection {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            compacted: 0,
            tip: watch::Sender::new(0),
        }
    }
}

/// As it is, and watched by nobody.
impl Clone for Collection {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            history: self.history.clone(),
            compacted: self.compacted,
            tip: watch::Sender::new(*self.tip.borrow()),
        }
    }
}

/// All objects of a server.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    revision: u64,
    /// What is written here is only tried: an object keeps its resource version, a new one has none.
    is_trial: bool,
    window: usize,
    collections: BTreeMap<Storage, Collection>,
    places: BTreeMap<String, (Storage, Key)>,
    dependents: BTreeMap<String, BTreeSet<(Storage, Key)>>,
}

impl Store {
    /// A store whose resources each remember `window` changes.
    pub(crate) fn new(window: usize) -> Self {
        Self {
            // Revision 0 means "any" to clients, so the first state is 1.
            revision: 1,
            is_trial: false,
            window: window.max(1),
            collections: BTreeMap::new(),
            places: BTreeMap::new(),
            dependents: BTreeMap::new(),
        }
    }

    /// A copy to try writes in.
    pub(crate) fn trial(&self) -> Self {
        Self {
            is_trial: true,
            ..self.clone()
        }
    }

    /// The revision of the newest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, storage: &Storage, key: &Key) -> Option<&Arc<Object>> {
        self.collections.get(storage)?.objects.get(key)
    }

    /// A resource's objects in order, of one namespace or of all.
    pub(crate) fn list<'a>(
        &'a self,
        storage: &Storage,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> + use<'a> {
        let from = Key::new(namespace.unwrap_or_default(), "");
        self.collections
            .get(storage)
            .into_iter()
            .flat_map(move |collection| collection.objects.range(from.clone()..))
            .take_while(move |(key, _)| namespace.is_none_or(|ns| key.namespace == ns))
    }

    /// Where the object with this uid is.
    pub(crate) fn place(&self, uid: &str) -> Option<&(Storage, Key)> {
        self.places.get(uid)
    }

    /// The objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Storage, Key)> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The storages that hold anything in a namespace.
    pub(crate) fn storages_in(&self, namespace: &str) -> Vec<Storage> {
        let holds = |s: &&Storage| self.list(s, Some(namespace)).next().is_some();
        self.collections.keys().filter(holds).cloned().collect()
    }

    /// Stores an object under its own name with the next revision.
    pub(crate) fn put(&mut self, storage: &Storage, mut value: Value) -> Arc<Object> {
        self.revision += 1;
        let key = Key::of(&value);
        let collection = self.collections.entry(Arc::clone(storage)).or_default();
        let revision = match collection.objects.get(&key) {
            _ if !self.is_trial => self.revision.to_string().into(),
            Some(old) => old.value()["metadata"]["resourceVersion"].clone(),
            None => Value::Null,
        };
        let metadata = map_at(&mut value, "metadata");
        metadata.insert("resourceVersion".to_owned(), revision);
        metadata.retain(|_, value| !value.is_null());
        let object = Arc::new(Object::new(value));
        let before = collection.objects.insert(key.clone(), Arc::clone(&object));
        if let Some(before) = &before {
            self.forget(storage, &key, before.value());
        }
        self.remember(storage, &key, object.value());
        self.record(storage, before, Arc::clone(&object), false);
        object
    }

    /// Removes an object; the last state, with the revision of the removal.
    pub(crate) fn remove(&mut self, storage: &Storage, key: &Key) -> Option<Arc<Object>> {
        let before = self.collections.get_mut(storage)?.objects.remove(key)?;
        self.forget(storage, key, before.value());
        self.revision += 1;
        let mut value = before.value().clone();
        map_at(&mut value, "metadata").insert(
            "resourceVersion".to_owned(),
            self.revision.to_string().into(),
        );
        let object = Arc::new(Object::new(value));
        self.record(storage, Some(before), Arc::clone(&object), true);
        Some(object)
    }

    fn record(
        &mut self,
        storage: &Storage,
        before: Option<Arc<Object>>,
        object: Arc<Object>,
        removed: bool,
    ) {
        let revision = self.revision;
        let collection = self.collections.entry(Arc::clone(storage)).or_default();
        collection.history.push_back(Change {
            revision,
            before,
            object,
            removed,
        });
        while collection.history.len() > self.window {
            if let Some(oldest) = collection.history.pop_front() {
                collection.compacted = oldest.revision;
            }
        }
        collection.tip.send_replace(revision);
    }

    fn remember(&mut self, storage: &Storage, key: &Key, value: &Value) {
        let place = (Arc::clone(storage), key.clone());
        for owner in items(value, "/metadata/ownerReferences") {
            self.dependents
                .entry(text(owner, "/uid").to_owned())
                .or_default()
                .insert(place.clone());
        }
        self.places.insert(meta(value, "uid").to_owned(), place);
    }

    fn forget(&mut self, storage: &Storage, key: &Key, value: &Value) {
        let place = (Arc::clone(storage), key.clone());
        for owner in items(value, "/metadata/ownerReferences") {
            let uid = text(owner, "/uid");
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(&place);
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        self.places.remove(meta(value, "uid"));
    }

    /// Tells of each new change of a resource.
    pub(crate) fn subscribe(&mut self, storage: &Storage) -> watch::Receiver<u64> {
        self.collections
            .entry(Arc::clone(storage))
            .or_default()
            .tip
            .subscribe()
    }

    /// The changes after a revision, or that they are no longer known.
    pub(crate) fn changes_after(
        &self,
        storage: &Storage,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Change>, ApiError> {
        let collection = self.collections.get(storage);
        let oldest = collection.map_or(0, |collection| collection.compacted);
        if revision < oldest {
            return Err(ApiError::Expired {
                asked: revision,
                oldest,
            });
        }
        let history = collection.into_iter().flat_map(move |collection| {
            collection.history.range(
                collection
                    .history
                    .partition_point(|c| c.revision <= revision)..,
            )
        });
        Ok(history)
    }

    /// A resource exactly as it was at a revision: the present with the changes since undone.
    pub(crate) fn at(
        &self,
        storage: &Storage,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<BTreeMap<Key, Arc<Object>>, ApiError> {
        if revision > self.revision {
            let current = self.revision;
            return Err(ApiError::TooLargeResourceVersion {
                asked: revision,
                current,
            });
        }
        let mut objects: BTreeMap<Key, Arc<Object>> = self
            .list(storage, namespace)
            .map(|(k, o)| (k.clone(), Arc::clone(o)))
            .collect();
        for change in self.changes_after(storage, revision)?.rev() {
            let key = Key::of(change.object.value());
            if namespace.is_some_and(|ns| ns != key.namespace) {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(key, Arc::clone(before)),
                None => objects.remove(&key),
            };
        }
        Ok(objects)
    }
}

/// The revision an object was last written at.
pub(crate) fn revision_of(value: &Value) -> u64 {
    meta(value, "resourceVersion").parse().unwrap_or_default()
}

/// Removes what only the server writes, so that two states can be compared.
pub(crate) fn without_bookkeeping(value: &Value) -> Value {
    let mut value = value.clone();
    let metadata = as_map(&mut value).entry("metadata").or_insert(Value::Null);
    for field in ["resourceVersion", "generation"] {
        as_map(metadata).remove(field);
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(name: &str, n: u32) -> Value {
        json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "n": n})
    }

    fn told(objects: &BTreeMap<Key, Arc<Object>>) -> Vec<(String, Value)> {
        objects
            .iter()
            .map(|(k, o)| (k.name.clone(), o.value()["n"].clone()))
            .collect()
    }

    #[test]
    fn any_state_within_the_window_can_be_told_and_older_ones_are_expired() {
        let pods: Storage = "pods".into();
        let mut store = Store::new(4);
        let mut states = vec![(store.revision(), vec![])];
        for step in 0..20_u32 {
            let name = ["x", "y", "z"][step as usize % 3];
            if step % 7 == 6 {
                store.remove(&pods, &Key::new("a", name));
            } else {
                store.put(&pods, named(name, step));
            }
            states.push((
                store.revision(),
                told(&store.at(&pods, None, store.revision()).unwrap()),
            ));
        }
        // Twenty changes, a window of four: the last five states are known, no other is.
        for (age, (revision, state)) in states.iter().rev().enumerate() {
            match store.at(&pods, None, *revision) {
                Ok(objects) if age <= 4 => assert_eq!(&told(&objects), state),
                Err(ApiError::Expired { asked, .. }) if age > 4 => assert_eq!(asked, *revision),
                other => panic!("state {age} steps ago: {other:?}"),
            }
        }
    }

    #[test]
    fn owners_find_their_dependents_until_those_are_gone() {
        let pods: Storage = "pods".into();
        let mut store = Store::new(4);
        let mut pod = named("x", 0);
        pod["metadata"]["ownerReferences"] = json!([{"uid": "owner"}]);
        store.put(&pods, pod);
        assert_eq!(store.dependents("owner").len(), 1);
        store.put(&pods, named("x", 1));
        assert_eq!(store.dependents("owner").len(), 0);
    }
}
