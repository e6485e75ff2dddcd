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

/// What a program's own are known by.
struct Marks {
    owner: Owner,
    /// Whole names of chains.
    chains: &'static [&'static str],
    /// What its other chains' names begin with.
    prefixes: &'static [&'static str],
    /// What the comments of its rules begin with, if it signs them.
    signature: Option<&'static str>,
    /// Its nft table.
    table: Option<&'static str>,
}

/// Of every program that is known; the first that a thing fits has it.
static MARKS: [Marks; 3] = [
    Marks {
        owner: Owner::Kubelet,
        // Chains that only the kubelet makes (Kubernetes 1.32, `kubelet_network_linux.go`). `KUBE-FIREWALL`,
        // `KUBE-MARK-DROP` and `KUBE-MARK-MASQ` are made by kube-proxy, too, in turn; they count as its.
        chains: &["KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"],
        prefixes: &[],
        signature: None,
        table: None,
    },
    Marks {
        owner: Owner::KubeProxy,
        chains: &[],
        prefixes: &["KUBE-"],
        signature: None,
        table: Some("kube-proxy"),
    },
    Marks {
        owner: Owner::Felix,
        chains: &[],
        // Every prefix that it ever gave (Calico v3.28.1, `rule_defs.go`).
        prefixes: &[
            "cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-",
        ],
        signature: Some("cali:"),
        table: Some("calico"),
    },
];

impl Owner {
    /// Whose a chain of this name is.
    pub fn of_chain(name: &str) -> Self {
        let fits = |marks: &Marks| {
            marks.chains.contains(&name) || marks.prefixes.iter().any(|it| name.starts_with(it))
        };
        Self::known(fits).unwrap_or(Self::Other)
    }

    /// Whose a rule in this chain is: who signs it; else the chain it stands in decides, and in a built-in chain the
    /// one it jumps to.
    pub fn of_rule(chain: &str, rule: &Rule) -> Self {
        let signed = rule.comment().and_then(|comment| {
            let signs = |mark: &str| comment.starts_with(mark);
            Self::known(|marks| marks.signature.is_some_and(signs))
        });
        signed.unwrap_or_else(|| match Self::of_chain(chain) {
            Self::Other => rule
                .target()
                .map_or(Self::Other, |target| Self::of_chain(&target)),
            owner => owner,
        })
    }

    /// Whose an nft table of this name is, where somebody is known to have it.
    pub(crate) fn of_table(name: &str) -> Option<Self> {
        Self::known(|marks| marks.table == Some(name))
    }

    fn known(fits: impl Fn(&Marks) -> bool) -> Option<Self> {
        let marks = MARKS.iter().find(|marks| fits(marks));
        marks.map(|marks| marks.owner)
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
