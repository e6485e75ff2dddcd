//! The places of a world and how they hang together.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    os::unix::fs::symlink,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chainbreak_engine::{cluster::Place, gate::Gate};
use chainbreak_model::{
    case::{ClusterSpec, HostSpec, IptablesVariant, PodOwner},
    names::NodeName,
};
use futures::future::try_join_all;

use crate::{
    addresses::{Plan, PodSlots},
    error::{LabError, tolerate},
    families::Families,
    links,
    neighbours::Neighbours,
    place::{Own, PlaceThread, set},
    pools::{Pools, device},
    registry,
    wiring::{self, Port},
};
/// Where a node's own commands are. The first entry of every world's `PATH`.
const BIN: &str = "/run/chainbreak/bin";
/// Where Debian, Fedora and Alpine keep the multi-call binaries.
const SBIN: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"];

/// A node.
#[derive(Debug)]
pub struct Node {
    /// `n1`, `n2`, ….
    pub name: NodeName,
    /// From 1.
    pub number: u16,
    /// On the underlay.
    pub address: IpAddr,
    /// Its namespaces.
    pub place: Arc<PlaceThread>,
    /// Of each pool.
    slots: Mutex<Vec<PodSlots>>,
}

impl Node {
    /// A free pod address of the pool with that number, unless all are taken.
    pub fn take_address(&self, pool: usize) -> Option<IpAddr> {
        self.slots().get_mut(pool)?.take()
    }

    /// This pod address, if it is one of the node's and free.
    pub fn take_this_address(&self, address: IpAddr) -> bool {
        let mut slots = self.slots();
        slots.iter_mut().any(|slots| slots.take_this(address))
    }

