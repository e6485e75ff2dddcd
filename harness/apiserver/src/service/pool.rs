//! The cluster IPs of one family.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use super::families::Family;

/// A range of cluster IPs and which of them are taken.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    cidr: IpNet,
    taken: BTreeSet<IpAddr>,
    next: IpAddr,
}

impl Pool {
    pub(super) fn new(cidr: IpNet) -> Self {
        Self {
            cidr,
            taken: BTreeSet::new(),
            next: first_dynamic(cidr),
        }
    }

    pub(super) fn family(&self) -> Family {
        Family::of(self.cidr.addr())
    }

    /// The next address, which is taken from now on; `None` when all are.
    pub(super) fn give(&mut self) -> Option<IpAddr> {
        let usable = |ip: &IpAddr| self.cidr.contains(ip) && *ip != self.cidr.broadcast();
        let start = self.next;
        let mut ip = start;
        loop {
            if !usable(&ip) {
                ip = offset_by(self.cidr.network(), 1);
            }
            let next = offset_by(ip, 1);
            if self.taken.insert(ip) {
                self.next = next;
                return Some(ip);
            }
            ip = next;
            if ip == start {
                return None;
            }
        }
    }

    /// Whether the address can be taken; if not, why not, as the API server's allocator says it.
    pub(super) fn check(&self, ip: IpAddr) -> Result<(), String> {
        if !self.cidr.contains(&ip) {
            let range = self.cidr;
            return Err(format!(
                "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
            ));
        }
        if self.taken.contains(&ip) {
            return Err("provided IP is already allocated".to_owned());
        }
        Ok(())
    }

    pub(super) fn take(&mut self, ip: IpAddr) {
        self.taken.insert(ip);
    }

    pub(super) fn release(&mut self, ip: IpAddr) {
        self.taken.remove(&ip);
    }
}

/// Above a sixteenth of the range, within 16 and 256 addresses (KEP-3070).
fn first_dynamic(cidr: IpNet) -> IpAddr {
    let bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len());
    let size = 1_u128.checked_shl(bits).unwrap_or(u128::MAX);
    let offset = if size <= 16 {
        1
    } else {
        (size / 16).clamp(16, 256)
    };
    offset_by(cidr.network(), offset)
}

/// The address that lies so far behind another.
pub(super) fn offset_by(ip: IpAddr, offset: u128) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let offset = u32::try_from(offset).unwrap_or(u32::MAX);
            IpAddr::V4(u32::from(ip).wrapping_add(offset).into())
        }
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).wrapping_add(offset).into()),
    }
}
