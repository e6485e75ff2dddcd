//! Whose a chain or a rule is, told from names and comments.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rule::Rule;

/// Who made a chain or a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// kube-proxy.
    KubeProxy,
    /// The kubelet.
    Kubelet,
    /// Calico's Felix.
    Felix,
    /// Nobody: the kernel does it without a rule.
    Kernel,
    /// A person, another program; a built-in chain.
    Other,
}

/// Every prefix that Felix ever gave to its chains (Calico v3.28.1, `rule_defs.go`).
const FELIX_CHAINS: [&str; 8] = [
    "cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-",
];

/// Chains that only the kubelet makes (Kubernetes 1.32, `kubelet_network_linux.go`). `KUBE-FIREWALL`,
/// `KUBE-MARK-DROP` and `KUBE-MARK-MASQ` are made by both in turn; they count as kube-proxy's.
const KUBELET_CHAINS: [&str; 2] = ["KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"];

impl Owner {
    /// Whose a chain of this name is.
    pub fn of_chain(name: &str) -> Self {
        if KUBELET_CHAINS.contains(&name) {
            Self::Kubelet
        } else if name.starts_with("KUBE-") {
            Self::KubeProxy
        } else if FELIX_CHAINS.iter().any(|prefix| name.starts_with(prefix)) {
            Self::Felix
        } else {
            Self::Other
        }
    }

    /// Whose a rule in this chain is: Felix signs its rules; else the chain it stands in decides, and in a
    /// built-in chain the one it jumps to.
    pub fn of_rule(chain: &str, rule: &Rule) -> Self {
        if rule
            .comment()
            .is_some_and(|comment| comment.starts_with("cali:"))
        {
            return Self::Felix;
        }
        match Self::of_chain(chain) {
            Self::Other => rule
                .target()
                .map_or(Self::Other, |target| Self::of_chain(&target)),
            owner => owner,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::KubeProxy => "kube-proxy",
            Self::Kubelet => "kubelet",
            Self::Felix => "felix",
            Self::Kernel => "kernel",
            Self::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_and_rules_have_owners() {
        assert_eq!(
            Owner::of_chain("KUBE-SVC-IU46S4VZFN77LK6S"),
            Owner::KubeProxy
        );
        assert_eq!(Owner::of_chain("KUBE-KUBELET-CANARY"), Owner::Kubelet);
        assert_eq!(Owner::of_chain("cali-FORWARD"), Owner::Felix);
        assert_eq!(Owner::of_chain("calico"), Owner::Other);
        let jump =
            Rule::new(r#"-m comment --comment "kubernetes service portals" -j KUBE-SERVICES"#);
        assert_eq!(Owner::of_rule("PREROUTING", &jump), Owner::KubeProxy);
        let accept = Rule::new(r#"-m comment --comment "cali:S93hcgKJrXEqnTfs" -j ACCEPT"#);
        assert_eq!(Owner::of_rule("FORWARD", &accept), Owner::Felix);
        assert_eq!(
            Owner::of_rule("FORWARD", &Rule::new("-j ACCEPT")),
            Owner::Other
        );
    }
}
