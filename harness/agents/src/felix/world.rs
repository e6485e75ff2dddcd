//! What Felix was told, and the rule sets that follow from it.

use std::{collections::BTreeMap, net::IpAddr};

use serde_json::{Map, Value as Json};

use super::{
    Config, Event, Family, Pool, Workload,
    nat_map::NatMap,
    renderer::{Layout, Renderer},
};

/// What Felix was told so far.
#[derive(Debug)]
pub(super) struct World {
    pub(super) spec: Option<Map<String, Json>>,
    workloads: BTreeMap<(String, String), Workload>,
    pub(super) pools: Vec<Pool>,
    pub(super) nodes: Vec<IpAddr>,
    /// What its own proxy knows.
    pub(super) nat: NatMap,
    pub(super) in_sync: bool,
}

impl World {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            spec: None,
            workloads: BTreeMap::new(),
            pools: Vec::new(),
            nodes: Vec::new(),
            nat: NatMap::new(config),
            in_sync: false,
        }
    }

    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Config(spec) => self.spec = Some(spec),
            Event::Workload(workload) => {
                let key = (workload.namespace.clone(), workload.name.clone());
                self.workloads.insert(key, workload);
            }
            Event::WorkloadGone { namespace, name } => {
                self.workloads.remove(&(namespace, name));
            }
            Event::Pools(pools) => self.pools = pools,
            Event::Nodes(nodes) => self.nodes = nodes,
            Event::Proxied(event) => self.nat.take(event),
            Event::InSync => self.in_sync = true,
            Event::Unreached(_) => {}
        }
    }

    /// Whether some pool of the family is carried by VXLAN. Felix decides that once in a life.
    pub(super) fn vxlan(&self, family: Family) -> bool {
        let mut pools = self.pools.iter();
        pools.any(|pool| pool.vxlan && Family::of(pool.cidr.addr()) == family)
    }

    /// What a table shall hold.
    pub(super) fn layout(&self, table: &str, renderer: &Renderer) -> Layout {
        let bpf = renderer.params.is("BPFEnabled");
        let of_family = |pool: &&Pool| Family::of(pool.cidr.addr()) == renderer.family;
        let nat_outgoing = self
            .pools
            .iter()
            .filter(of_family)
            .any(|pool| pool.nat_outgoing);
        match (table, bpf) {
            ("mangle", true) => Layout::default(),
            ("mangle", false) => renderer.mangle(),
            ("nat", true) => renderer.bpf_nat(nat_outgoing),
            ("nat", false) => renderer.nat(nat_outgoing),
            ("raw", true) => renderer.bpf_raw(),
            ("raw", false) => renderer.raw(),
            (_, true) => self.bpf_filter(renderer),
            (_, false) => self.filter(renderer),
        }
    }

    fn filter(&self, renderer: &Renderer) -> Layout {
        let mut layout = renderer.filter();
        let interfaces = self
            .workloads
            .values()
            .map(|workload| workload.interface.as_str())
            .collect();
        layout
            .chains
            .extend(renderer.workload_dispatch(&interfaces));
        for workload in self.workloads.values() {
            layout.chains.extend(renderer.workload(workload));
            let profiles = workload.profiles.iter();
            layout
                .chains
                .extend(profiles.flat_map(|profile| renderer.profile(profile)));
        }
        layout
    }

    fn bpf_filter(&self, renderer: &Renderer) -> Layout {
        let mut layout = renderer.bpf_filter();
        let interfaces = self
            .workloads
            .values()
            .map(|workload| workload.interface.as_str())
            .collect();
        layout.chains.extend(renderer.workload_allow(&interfaces));
        layout
    }
}
