//! What changed from 1.20 to 1.28 in the rules of iptables mode and what is said of them.
//!
//! 1.20.2 and 1.28.15 were run. The releases between were read, each the last patch of its minor and 1.22.0 and
//! 1.22.3 (proxier.go unless another file is named), not run.

use super::Version;

impl Version {
    /// Whether health check node ports are let in by rules of their own (filter's `KUBE-NODEPORTS`, from 1.21).
    pub(crate) fn admits_health_checks(&self) -> bool {
        self.minor >= 21
    }

    /// Whether external IPs lead straight to the service, and only what is known to be no pod's is masqueraded.
    /// 1.20 asks by which way a packet came (`physdev`).
    pub(crate) fn takes_external_ips_from_anywhere(&self) -> bool {
        self.minor >= 21
    }

    /// Whether masquerading of what goes to a service stands in the service's own chain (from 1.22).
    pub(crate) fn masquerades_in_service_chains(&self) -> bool {
        self.minor >= 22
    }

    /// Whether one rule lets answers through that are forwarded (from 1.23); earlier ones have two alike.
    pub(crate) fn has_one_rule_for_answers(&self) -> bool {
        self.minor >= 23
    }

    /// Whether node ports are kept from others by sockets. 1.21.14 and 1.22.17 have none; which patches of 1.21
    /// still had them was not looked up.
    pub(crate) fn opens_node_ports(&self) -> bool {
        self.minor <= 20 || self.takes_endpoints_that_are_not_ready()
    }

    /// Whether endpoints that are not ready have chains and keep their clients, and a service that has no others
    /// is not rejected (1.22.0 to 1.22.3; as that of issue 105657).
    pub(crate) fn takes_endpoints_that_are_not_ready(&self) -> bool {
        self.minor == 22 && self.patch.is_some_and(|patch| patch <= 3)
    }

    /// Whether flows of UDP services are chosen as 1.20 chooses them, without addresses of load balancers and
    /// node ports where a service gets its first endpoint.
    pub(crate) fn cleans_conntrack_as_1_20(&self) -> bool {
        self.minor <= 20
    }

    /// Whether only the addresses of load balancers are left out then (1.22.0; not 1.21.14, not 1.22.3).
    pub(crate) fn leaves_out_flows_to_balancers(&self) -> bool {
        self.minor == 22 && self.patch == Some(0)
    }

    /// Whether the jump to masquerading is made after all others, with kubelet's (1.27).
    pub(crate) fn makes_the_masquerading_jump_last(&self) -> bool {
        self.minor == 27
    }

    /// Whether a policy that leaves no endpoint marks packets for kubelet's rule to drop them (until 1.24), and
    /// so does a load balancer's source range. From 1.25 they are dropped by kube-proxy's own filter rules.
    pub(crate) fn drops_by_mark(&self) -> bool {
        self.minor <= 24
    }

    /// Whether both tables are saved before they are written, and nothing is omitted for large clusters (until 1.24).
    pub(crate) fn saves_both_tables(&self) -> bool {
        self.minor <= 24
    }

    /// Whether node ports on the loopback are left out where they cannot work (from 1.26).
    pub(crate) fn leaves_out_the_loopback(&self) -> bool {
        self.minor >= 26
    }

    /// Whether kubelet's rule about the loopback is written by kube-proxy, too (`KUBE-FIREWALL` and its jumps, from
    /// 1.27).
    pub(crate) fn writes_kubelets_firewall(&self) -> bool {
        self.minor >= 27
    }

    /// Whether a chain of source ranges ends in a rule that does nothing but say what becomes of the rest
    /// (from 1.27).
    pub(crate) fn says_what_becomes_of_the_rest(&self) -> bool {
        self.minor >= 27
    }

    /// Whether health checks of services listen on all addresses, wherever node ports are open (until 1.22, as far as was read:
    /// `service_health.go` of 1.28.15 does otherwise).
    pub(crate) fn checks_health_everywhere(&self) -> bool {
        self.minor <= 22
    }

    /// The annotations about topology hints, the first one that is there counts (service.go 1.21 and 1.28.15).
    pub(crate) fn hints_annotations(&self) -> &'static [&'static str] {
        match self.minor {
            ..27 => &["topology-aware-hints"],
            _ => &["topology-aware-hints", "topology-mode"],
        }
    }

    /// Whether any value of the hints' annotation but "disabled" asks for them (topology.go from 1.27); before it is
    /// "auto" alone.
    pub(crate) fn any_hints_annotation_counts(&self) -> bool {
        self.minor >= 27
    }

    /// Whether a restore says at -v=2 how much it writes (from 1.24).
    pub(crate) fn counts_what_it_writes(&self) -> bool {
        self.minor >= 24
    }

    /// Whether a failed restore's words stand in brackets (iptables.go until 1.23).
    pub(crate) fn brackets_restore_errors(&self) -> bool {
        self.minor <= 23
    }

    /// Whether the monitor writes plain text (iptables.go until 1.26).
    pub(crate) fn monitors_in_plain_text(&self) -> bool {
        self.minor <= 26
    }

    /// Whether the health checks of services write plain text (`service_health.go` until 1.22).
    pub(crate) fn checks_health_in_plain_text(&self) -> bool {
        self.minor <= 22
    }

    /// Whether a UDP service that gets endpoints is told of at -v=2 (until 1.26).
    pub(crate) fn tells_of_stale_services(&self) -> bool {
        self.minor <= 26
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_patches_of_1_22_take_endpoints_that_are_not_ready() {
        let takes = |text: &str| {
            let version: Version = text.parse().unwrap();
            version.takes_endpoints_that_are_not_ready()
        };
        assert!(takes("1.22.0") && takes("1.22.3"));
        assert!(!takes("1.22.4") && !takes("1.22") && !takes("1.21.0") && !takes("1.23.0"));
    }
}
