//! What kube-proxy believes to be in its set and its maps (`nftElementStorage`).
//!
//! A sync names every element that shall be there; only what differs from the copy is written. So an element
//! that somebody else took out is not written again, and one that is to be deleted and is not
//! there makes the whole transaction fail.

use std::collections::{BTreeMap, BTreeSet};

use super::{setup::HAIRPIN, transaction::Transaction};
use crate::kube_proxy::profile::Version;

/// What elements are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Set,
    Map,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Map => "map",
        }
    }
}

/// The copy of one set or map. Keys and values are as nft writes them; a set's values are empty.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    elements: BTreeMap<String, String>,
    /// Those that this sync has not named yet.
    leftover: BTreeSet<String>,
}

impl Mirror {
    fn new(kind: Kind, name: &'static str) -> Self {
        Self {
            kind,
            name,
            elements: BTreeMap::new(),
            leftover: BTreeSet::new(),
        }
    }

    /// Starts over: empty, in the kernel as well.
    pub(super) fn reset(&mut self, tx: &mut Transaction) {
        tx.flush_elements(self.kind, self.name);
        self.set(BTreeMap::new());
    }

    /// Starts over with what the kernel has.
    pub(super) fn set(&mut self, elements: BTreeMap<String, String>) {
        self.leftover = elements.keys().cloned().collect();
        self.elements = elements;
    }

    /// An element that shall be there.
    pub(super) fn ensure(
        &mut self,
        tx: &mut Transaction,
        key: String,
        value: &str,
        comment: Option<&str>,
    ) {
        let known = self.elements.get(&key).map(String::as_str);
        if known != Some(value) {
            if known.is_some() {
                tx.delete_element(self.name, &key);
            }
            tx.element(self.name, &key, value, comment);
        }
        self.leftover.remove(&key);
        self.elements.insert(key, value.to_owned());
    }

    fn clean(&mut self, tx: &mut Transaction) {
        for key in std::mem::take(&mut self.leftover) {
            tx.delete_element(self.name, &key);
            self.elements.remove(&key);
        }
        self.leftover = self.elements.keys().cloned().collect();
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Mirrors {
    pub(super) cluster_ips: Mirror,
    pub(super) service_ips: Mirror,
    pub(super) firewall_ips: Mirror,
    pub(super) no_endpoint_services: Mirror,
    pub(super) no_endpoint_node_ports: Mirror,
    pub(super) service_node_ports: Mirror,
    /// From 1.36 on.
    pub(super) hairpin: Option<Mirror>,
}

impl Mirrors {
    /// Those that a release has, empty.
    pub(super) fn of(version: &Version) -> Self {
        let map = |name| Mirror::new(Kind::Map, name);
        let hairpin = || Mirror::new(Kind::Set, HAIRPIN);
        Self {
            cluster_ips: Mirror::new(Kind::Set, "cluster-ips"),
            service_ips: map("service-ips"),
            firewall_ips: map("firewall-ips"),
            no_endpoint_services: map("no-endpoint-services"),
            no_endpoint_node_ports: map("no-endpoint-nodeports"),
            service_node_ports: map("service-nodeports"),
            hairpin: (!version.has_endpoint_chains()).then(hairpin),
        }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Mirror> {
        let common = [
            &mut self.cluster_ips,
            &mut self.service_ips,
            &mut self.firewall_ips,
            &mut self.no_endpoint_services,
            &mut self.no_endpoint_node_ports,
            &mut self.service_node_ports,
        ];
        common.into_iter().chain(&mut self.hairpin)
    }

    /// Deletes what this sync did not name.
    pub(super) fn clean(&mut self, tx: &mut Transaction) {
        for mirror in self.all() {
            mirror.clean(tx);
        }
    }
}
