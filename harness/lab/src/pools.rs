//! Pools of pod addresses and the tunnels that carry some of them, set up on nodes as Felix does
//! (`felix/dataplane/linux/vxlan_mgr.go`): every other node is a permanent neighbour of `vxlan.calico`, and a route to
//! its block leads through it. Nodes share one subnet: `CrossSubnet` routes directly.

use std::net::IpAddr;

use chainbreak_model::case::{ClusterSpec, IpFamily, PoolSpec, Vxlan};
use ipnet::IpNet;
use sha1::{Digest, Sha1};

use crate::{
    addresses::{Plan, block, tunnel},
    families::Families,
};

/// A cluster's pools, in IPv4; the first one is that of pods that choose none.
#[derive(Debug)]
pub struct Pools {
    all: Vec<PoolSpec>,
    /// They are the scenario's.
    pub(crate) are_declared: bool,
}

/// The route to another node's block of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over the underlay.
    Direct(IpNet),
    /// Through the tunnel.
    Tunnel(IpNet),
}

impl Pools {
    /// The scenario's, or the lab's own one.
    pub fn of(spec: &ClusterSpec, plan: Plan) -> Self {
        let are_declared = !spec.pools.is_empty();
        let mut all = spec.pools.to_vec();
        if !are_declared {
            all.push(PoolSpec {
                name: "default-ipv4-ippool".to_owned(),
                cidr: plan.pods(),
                vxlan: Vxlan::Never,
                nat_outgoing: false,
            });
        }
        Self { all, are_declared }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &PoolSpec> {
        self.all.iter()
    }

    /// The network of pods that choose no pool, which kube-proxy is told as the cluster's.
    pub fn main(&self) -> IpNet {
        self.all.first().expect("there is a pool").cidr
    }

    /// The blocks of a node, pool by pool.
    pub fn blocks(&self, node: u16) -> impl Iterator<Item = IpNet> {
        self.all.iter().map(move |pool| block(pool.cidr, node))
    }

    /// How pods of a node are reached from other nodes.
    pub(crate) fn ways(&self, node: u16) -> impl Iterator<Item = Way> {
        self.all.iter().map(move |pool| {
            let block = block(pool.cidr, node);
            match pool.vxlan {
                Vxlan::Always => Way::Tunnel(block),
                Vxlan::CrossSubnet | Vxlan::Never => Way::Direct(block),
            }
        })
    }

    /// The address of a node's tunnel, of the first pool that uses it; none where no pool does.
    pub(crate) fn tunnel(&self, node: u16) -> Option<IpAddr> {
        let mut pools = self.all.iter();
        let first = pools.find(|pool| pool.vxlan != Vxlan::Never)?;
        Some(tunnel(block(first.cidr, node)))
    }

    /// What fits into a pod's packets, where it is not what an interface takes by itself.
    pub(crate) fn mtu(&self, families: &Families) -> Option<u16> {
        let least = families.wired().map(mtu).min();
        self.tunnel(1).and(least)
    }
}

/// Calico's device for VXLAN: a family's pods travel over the underlay of the same family.
pub(crate) fn device(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "vxlan.calico",
        IpFamily::V6 => "vxlan-v6.calico",
    }
}

/// What VXLAN leaves of 1500 bytes; Calico gives the least to all pods where some pool is carried by it.
fn mtu(family: IpFamily) -> u16 {
    match family {
        IpFamily::V4 => 1450,
        IpFamily::V6 => 1430,
    }
}

/// The MAC address of a node's tunnel: locally administered, and the same in every run, as Felix derives it from the
/// node's name (`felix/calc/vxlan_resolver.go`).
pub(crate) fn tunnel_mac(node: &str, family: IpFamily) -> String {
    let digest = match family {
        IpFamily::V4 => Sha1::digest(node),
        IpFamily::V6 => Sha1::digest(format!("{node}-v6")),
    };
    let bytes = digest.iter().take(5).map(|byte| format!(":{byte:02x}"));
    format!("66{}", bytes.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_of_ipv6_is_another_device_and_makes_pods_packets_smaller() {
        // The digits are those of `printf n1 | sha1sum` and `printf n1-v6 | sha1sum`.
        assert_eq!(tunnel_mac("n1", IpFamily::V4), "66:40:b3:ea:b6:3f");
        assert_eq!(tunnel_mac("n1", IpFamily::V6), "66:46:32:55:72:28");
        let pools = |vxlan| Pools {
            all: vec![PoolSpec {
                name: "overlay".to_owned(),
                cidr: "10.30.0.0/16".parse().unwrap(),
                vxlan,
                nat_outgoing: false,
            }],
            are_declared: true,
        };
        let v4 = Families::new(vec![IpFamily::V4]);
        // IPv4 is wired where Kubernetes does not know it, too: the smaller one holds for both.
        let v6 = Families::new(vec![IpFamily::V6]);
        assert_eq!(pools(Vxlan::Never).mtu(&v6), None);
        assert_eq!(pools(Vxlan::Always).mtu(&v4), Some(1450));
        assert_eq!(pools(Vxlan::Always).mtu(&v6), Some(1430));
    }
}
