//! What differs in nftables mode from release to release, and from patch to patch.

use super::Version;

impl Version {
    /// Whether a full sync of nftables mode compares with the elements that the kernel has, instead of
    /// writing everything from scratch (pull request 130119, from 1.33).
    pub(crate) fn reads_elements(&self) -> bool {
        self.minor >= 33
    }

    /// Whether the first sync of nftables mode takes an endpoint's chain as it finds it (pull request 130119,
    /// 1.33 to 1.35).
    pub(crate) fn keeps_endpoint_chains_at_start(&self) -> bool {
        self.minor >= 33 && self.has_endpoint_chains()
    }

    /// Whether a stale chain that cannot be deleted makes the sync full (seen in 1.36; not in 1.32).
    pub(crate) fn full_sync_after_failed_deletion(&self) -> bool {
        self.minor >= 33
    }

    /// Whether nft is asked for all of kube-proxy's own table at once, instead of for the chains and the
    /// sets of all tables (pull request 137501). Its backports: there is no 1.33.10 and no 1.34.6 to look into.
    pub(crate) fn lists_whole_table(&self) -> bool {
        let from = match self.minor {
            33 => 11,
            34 => 7,
            35 => 4,
            minor => return minor > 35,
        };
        self.patch.is_none_or(|patch| patch >= from)
    }

    /// Whether filter chains of nftables mode come after DNAT where they can (pull request 132456, from 1.34.0;
    /// pull request 133969, from 1.33.6).
    pub(crate) fn filters_after_dnat(&self) -> bool {
        match self.minor {
            33 => self.patch.is_none_or(|patch| patch >= 6),
            minor => minor > 33,
        }
    }

    /// Whether interfaces of pods are matched by name (pull requests 134117 and 134118, from 1.33.6 and 1.34.2), and not by the index that
    /// one of that name has: nft refuses all that a transaction does when there is none.
    pub(crate) fn names_no_interface_by_index(&self) -> bool {
        let from = match self.minor {
            33 => 6,
            34 => 2,
            minor => return minor > 34,
        };
        self.patch.is_none_or(|patch| patch >= from)
    }

    /// Whether each endpoint has a chain of its own in nftables mode. From 1.36 on only those of services that remember
    /// their clients have (1.36.0, proxier.go, `writeServiceToEndpointDNATs`).
    pub(crate) fn has_endpoint_chains(&self) -> bool {
        self.minor < 36
    }

    /// Whether the rule of nftables mode that masquerades what comes to a cluster IP from outside names the
    /// port too (until 1.33).
    pub(crate) fn matches_port_again(&self) -> bool {
        self.minor < 34
    }

    /// Whether `ServiceCIDR`s are followed (`MultiCIDRServiceAllocator`: on from 1.33).
    pub(crate) fn follows_service_cidrs(&self) -> bool {
        self.minor >= 33
    }
}
