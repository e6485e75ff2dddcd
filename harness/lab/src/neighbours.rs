//! Who reaches whom over the underlay, and by which route: nodes each other's pods, everybody the further
//! addresses of hosts, and a host what its scenario says.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use chainbreak_model::{
    case::{IpFamily, Via},
    names::NodeName,
};
use ipnet::IpNet;

use crate::{
    addresses::Plan,
    error::LabError,
    pools::{Pools, Way, tunnel_mac},
    wiring::{End, TunnelEnd},
    world::{Host, Node},
};

/// The nodes and hosts of a world.
#[derive(Debug)]
pub(crate) struct Neighbours {
    pub(crate) plan: Plan,
    pools: Arc<Pools>,
    nodes: BTreeMap<NodeName, (u16, IpAddr)>,
    hosts: BTreeMap<String, IpAddr>,
    /// Further addresses and whose they are.
    further: Vec<(IpAddr, IpAddr)>,
}

impl Neighbours {
    /// Refuses an address that somebody else has or may get.
    pub(crate) fn new(
        plan: Plan,
        pools: &Arc<Pools>,
        nodes: &[Node],
        hosts: &[Host],
    ) -> Result<Self, LabError> {
        for pool in pools.iter() {
            let others = [plan.underlay(), plan.services()];
            let overlaps = |other: &IpNet| other.contains(&pool.cidr) || pool.cidr.contains(other);
            if let Some(other) = others.iter().find(|other| overlaps(other)) {
                let what = format!("pool {} overlaps with the lab's {other}", pool.name);
                return Err(LabError::Unable { what });
            }
        }
        let further = hosts.iter().flat_map(|host| {
            let all = host.spec.addresses.iter();
            all.map(move |further| (host, *further))
        });
        let further: Vec<(&Host, IpAddr)> = further.collect();
        for (index, (host, address)) in further.iter().enumerate() {
            let earlier = further
                .iter()
                .take(index)
                .any(|(_, other)| other == address);
            if earlier || plan.gives(*address) {
                let what = format!("{address} cannot be host {}'s: it is taken", host.name);
                return Err(LabError::Unable { what });
            }
        }
        Ok(Self {
            plan,
            pools: Arc::clone(pools),
            nodes: nodes
                .iter()
                .map(|node| (node.name.clone(), (node.number, node.address)))
                .collect(),
            further: further
                .into_iter()
                .map(|(host, address)| (address, host.address))
                .collect(),
            hosts: hosts
                .iter()
                .map(|host| (host.name.clone(), host.address))
                .collect(),
        })
    }

    /// A node's end of the underlay.
    pub(crate) fn of_node(&self, node: &Node) -> End {
        let others = self.others(node);
        let pods = others.flat_map(|(_, number, address)| self.pods(number, address));
        End {
            addresses: Vec::new(),
            routes: pods.chain(self.further_of_others(node.address)).collect(),
        }
    }

    /// How the API answers pods that ask it by their own addresses.
    pub(crate) fn of_api(&self) -> End {
        let nodes = self.nodes.values();
        End {
            addresses: Vec::new(),
            routes: nodes
                .flat_map(|(number, address)| self.pods(*number, *address))
                .collect(),
        }
    }

    /// What of a node's pods is reached without a tunnel.
    fn pods(&self, number: u16, address: IpAddr) -> impl Iterator<Item = (IpNet, IpAddr)> {
        self.pools.ways(number).filter_map(move |way| match way {
            Way::Direct(block) => Some((block, address)),
            Way::Tunnel(_) => None,
        })
    }

    /// The ends of a family's tunnel, a node's own and the others'; `None` where no pool uses one.
    pub(crate) fn tunnel(
        &self,
        node: &Node,
        family: IpFamily,
    ) -> Option<(TunnelEnd, Vec<TunnelEnd>)> {
        let end = |(name, number, address): (&NodeName, u16, IpAddr)| {
            let blocks = self.pools.ways(number).filter_map(|way| match way {
                Way::Tunnel(block) => family.net(block),
                Way::Direct(_) => None,
            });
            Some(TunnelEnd {
                node: family.address(address),
                tunnel: family.address(self.pools.tunnel(number)?),
                mac: tunnel_mac(name.as_str(), family),
                blocks: blocks.collect(),
            })
        };
        let own = end((&node.name, node.number, node.address))?;
        Some((own, self.others(node).filter_map(end).collect()))
    }

    fn others(&self, node: &Node) -> impl Iterator<Item = (&NodeName, u16, IpAddr)> {
        let own = node.number;
        let others = self
            .nodes
            .iter()
            .filter(move |(_, (number, _))| *number != own);
        others.map(|(name, (number, address))| (name, *number, *address))
    }

    /// A host's end of the underlay.
    pub(crate) fn of_host(&self, host: &Host) -> End {
        let own = host.spec.routes.iter().filter_map(|route| {
            let hop = match &route.via {
                Via::Address(address) => Some(*address),
                Via::Node(name) => self.nodes.get(name).map(|(_, address)| *address),
                Via::Host(name) => self.hosts.get(name).copied(),
            };
            // Which nodes and hosts there are was checked with the scenario.
            Some((route.to, hop?))
        });
        End {
            addresses: host.spec.addresses.clone(),
            routes: self.further_of_others(host.address).chain(own).collect(),
        }
    }

    fn further_of_others(&self, own: IpAddr) -> impl Iterator<Item = (IpNet, IpAddr)> {
        let others = self.further.iter().filter(move |(_, whose)| *whose != own);
        others.map(|(address, whose)| (IpNet::from(*address), *whose))
    }
}
