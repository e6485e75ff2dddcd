//! Which address is whose. The only place that knows a number.
//!
//! ```text
//! 10.0.0.0/16   underlay: 10.0.0.1 the API, 10.0.0.2 or 10.0.0.3 its endpoint, 10.0.1.N node nN, 10.0.2.K the K-th off-cluster host, from
//!               10.0.3.0 on what pods' further interfaces ask for
//! 10.20.0.0/16  pods, unless the scenario has pools of its own. Of each pool, node nN owns the N-th /24:
//!               .1 is its tunnel's, .2 to .254 are pods'
//! 10.96.0.0/16  cluster IPs, given out by the API server
//! ```
//!
//! A second family means a second [`Plan`]: whoever needs an address asks a plan for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::error::LabError;

/// The address by which pods reach their gateway, answered by proxy ARP (Calico's way).
pub const POD_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// Where the API server listens, on the underlay.
pub const API_PORT: u16 = 6443;
/// Where the Service `kubernetes` has it.
pub const SERVICE_PORT: u16 = 443;
/// As many nodes as have a /24 each.
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
        nth(self.underlay(), 1)
    }

    /// An endpoint of the API, as the Service `kubernetes` names it: the K-th of two, K from 0. Behind it is the same API.
    pub fn api_endpoint(self, k: u8) -> IpAddr {
        nth(self.underlay(), 2 + u32::from(k % 2))
    }

    /// Node `nN`, N from 1.
    pub fn node(self, number: u16) -> IpAddr {
        nth(self.underlay(), 0x100 + u32::from(number))
    }

    /// The off-cluster host with that index, from 0.
    pub fn host(self, index: usize) -> IpAddr {
        let index = u32::try_from(index).expect("hosts were checked");
        nth(self.underlay(), 0x200 + index + 1)
    }

    /// All nodes and hosts.
    pub fn underlay(self) -> IpNet {
        IpNet::V4(self.underlay)
    }

    /// All pods of a scenario without pools of its own.
    pub fn pods(self) -> IpNet {
        IpNet::V4(self.pods)
    }

    /// All cluster IPs.
    pub fn services(self) -> IpNet {
        IpNet::V4(self.services)
    }

    /// Whether the address is one that the lab gives to somebody.
    pub fn gives(self, address: IpAddr) -> bool {
        let nets = [self.underlay, self.pods, self.services].map(IpNet::V4);
        nets.iter().any(|net| net.contains(&address))
    }

    /// Whether the lab gives this address of the underlay to nobody.
    pub fn is_spare(self, address: IpAddr) -> bool {
        let given = nth(self.underlay(), 0x300);
        self.underlay().contains(&address) && address >= given
    }

    /// Length of the underlay's prefix.
    pub fn underlay_prefix(self) -> u8 {
        self.underlay.prefix_len()
    }
}

/// The n-th address of a network, from 0.
fn nth(net: IpNet, n: u32) -> IpAddr {
    match net.addr() {
        IpAddr::V4(base) => Ipv4Addr::from(u32::from(base) + n).into(),
        IpAddr::V6(base) => Ipv6Addr::from(u128::from(base) + u128::from(n)).into(),
    }
}

/// The addresses of node `nN` in a pool.
pub fn block(pool: IpNet, number: u16) -> IpNet {
    IpNet::new_assert(nth(pool, u32::from(number) << 8), 24)
}

/// The address of a node's tunnel, in its block of the pool.
pub fn tunnel(block: IpNet) -> IpAddr {
    nth(block, 1)
}

/// Pod addresses of a block: .2 to .254.
pub const POD_SLOTS: u8 = 253;

/// The K-th pod address of a block, K from 0. .0 is the network and .1 a bridge's in other CNIs: readers expect pods
/// from .2 on.
fn pod(block: IpNet, k: u8) -> IpAddr {
    nth(block, u32::from(k) + 2)
}

/// Gives out a block's pod addresses. A freed one comes back last, so that an address seen in a
/// history names one pod for long.
#[derive(Debug)]
pub struct PodSlots {
    block: IpNet,
    taken: Vec<bool>,
    next: u8,
}

impl PodSlots {
    /// Every address of the block is free.
    pub fn new(block: IpNet) -> Self {
        Self {
            block,
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
                return Some(pod(self.block, slot));
            }
        }
        None
    }

    /// This address, if it is one of the block's and free.
    pub fn take_this(&mut self, address: IpAddr) -> bool {
        let slot = self.slot(address);
        slot.is_some_and(|slot| !std::mem::replace(&mut self.taken[slot], true))
    }

    /// Gives an address back, if it is one of the block's.
    pub fn free(&mut self, address: IpAddr) {
        if let Some(slot) = self.slot(address) {
            self.taken[slot] = false;
        }
    }

    fn slot(&self, address: IpAddr) -> Option<usize> {
        let slot = (0..POD_SLOTS).find(|&k| pod(self.block, k) == address);
        slot.map(usize::from)
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
        let blocks = (1..=MAX_NODES).map(|n| block(plan.pods(), n));
        let blocks: Vec<IpNet> = blocks.collect();
        all.extend(blocks.iter().map(|block| tunnel(*block)));
        let pods = |block: &IpNet| (0..POD_SLOTS).map(|k| pod(*block, k)).collect::<Vec<_>>();
        all.extend(blocks.iter().flat_map(pods));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(plan.node(2).to_string(), "10.0.1.2");
        assert_eq!(plan.host(0).to_string(), "10.0.2.1");
        assert_eq!(pod(blocks[2], 0).to_string(), "10.20.3.2");
        assert!(all.iter().all(|a| !plan.services().contains(a)));
    }

    #[test]
    fn a_freed_pod_address_comes_back_last() {
        let mut slots = PodSlots::new("10.20.1.0/24".parse().unwrap());
        let first = slots.take().unwrap();
        slots.free(first);
        let rest: Vec<IpAddr> = (1..POD_SLOTS).map(|_| slots.take().unwrap()).collect();
        assert!(!rest.contains(&first));
        assert_eq!(slots.take(), Some(first));
        assert_eq!(slots.take(), None);
    }

    #[test]
    fn an_address_that_was_asked_for_is_nobody_elses() {
        let mut slots = PodSlots::new("10.20.1.0/24".parse().unwrap());
        let wanted = [10, 20, 1, 3].into();
        assert!(slots.take_this(wanted));
        assert!(!slots.take_this(wanted));
        assert!(!slots.take_this([10, 20, 2, 3].into()));
        let others: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        assert!(!others.contains(&wanted));
    }

    #[test]
    fn too_many_nodes_are_refused_in_words() {
        let refused = Plan::ipv4().check(251, 0).unwrap_err().to_string();
        assert_eq!(refused, "the lab raises 1 to 250 nodes, not 251");
        assert!(Plan::ipv4().check(0, 0).is_err());
        assert!(Plan::ipv4().check(70, 3).is_ok());
    }
}
