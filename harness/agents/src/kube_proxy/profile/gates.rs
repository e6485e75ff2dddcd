//! Smaller things that differ: what iptables mode writes, and which flows are stale.

use super::Version;

impl Version {
    /// Whether iptables is told how often to look at its lock while it waits (`-W`; gone from 1.34.0, iptables.go).
    pub(crate) fn tells_wait_interval(&self) -> bool {
        self.minor < 34
    }

    /// Whether rules count through `nfnetlink_acct` where the kernel has it (from 1.31.0, proxier.go).
    pub(crate) fn counts_by_nfacct(&self) -> bool {
        self.minor >= 31
    }

    /// Whether a service's health check node port is opened for each family by itself. Until 1.35 whatever listens
    /// on all addresses does so in both families (from 1.36.0, `service_health.go`).
    pub(crate) fn listens_for_health_by_family(&self) -> bool {
        self.minor >= 36
    }

    /// Whether a source range of length zero is as good as no range at all (from 1.34.0, serviceport.go).
    pub(crate) fn zero_range_opens(&self) -> bool {
        self.minor >= 34
    }

    /// Whether the annotation about topology hints is part of a service, so that a change of it is one of the service (from 1.21; serviceport.go of
    /// 1.32.3 has it, that of 1.33.13 not).
    pub(crate) fn reads_hints_annotation(&self) -> bool {
        (21..33).contains(&self.minor)
    }

    /// Whether an address that two slices hold is the endpoint that does not terminate. Until 1.35 it is the one
    /// on this node (endpointslicecache.go).
    pub(crate) fn prefers_running_endpoints(&self) -> bool {
        self.minor >= 36
    }

    /// Whether the label `service.kubernetes.io/headless` hides a Service, too, and
    /// `service.kubernetes.io/service-proxy-name` a slice. From 1.36 each hides the other kind only (server.go).
    pub(crate) fn labels_hide_both_kinds(&self) -> bool {
        self.minor < 36
    }

    /// Whether stale UDP flows are found by looking at the whole conntrack table (from 1.32).
    pub(crate) fn reconciles_conntrack(&self) -> bool {
        self.minor >= 32
    }

    /// Whether that leaves the ports of services out, so that all flows to their addresses count (1.32.0 to
    /// 1.32.2: cleanup.go of 1.32.2 and 1.32.3).
    pub(crate) fn clears_by_address_alone(&self) -> bool {
        self.reconciles_conntrack() && !self.since(&[(32, 3)])
    }

    /// Whether flows of services without a serving endpoint are stale, too (as the above).
    pub(crate) fn clears_services_without_endpoints(&self) -> bool {
        self.clears_by_address_alone()
    }

    /// Whether an endpoint with another port is another endpoint to it (from 1.34.0, cleanup.go).
    pub(crate) fn knows_endpoints_by_port(&self) -> bool {
        self.minor >= 34
    }

    /// Whether an interrupted listing is tried again, and used as far as it came in the end (from 1.33).
    pub(crate) fn takes_partial_listing(&self) -> bool {
        self.minor >= 33
    }

    /// Whether the node's address is known in each family. Until 1.28 that of the second one is taken for zero
    /// (server.go, `detectNodeIPs`, 1.28.15 and 1.29.15; measured with 1.28.15).
    pub(crate) fn knows_both_node_ips(&self) -> bool {
        self.minor >= 29
    }

    /// Whether the start sets a liberal conntrack and times of UDP, too, where it is told to (from 1.29).
    pub fn sets_more_of_conntrack(&self) -> bool {
        self.minor >= 29
    }
}
