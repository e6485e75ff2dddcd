//! What of a node does not fit together, as `chainbreak diagnose` finds it and as scenarios name it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something of a node that does not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Symptom {
    /// A jump into kube-proxy's chains of iptables is not there.
    JumpMissing,
    /// kube-proxy's chain of all services is empty.
    ServicesEmpty,
    /// A service's chain leads to no endpoint.
    ServiceLeadsNowhere,
    /// kube-proxy's table of nftables lacks chains that the kernel calls.
    ChainsMissing,
    /// No element of kube-proxy's maps of nftables leads to a service's chain.
    ElementsMissing,
    /// kube-proxy's rules are in both front ends of iptables.
    BothBackends,
    /// kube-proxy's rules of iptables stand beside its table of nftables.
    BothModes,
    /// Rules lead to other endpoints than the API holds.
    EndpointsDiffer,
    /// Felix's NAT map leads to other endpoints than the API holds.
    NatMapDiffers,
    /// No rule leads a service that has endpoints.
    ServiceWithoutRules,
    /// conntrack leads connections to endpoints that are gone.
    StaleConnections,
    /// Felix in eBPF mode deletes the chains of a kube-proxy beside it.
    FelixCleansUp,
    /// Felix has begun, and has brought nothing in line since.
    FelixWaits,
    /// Felix in eBPF mode attaches no programs to the node's interface.
    InterfaceWithoutPrograms,
    /// The node passes nothing on.
    NoForwarding,
    /// conntrack's table is full.
    ConntrackFull,
    /// conntrack dropped packets for want of a place in its table.
    ConntrackDropped,
    /// conntrack dropped packets because another connection had their addresses and ports.
    ConntrackInsertFailed,
    /// Packets were dropped that conntrack calls INVALID.
    InvalidDropped,
    /// kube-proxy's rules are not written: its restores or transactions fail.
    RestoreFails,
    /// The kernel or its tools lack what an agent's rules need.
    KernelLacks,
    /// kube-proxy cannot use the mode that it was told to use.
    ModeRefused,
    /// Felix cannot use eBPF as it was told to.
    EbpfRefused,
    /// An agent does not reach the API.
    ApiUnreachable,
    /// An agent's port is another's.
    PortTaken,
    /// An agent did not get the lock of the legacy iptables in time.
    LockHeld,
    /// conntrack leads connections to a Service's own address, as no rule translated them when they began.
    ConnectionsUntranslated,
}

impl Symptom {
    /// Each with its word.
    pub const ALL: [(&'static str, Self); 27] = [
        ("jump-missing", Self::JumpMissing),
        ("services-empty", Self::ServicesEmpty),
        ("service-leads-nowhere", Self::ServiceLeadsNowhere),
        ("chains-missing", Self::ChainsMissing),
        ("elements-missing", Self::ElementsMissing),
        ("both-backends", Self::BothBackends),
        ("both-modes", Self::BothModes),
        ("endpoints-differ", Self::EndpointsDiffer),
        ("nat-map-differs", Self::NatMapDiffers),
        ("service-without-rules", Self::ServiceWithoutRules),
        ("stale-connections", Self::StaleConnections),
        ("felix-cleans-up", Self::FelixCleansUp),
        ("felix-waits", Self::FelixWaits),
        ("interface-without-programs", Self::InterfaceWithoutPrograms),
        ("no-forwarding", Self::NoForwarding),
        ("conntrack-full", Self::ConntrackFull),
        ("conntrack-dropped", Self::ConntrackDropped),
        ("conntrack-insert-failed", Self::ConntrackInsertFailed),
        ("invalid-dropped", Self::InvalidDropped),
        ("restore-fails", Self::RestoreFails),
        ("kernel-lacks", Self::KernelLacks),
        ("mode-refused", Self::ModeRefused),
        ("ebpf-refused", Self::EbpfRefused),
        ("api-unreachable", Self::ApiUnreachable),
        ("port-taken", Self::PortTaken),
        ("lock-held", Self::LockHeld),
        ("connections-untranslated", Self::ConnectionsUntranslated),
    ];
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(_, symptom)| symptom == self);
        f.pad(word.map_or("", |(word, _)| word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symptom_is_written_as_scenarios_name_it() {
        for (word, symptom) in Symptom::ALL {
            assert_eq!(serde_json::to_value(symptom).unwrap(), word);
            assert_eq!(symptom.to_string(), word);
        }
    }
}
