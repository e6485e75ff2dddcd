//! Of what a dump may be, by the command that prints it.

use std::fmt;

/// What a dump is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `iptables-save` or `ip6tables-save`.
    Save,
    /// `nft list ruleset` or `nft list table`.
    Nft,
    /// `conntrack -L`.
    Flows,
    /// `conntrack -S`.
    Statistics,
    /// `ip route`.
    Routes,
    /// `ip rule`.
    Rules,
    /// `ip addr`.
    Addresses,
    /// `sysctl -a`.
    Sysctls,
    /// `ipset save` or `ipset list`.
    Sets,
    /// `calico-node -bpf nat dump`.
    NatMap,
    /// `calico-node -bpf conntrack dump`.
    FelixFlows,
    /// `calico-node -bpf routes dump`.
    FelixRoutes,
    /// `calico-node -bpf ipsets dump`.
    FelixSets,
    /// The files of `/var/run/calico/bpf/policy`.
    FelixPolicies,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Save => "iptables-save",
            Self::Nft => "nft list ruleset",
            Self::Flows => "conntrack -L",
            Self::Statistics => "conntrack -S",
            Self::Routes => "ip route show table all",
            Self::Rules => "ip rule",
            Self::Addresses => "ip addr",
            Self::Sysctls => "sysctl -a",
            Self::Sets => "ipset save",
            Self::NatMap => "calico-node -bpf nat dump",
            Self::FelixFlows => "calico-node -bpf conntrack dump",
            Self::FelixRoutes => "calico-node -bpf routes dump",
            Self::FelixSets => "calico-node -bpf ipsets dump",
            Self::FelixPolicies => "/var/run/calico/bpf/policy/*.json",
        })
    }
}
