//! What has been seen, in the order in which controllers ask for it.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Node, Pod},
    discovery::v1::EndpointSlice,
};
use kube::{Resource, ResourceExt};

use super::seen::Seen;

/// The label that says whose endpoints a slice has.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Indexes over [`Seen`], made for one round.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) seen: &'a Seen,
    pods_of: BTreeMap<&'a str, Vec<&'a Pod>>,
    sets_of: BTreeMap<&'a str, Vec<&'a ReplicaSet>>,
    /// By namespace, label and the label's value.
    pods_with: BTreeMap<[&'a str; 3], Vec<&'a Pod>>,
    slices_of: BTreeMap<[&'a str; 2], Vec<&'a EndpointSlice>>,
}

impl<'a> View<'a> {
    pub(super) fn of(seen: &'a Seen) -> Self {
        let mut pods_with: BTreeMap<_, Vec<&Pod>> = BTreeMap::new();
        for pod in seen.pods.iter() {
            for (label, value) in pod.labels() {
                let key = [namespace(pod), label, value];
                pods_with.entry(key).or_default().push(pod);
            }
        }
        let mut slices_of: BTreeMap<_, Vec<&EndpointSlice>> = BTreeMap::new();
        for slice in seen.slices.iter() {
            if let Some(service) = slice.labels().get(SERVICE_NAME) {
                let key = [namespace(slice), service];
                slices_of.entry(key).or_default().push(slice);
            }
        }
        Self {
            seen,
            pods_of: by_controller(seen.pods.iter()),
            sets_of: by_controller(seen.replica_sets.iter()),
            pods_with,
            slices_of,
        }
    }

    /// The pods controlled by the object with that uid.
    pub(super) fn pods_of(&self, uid: &str) -> &[&'a Pod] {
        self.pods_of.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The replica sets controlled by the object with that uid.
    pub(super) fn sets_of(&self, uid: &str) -> &[&'a ReplicaSet] {
        self.sets_of.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The node with that name.
    pub(super) fn node(&self, name: &str) -> Option<&'a Node> {
        self.seen.nodes.get(&(String::new(), name.to_owned()))
    }

    /// The pods of a namespace whose label has that value.
    pub(super) fn pods_with(
        &self,
        namespace: &'a str,
        label: &'a str,
        value: &'a str,
    ) -> &[&'a Pod] {
        let found = self.pods_with.get(&[namespace, label, value]);
        found.map_or(&[], Vec::as_slice)
    }

    /// The slices that say they belong to a service.
    pub(super) fn slices_of(&self, namespace: &'a str, service: &'a str) -> &[&'a EndpointSlice] {
        let found = self.slices_of.get(&[namespace, service]);
        found.map_or(&[], Vec::as_slice)
    }
}

fn namespace<K: Resource>(object: &K) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

/// The uid of the controller of an object.
pub(super) fn controller<K: Resource>(object: &K) -> Option<&str> {
    let owners = object.meta().owner_references.as_deref().unwrap_or(&[]);
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    controller.map(|owner| owner.uid.as_str())
}

fn by_controller<'a, K: Resource + 'a>(
    objects: impl Iterator<Item = &'a K>,
) -> BTreeMap<&'a str, Vec<&'a K>> {
    let mut index: BTreeMap<&str, Vec<&K>> = BTreeMap::new();
    for object in objects {
        if let Some(uid) = controller(object) {
            index.entry(uid).or_default().push(object);
        }
    }
    index
}
