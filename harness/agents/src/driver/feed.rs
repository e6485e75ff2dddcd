//! A watch as a stream of changes, the way an informer's handlers see it: what a relist no longer
//! contains is reported as gone.

use std::{collections::BTreeSet, fmt::Debug, mem};

use futures::{StreamExt, stream::LocalBoxStream};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;

/// One change of a watched kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<K> {
    /// The object is there, new or changed.
    Present(K),
    /// The object of this namespace and name is gone.
    Gone(String, String),
    /// Everything that was there at the beginning has been reported. Comes once.
    Listed,
}

/// Watches a kind until dropped; broken connections and expired versions lead to a new list.
pub fn feed<K>(api: Api<K>, config: watcher::Config) -> LocalBoxStream<'static, Change<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut known = Known::default();
    watcher(api, config)
        .default_backoff()
        .flat_map(move |event| {
            let changes = match event {
                Ok(event) => known.take(event),
                // The watcher recovers by itself, as client-go's reflector does.
                Err(error) => {
                    tracing::debug!(%error, "watch failed, trying again");
                    Vec::new()
                }
            };
            futures::stream::iter(changes)
        })
        .boxed_local()
}

type Key = (String, String);

/// What a watch has told of so far.
#[derive(Default)]
pub(super) struct Known {
    keys: BTreeSet<Key>,
    relisted: BTreeSet<Key>,
    listed: bool,
}

impl Known {
    pub(super) fn take<K: Resource>(&mut self, event: watcher::Event<K>) -> Vec<Change<K>> {
        match event {
            watcher::Event::Init => {
                self.relisted.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                // Told, so it has to be taken back, also when this list breaks off.
                self.keys.insert(key(&object));
                self.relisted.insert(key(&object));
                vec![Change::Present(object)]
            }
            watcher::Event::InitDone => {
                let gone = mem::replace(&mut self.keys, mem::take(&mut self.relisted));
                let gone = gone.difference(&self.keys).cloned();
                let mut changes: Vec<_> = gone.map(|(ns, name)| Change::Gone(ns, name)).collect();
                if !mem::replace(&mut self.listed, true) {
                    changes.push(Change::Listed);
                }
                changes
            }
            watcher::Event::Apply(object) => {
                self.keys.insert(key(&object));
                vec![Change::Present(object)]
            }
            watcher::Event::Delete(object) => {
                let (namespace, name) = key(&object);
                self.keys.remove(&(namespace.clone(), name.clone()));
                vec![Change::Gone(namespace, name)]
            }
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use watcher::Event;

    use super::*;

    fn named(name: &str) -> Namespace {
        let mut object = Namespace::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    #[test]
    fn what_only_a_list_that_broke_off_contained_is_gone_with_the_next() {
        let mut known = Known::default();
        let mut take = |event| known.take(event);
        take(Event::Init);
        take(Event::InitApply(named("a")));
        take(Event::Init);
        assert_eq!(
            take(Event::InitDone),
            [Change::Gone(String::new(), "a".to_owned()), Change::Listed]
        );
    }

    #[test]
    fn what_a_relist_no_longer_contains_is_gone_and_listed_comes_once() {
        let mut known = Known::default();
        let mut take = |event| known.take(event);
        take(Event::Init);
        take(Event::InitApply(named("a")));
        assert_eq!(take(Event::InitDone), [Change::Listed]);
        take(Event::Apply(named("b")));
        take(Event::Init);
        take(Event::InitApply(named("b")));
        assert_eq!(
            take(Event::InitDone),
            [Change::Gone(String::new(), "a".to_owned())]
        );
    }
}