    /// Gives a pod address back.
    pub fn free_address(&self, address: IpAddr) {
        for slots in self.slots().iter_mut() {
            slots.free(address);
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<PodSlots>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An off-cluster host on the underlay.
#[derive(Debug)]
pub struct Host {
    /// As the scenario calls it.
    pub name: String,
    /// On the underlay.
    pub address: IpAddr,
    /// What it has beside that.
    pub spec: HostSpec,
    /// Its namespace.
    pub place: Arc<PlaceThread>,
}

impl Host {
    /// The address by which a scenario means it: the first that it gives the host, else the underlay's.
    pub fn main_address(&self) -> IpAddr {
        *self.spec.addresses.first().unwrap_or(&self.address)
    }
}

/// All places of a case. Pods come and go, the others stay.
#[derive(Debug)]
pub struct World {
    /// Which address is whose.
    pub plan: Plan,
    /// Of pods' addresses.
    pub pools: Arc<Pools>,
    /// Which of them Kubernetes knows.
    pub families: Families,
    /// Who owns the pods' interfaces.
    pub pod_owner: PodOwner,
    /// What every agent's commands pass.
    pub gate: Gate,
    nodes: BTreeMap<NodeName, Arc<Node>>,
    hosts: Vec<Host>,
    pods: Mutex<BTreeMap<Place, Arc<PlaceThread>>>,
}

impl World {
    /// Raises nodes and hosts and wires them up. To be called in a worker.
    pub async fn raise(spec: &ClusterSpec) -> Result<Self, LabError> {
        let plan = Plan::ipv4();
        plan.check(spec.nodes, spec.hosts.len())?;
        let pools = Arc::new(Pools::of(spec, plan));
        let families = Families::new(spec.ip_families.clone());
        families.enable()?;
        let nodes = (1..=spec.nodes)
            .map(|number| raise_node(plan, &pools, number))
            .collect::<Result<Vec<_>, _>>()?;
        let hosts = spec.hosts.iter().enumerate();
        let hosts = hosts
            .map(|(index, (name, spec))| raise_host(plan, index, name, spec))
            .collect::<Result<Vec<_>, _>>()?;
        let neighbours = Neighbours::new(plan, &pools, &nodes, &hosts)?;
        connect(&neighbours, &families, &nodes, &hosts).await?;
        try_join_all(
            nodes
                .iter()
                .map(|node| provision(node, &neighbours, &families, spec)),
        )
        .await?;
        try_join_all(hosts.iter().map(|host| {
            let batch = wiring::end(plan, host.address, &neighbours.of_host(host));
            families.wire(&host.place, batch)
        }))
        .await?;
        links::underlay_carries(nodes.len() + hosts.len()).await?;
        let pod_owner = spec
            .calico
            .as_ref()
            .map_or(PodOwner::ThirdParty, |calico| calico.pods);
        let nodes = nodes
            .into_iter()
            .map(|node| (node.name.clone(), Arc::new(node)))
            .collect();
        let world = Self {
            plan,
            pools,
            families,
            pod_owner,
            gate: Gate::default(),
            nodes,
            hosts,
            pods: Mutex::default(),
        };
        for (place, tid) in world.threads() {
            tolerate("register a place", registry::register(&place, tid));
        }
        Ok(world)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// The node with that name.
    pub fn node(&self, name: &NodeName) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// All off-cluster hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The thread of a place, unless there is no such place (any more).
    pub fn find(&self, place: &Place) -> Option<Arc<PlaceThread>> {
        match place {
            Place::Node(name) => self.node(name).map(|node| Arc::clone(&node.place)),
            Place::Host(name) => {
                let host = self.hosts.iter().find(|host| host.name == *name);
                host.map(|host| Arc::clone(&host.place))
            }
            Place::Pod { .. } => self.pods().get(place).cloned(),
        }
    }

    /// Every place of the moment and the id of its thread.
    pub fn threads(&self) -> Vec<(Place, i32)> {
        let nodes = self
            .nodes()
            .map(|node| (Place::Node(node.name.clone()), node.place.tid()));
        let hosts = self
            .hosts
            .iter()
            .map(|h| (Place::Host(h.name.clone()), h.place.tid()));
        let mut threads: Vec<_> = nodes.chain(hosts).collect();
        threads.extend(
            self.pods()
                .iter()
                .map(|(place, thread)| (place.clone(), thread.tid())),
        );
        threads
    }

    /// Makes a pod's place known.
    pub(crate) fn add_pod(&self, place: Place, thread: Arc<PlaceThread>) {
        tolerate("register a pod", registry::register(&place, thread.tid()));
        self.pods().insert(place, thread);
    }

    /// Forgets a pod's place, unless a newer pod of the same name has taken it.
    pub(crate) fn remove_pod(&self, place: &Place, thread: &Arc<PlaceThread>) {
        let mut pods = self.pods();
        if pods
            .get(place)
            .is_some_and(|known| Arc::ptr_eq(known, thread))
        {
            pods.remove(place);
            tolerate("unregister a pod", registry::unregister(place));
        }
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<Place, Arc<PlaceThread>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn raise_node(plan: Plan, pools: &Pools, number: u16) -> Result<Node, LabError> {
    let name = NodeName::from(format!("n{number}"));
    let place = PlaceThread::start(&format!("node/{name}"), Own::NetworkAndFiles)?;
    Ok(Node {
        name,
        number,
        address: plan.node(number),
        place: Arc::new(place),
        slots: Mutex::new(pools.blocks(number).map(PodSlots::new).collect()),
    })
}

fn raise_host(plan: Plan, index: usize, name: &str, spec: &HostSpec) -> Result<Host, LabError> {
    let place = PlaceThread::start(&format!("host/{name}"), Own::Network)?;
    Ok(Host {
        name: name.to_owned(),
        address: plan.host(index),
        spec: spec.clone(),
        place: Arc::new(place),
    })
}

/// Gives every node and host a port of the underlay.
async fn connect(
    neighbours: &Neighbours,
    families: &Families,
    nodes: &[Node],
    hosts: &[Host],
) -> Result<(), LabError> {
    let ends = nodes.iter().map(|node| (&node.place, node.address));
    let ends = ends.chain(hosts.iter().map(|host| (&host.place, host.address)));
    // What a link is by default is copied when it is made, and the underlay makes everybody's first one.
    try_join_all(ends.clone().map(|(place, _)| {
        let ours = families.clone();
        place.run(move || ours.enable())
    }))
    .await?;
    let ports: Vec<Port> = ends
        .map(|(place, address)| Port {
            tid: place.tid(),
            address,
        })
        .collect();
    let batch = wiring::underlay(neighbours.plan, &neighbours.of_api(), &ports);
    families.wire_here(batch).await
}

/// Routes, forwarding, settings and commands of a node.
async fn provision(
    node: &Node,
    neighbours: &Neighbours,
    families: &Families,
    spec: &ClusterSpec,
) -> Result<(), LabError> {
    let end = wiring::end(neighbours.plan, node.address, &neighbours.of_node(node));
    families.wire(&node.place, end).await?;
    for family in families.wired() {
        let Some((own, others)) = neighbours.tunnel(node, family) else {
            continue;
        };
        let (ip, bridge) = wiring::tunnel(device(family), &own, &others);
        wiring::apply(&node.place, ip).await?;
        wiring::apply_by(&node.place, "bridge", bridge).await?;
    }
    let forwarding = families.clone();
    let name = node.name.to_string();
    let (settings, iptables) = (spec.sysctls.clone(), spec.iptables);
    node.place
        .run(move || {
            forwarding.forward()?;
            for (setting, value) in &settings {
                set(&format!("/proc/sys/{}", setting.replace('.', "/")), value)?;
            }
            install(iptables).map_err(|source| LabError::Place {
                place: name,
                what: "install its commands",
                source,
            })
        })
        .await
}

/// Links `iptables` and its kin to the iptables backend of the node. Names that say their backend mean it.
fn install(variant: IptablesVariant) -> std::io::Result<()> {
    std::fs::create_dir_all(BIN)?;
    let chosen = match variant {
        IptablesVariant::Legacy => "legacy",
        IptablesVariant::Nft => "nft",
    };
    for family in ["iptables", "ip6tables"] {
        for kind in ["", "-save", "-restore"] {
            link(&format!("{family}{kind}"), chosen)?;
            link(&format!("{family}-legacy{kind}"), "legacy")?;
            link(&format!("{family}-nft{kind}"), "nft")?;
        }
    }
    Ok(())
}

/// An iptables backend that the machine lacks gets no link, so that using it says "not found".
fn link(name: &str, variant: &str) -> std::io::Result<()> {
    let multi = format!("xtables-{variant}-multi");
    let found = SBIN.iter().map(|dir| format!("{dir}/{multi}"));
    match found
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
    {
        Some(path) => symlink(path, format!("{BIN}/{name}")),
        None => Ok(()),
    }
}
