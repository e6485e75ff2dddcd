//! What the watches and the answers to our own writes have shown of the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    future::ready,
    mem,
};

use futures::{
    StreamExt,
    stream::{BoxStream, Peekable, SelectAll},
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet},
    core::v1::{Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// Namespace and name.
pub(super) type Key = (String, String);

/// The key of an object.
pub(super) fn key<K: Resource>(object: &K) -> Key {
    let metadata = object.meta();
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}

/// The objects of one kind. Knows each in its newest version, whatever order they are told in.
#[derive(Debug)]
pub(super) struct Cache<K> {
    objects: BTreeMap<Key, K>,
    relisted: BTreeSet<Key>,
    complete: bool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            relisted: BTreeSet::new(),
            complete: false,
        }
    }
}

impl<K: Resource> Cache<K> {
    /// All objects, by namespace and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &K> + Clone {
        self.objects.values()
    }

    /// The object with that key.
    pub(super) fn get(&self, key: &Key) -> Option<&K> {
        self.objects.get(key)
    }

    /// Whether there is an object with that key.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    /// Notes an object, unless a newer version of it is known: the answer to a write of ours and the
    /// watch overtake each other.
    pub(super) fn put(&mut self, object: K) {
        let key = key(&object);
        let known = self.objects.get(&key);
        if known.is_none_or(|known| version(known) <= version(&object)) {
            self.objects.insert(key, object);
        }
    }

    /// Notes the end of an object, unless its name has been given to a newer one.
    pub(super) fn remove(&mut self, object: &K) {
        let key = key(object);
        let known = self.objects.get(&key);
        if known.is_some_and(|known| version(known) <= version(object)) {
            self.objects.remove(&key);
        }
    }

    fn take(&mut self, event: Event<K>) {
        match event {
            Event::Init => self.relisted.clear(),
            Event::InitApply(object) => {
                self.relisted.insert(key(&object));
                self.put(object);
            }
            Event::InitDone => {
                let there = mem::take(&mut self.relisted);
                self.objects.retain(|key, _| there.contains(key));
                self.complete = true;
            }
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => self.remove(&object),
        }
    }
}

fn version<K: Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Everything the controllers look at.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) nodes: Cache<Node>,
    pub(super) pods: Cache<Pod>,
    pub(super) services: Cache<Service>,
    pub(super) deployments: Cache<Deployment>,
    pub(super) replica_sets: Cache<ReplicaSet>,
    pub(super) daemon_sets: Cache<DaemonSet>,
    pub(super) slices: Cache<EndpointSlice>,
    /// The uids of what has been marked as terminating since the controllers last [answered](Self::answered).
    marked: BTreeSet<String>,
}

impl Seen {
    /// Every kind has been listed once. Before that nothing can be said to be missing.
    pub(super) fn complete(&self) -> bool {
        self.nodes.complete
            && self.pods.complete
            && self.services.complete
            && self.deployments.complete
            && self.replica_sets.complete
            && self.daemon_sets.complete
            && self.slices.complete
    }

    /// The controllers have done what they want to do about all this.
    pub(super) fn answered(&mut self) {
        self.marked.clear();
    }
}

/// Something that has become known.
pub(super) struct Change {
    tell: Box<dyn FnOnce(&mut Seen) + Send>,
    /// The uid of what has ended.
    ended: Option<String>,
}

impl Change {
    /// A change that ends nothing.
    pub(super) fn new(tell: impl FnOnce(&mut Seen) + Send + 'static) -> Self {
        Self {
            tell: Box::new(tell),
            ended: None,
        }
    }

    fn watched<K>(event: Event<K>, cache: fn(&mut Seen) -> &mut Cache<K>) -> Self
    where
        K: Resource + Send + 'static,
    {
        let (marked, ended) = match &event {
            Event::Apply(object) if object.meta().deletion_timestamp.is_some() => {
                (object.uid(), None)
            }
            Event::Delete(object) => (None, object.uid()),
            _ => (None, None),
        };
        let tell = move |seen: &mut Seen| {
            seen.marked.extend(marked);
            cache(seen).take(event);
        };
        Self {
            ended,
            ..Self::new(tell)
        }
    }

    /// Takes it in.
    pub(super) fn tell(self, seen: &mut Seen) {
        (self.tell)(seen);
    }

    /// It is the end of something whose marking the controllers have not answered yet. Between the two lies a write of etcd, so that
    /// real ones answer both: the EndpointSlice of a pod without a grace period says `terminating` (1.34.10 was watched).
    pub(super) fn ends_too_early(&self, seen: &Seen) -> bool {
        let ended = self.ended.as_ref();
        ended.is_some_and(|ended| seen.marked.contains(ended))
    }
}

/// What becomes known, forever.
pub(super) type Changes = Peekable<SelectAll<BoxStream<'static, Change>>>;

/// Watches all kinds.
pub(super) fn follow(client: &Client) -> Changes {
    futures::stream::select_all([
        one(client, |seen| &mut seen.nodes),
        one(client, |seen| &mut seen.pods),
        one(client, |seen| &mut seen.services),
        one(client, |seen| &mut seen.deployments),
        one(client, |seen| &mut seen.replica_sets),
        one(client, |seen| &mut seen.daemon_sets),
        one(client, |seen| &mut seen.slices),
    ])
    .peekable()
}

fn one<K>(client: &Client, cache: fn(&mut Seen) -> &mut Cache<K>) -> BoxStream<'static, Change>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(Api::<K>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            // The watcher comes back by itself after a pause.
            let event = event
                .inspect_err(|error| tracing::debug!(%error, "a controller's watch broke"))
                .ok();
            ready(event.map(|event| Change::watched(event, cache)))
        })
        .boxed()
}

/// The uid, which every object that was read from the API has.
pub(super) fn uid<K: Resource>(object: &K) -> String {
    object.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, version: u64) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.resource_version = Some(version.to_string());
        pod
    }

    #[test]
    fn the_newest_version_stays_in_whatever_order_it_is_told() {
        let mut cache = Cache::default();
        cache.put(pod("a", 10));
        cache.take(Event::Apply(pod("a", 9)));
        assert_eq!(cache.iter().map(version).collect::<Vec<_>>(), [10]);
        cache.take(Event::Delete(pod("a", 8)));
        assert!(
            cache.has(&key(&pod("a", 0))),
            "an older one of that name went"
        );
        cache.take(Event::Delete(pod("a", 11)));
        assert!(!cache.has(&key(&pod("a", 0))));
    }

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut cache = Cache::default();
        cache.take(Event::Init);
        cache.take(Event::InitApply(pod("a", 1)));
        cache.take(Event::InitApply(pod("b", 2)));
        assert!(!cache.complete);
        cache.take(Event::InitDone);
        assert!(cache.complete);
        cache.take(Event::Init);
        cache.take(Event::InitApply(pod("b", 2)));
        cache.take(Event::InitDone);
        let names: Vec<_> = cache.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["b"]);
    }
}
