//! Which address is whose. The only place that knows a number.
//!
//! ```text
//! 10.0.0.0/16   underlay: 10.0.0.1 the API, 10.0.1.N node nN, 10.0.2.K the K-th off-cluster host
//! 10.20.0.0/16  pods: node nN owns 10.20.N.0/24
//! 10.96.0.0/16  cluster IPs, given out by the API server
//! ```
//!
//! A second family means a second [`Plan`]: whoever needs an address asks a plan for it.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::error::LabError;

/// The address by which pods reach their gateway, answered by proxy ARP (Calico's way).
pub const POD_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// Where the API server listens, on the underlay.
pub const API_PORT: u16 = 6443;
/// As many nodes as have a /24 each, which is also what fits the third octet of a node's pods.
pub const MAX_NODES: u16 = 250;
/// Off-cluster hosts share one octet.
pub const MAX_HOSTS: usize = 250;

/// The addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    underlay: Ipv4Net,
    pods: Ipv4Net,
    services: Ipv4Net,
}

impl Plan {
    /// The IPv4 plan.
    pub const fn ipv4() -> Self {
        Self {
            underlay: Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 16),
            pods: Ipv4Net::new_assert(Ipv4Addr::new(10, 20, 0, 0), 16),
            services: Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 16),
        }
    }

    /// Checks that everything asked for has an address.
    pub fn check(self, nodes: u16, hosts: usize) -> Result<(), LabError> {
        if nodes == 0 || nodes > MAX_NODES {
            let what = format!("the lab raises 1 to {MAX_NODES} nodes, not {nodes}");
            return Err(LabError::Unable { what });
        }
        if hosts > MAX_HOSTS {
            let what = format!("the lab raises up to {MAX_HOSTS} off-cluster hosts, not {hosts}");
            return Err(LabError::Unable { what });
        }
        Ok(())
    }

    /// The API's address.
    pub fn api(self) -> IpAddr {
        self.nth(self.underlay, 1)
    }

    /// Node `nN`, N from 1.
    pub fn node(self, number: u16) -> IpAddr {
        self.nth(self.underlay, 0x100 + u32::from(number))
    }

    /// The off-cluster host with that index, from 0.
    pub fn host(self, index: usize) -> IpAddr {
        let index = u32::try_from(index).expect("hosts were checked");
        self.nth(self.underlay, 0x200 + index + 1)
    }

    /// The pods of node `nN`.
    pub fn node_pods(self, number: u16) -> IpNet {
        let base = u32::from(self.pods.addr()) + (u32::from(number) << 8);
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(base), 24))
    }

    /// The K-th pod address of node `nN`, K from 0; `None` when the /24 is used up.
    pub fn pod(self, node: u16, k: u8) -> Option<IpAddr> {
        let IpNet::V4(net) = self.node_pods(node) else {
            return None;
        };
        // .0 is the network and .1 a bridge's in other CNIs: readers expect pods from .2 on.
        (k < POD_SLOTS).then(|| self.nth(net, u32::from(k) + 2))
    }

    /// All pods.
    pub fn pods(self) -> IpNet {
        IpNet::V4(self.pods)
    }

    /// All cluster IPs.
    pub fn services(self) -> IpNet {
        IpNet::V4(self.services)
    }

    /// Length of the underlay's prefix.
    pub fn underlay_prefix(self) -> u8 {
        self.underlay.prefix_len()
    }

    #[expect(clippy::unused_self, reason = "the family decides the arithmetic")]
    fn nth(self, net: Ipv4Net, n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(u32::from(net.addr()) + n))
    }
}

/// Pod addresses of a node: .2 to .254.
pub const POD_SLOTS: u8 = 253;

/// Gives out a node's pod addresses. A freed one comes back last, so that an address seen in a
/// history names one pod for long.
#[derive(Debug)]
pub struct PodSlots {
    plan: Plan,
    node: u16,
    taken: Vec<bool>,
    next: u8,
}

impl PodSlots {
    /// Every address of the node is free.
    pub fn new(plan: Plan, node: u16) -> Self {
        Self {
            plan,
            node,
            taken: vec![false; usize::from(POD_SLOTS)],
            next: 0,
        }
    }

    /// A free address.
    pub fn take(&mut self) -> Option<IpAddr> {
        for _ in 0..POD_SLOTS {
            let slot = self.next;
            self.next = (self.next + 1) % POD_SLOTS;
            if !std::mem::replace(&mut self.taken[usize::from(slot)], true) {
                return self.plan.pod(self.node, slot);
            }
        }
        None
    }

    /// Gives an address back.
    pub fn free(&mut self, address: IpAddr) {
        let slot = (0..POD_SLOTS).find(|&k| self.plan.pod(self.node, k) == Some(address));
        if let Some(slot) = slot {
            self.taken[usize::from(slot)] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_pods_and_hosts_never_share_an_address() {
        let plan = Plan::ipv4();
        let mut all = vec![plan.api()];
        all.extend((1..=MAX_NODES).map(|n| plan.node(n)));
        all.extend((0..MAX_HOSTS).map(|k| plan.host(k)));
        all.extend(
            (1..=MAX_NODES).flat_map(|n| (0..POD_SLOTS).filter_map(move |k| plan.pod(n, k))),
        );
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(plan.node(2).to_string(), "10.0.1.2");
        assert_eq!(plan.host(0).to_string(), "10.0.2.1");
        assert_eq!(
            plan.pod(3, 0).map(|a| a.to_string()).as_deref(),
            Some("10.20.3.2")
        );
        assert!(all.iter().all(|a| !plan.services().contains(a)));
    }

    #[test]
    fn a_freed_pod_address_comes_back_last() {
        let mut slots = PodSlots::new(Plan::ipv4(), 1);
        let first = slots.take().unwrap();
        slots.free(first);
        let rest: Vec<IpAddr> = (1..POD_SLOTS).map(|_| slots.take().unwrap()).collect();
        assert!(!rest.contains(&first));
        assert_eq!(slots.take(), Some(first));
        assert_eq!(slots.take(), None);
    }

    #[test]
    fn too_many_nodes_are_refused_in_words() {
        let refused = Plan::ipv4().check(251, 0).unwrap_err().to_string();
        assert_eq!(refused, "the lab raises 1 to 250 nodes, not 251");
        assert!(Plan::ipv4().check(0, 0).is_err());
        assert!(Plan::ipv4().check(70, 3).is_ok());
    }
}
