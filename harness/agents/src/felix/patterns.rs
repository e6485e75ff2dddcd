//! What Felix takes for its own in `iptables-save`'s text, and, when it cleans up after kube-proxy,
//! what it takes for an older Felix's (`felix/rules/rule_defs.go` and `felix/iptables/table.go`).
//!
//! The lists are from before kube-proxy 1.24, unchanged in every version: `KUBE-EXT-` and `KUBE-SVL-`
//! chains survive, and only their rules that jump to the listed ones go.

use regex::Regex;

const OWN_PREFIXES: [&str; 8] = [
    "cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-",
];
const KUBE_PROXY_PREFIXES: [&str; 8] = [
    "KUBE-FORWARD",
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-SVC-",
    "KUBE-SEP-",
    "KUBE-FW-",
    "KUBE-XLB-",
];
const KUBE_PROXY_INSERTS: &str = r"-j KUBE-[a-zA-Z0-9-]*SERVICES|-j KUBE-FORWARD";
const OLD_NAT_INSERTS: &str = "-A POSTROUTING .* felix-masq-ipam-pools .*|\
     -A POSTROUTING -o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE";

/// The expressions of one table.
#[derive(Debug, Clone)]
pub(super) struct Patterns {
    own_chain: Regex,
    old_insert: Regex,
    id: Regex,
}

impl Patterns {
    /// The expressions for a table; with `kube_proxy`, its chains count as an older Felix's.
    pub(super) fn new(table: &str, kube_proxy: bool) -> Self {
        let mut prefixes = OWN_PREFIXES.to_vec();
        let mut old: Vec<String> = Vec::new();
        if kube_proxy {
            prefixes.extend(KUBE_PROXY_PREFIXES);
        }
        old.extend(
            prefixes
                .iter()
                .map(|prefix| format!("(?:-j|--jump) {prefix}")),
        );
        old.extend(kube_proxy.then(|| KUBE_PROXY_INSERTS.to_owned()));
        old.extend((table == "nat").then(|| OLD_NAT_INSERTS.to_owned()));
        let compile = |pattern: &str| Regex::new(pattern).expect("Felix's patterns are valid");
        Self {
            own_chain: compile(&format!("^({})", prefixes.join("|"))),
            old_insert: compile(&old.join("|")),
            id: compile(r#"--comment "?cali:([a-zA-Z0-9_-]+)"?"#),
        }
    }

    /// Whether the chain is Felix's to rewrite and delete.
    pub(super) fn is_own(&self, chain: &str) -> bool {
        self.own_chain.is_match(chain)
    }

    /// Whose rule a line of `iptables-save` is.
    pub(super) fn id(&self, line: &str) -> Id {
        match self.id.captures(line).and_then(|found| found.get(1)) {
            Some(id) => Id::Ours(id.as_str().to_owned()),
            None if self.old_insert.is_match(line) => Id::Old,
            None => Id::Foreign,
        }
    }

    /// The expression that finds an older Felix's rules, for the log.
    pub(super) fn old_insert(&self) -> &str {
        self.old_insert.as_str()
    }
}

/// Whose rule it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Id {
    /// Nobody's that Felix cares for.
    Foreign,
    /// An older Felix's, or kube-proxy's under cleanup.
    Old,
    /// Felix's own, by its id.
    Ours(String),
}

impl Id {
    /// How Felix logs it.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Foreign => "",
            Self::Old => "OLD INSERT RULE",
            Self::Ours(id) => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleanup_owns_exactly_the_listed_chains() {
        let cleanup = Patterns::new("nat", true);
        let own = [
            "KUBE-SERVICES",
            "KUBE-EXTERNAL-SERVICES",
            "KUBE-NODEPORTS",
            "KUBE-FORWARD",
            "KUBE-SVC-A",
            "KUBE-SEP-A",
            "KUBE-FW-A",
            "KUBE-XLB-A",
            "cali-INPUT",
            "felix-x",
        ];
        let foreign = [
            "KUBE-EXT-A",
            "KUBE-SVL-A",
            "KUBE-PROXY-FIREWALL",
            "KUBE-POSTROUTING",
            "KUBE-MARK-MASQ",
            "KUBE-MARK-DROP",
            "KUBE-FIREWALL",
            "KUBE-IPTABLES-HINT",
            "KUBE-KUBELET-CANARY",
            "KUBE-PROXY-CANARY",
            "KUBE-NODE-PORT",
            "KUBE-LOAD-BALANCER",
            "calico-x",
            "INPUT",
            "MY-KUBE-SVC-A",
        ];
        assert!(own.iter().all(|chain| cleanup.is_own(chain)));
        assert!(!foreign.iter().any(|chain| cleanup.is_own(chain)));
        let plain = Patterns::new("nat", false);
        assert!(plain.is_own("cali-INPUT") && !plain.is_own("KUBE-SERVICES"));
    }

    #[test]
    fn cleanup_claims_rules_by_their_target_anywhere_in_the_line() {
        let cleanup = Patterns::new("filter", true);
        let old = [
            "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES",
            "-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS",
            "-A KUBE-EXT-A -j KUBE-SVC-A",
            "-A X -j KUBE-MY-OWN-SERVICES",
            "-A X --jump KUBE-SEP-A",
            "-A INPUT -j cali-INPUT",
        ];
        let foreign = [
            "-A KUBE-EXT-A -j KUBE-MARK-MASQ",
            "-A KUBE-EXT-A -j KUBE-SVL-A",
            "-A INPUT -j KUBE-FIREWALL",
            "-A POSTROUTING -j KUBE-POSTROUTING",
            "-A INPUT -j KUBE-PROXY-FIREWALL",
            "-A X -g KUBE-SERVICES",
        ];
        assert!(old.iter().all(|line| cleanup.id(line) == Id::Old));
        assert!(foreign.iter().all(|line| cleanup.id(line) == Id::Foreign));
        let own = "-A INPUT -m comment --comment \"cali:Cz_u1IQiXIMmKD4c\" -j cali-INPUT";
        assert_eq!(cleanup.id(own), Id::Ours("Cz_u1IQiXIMmKD4c".to_owned()));
        let bare = "-A INPUT -m comment --comment cali:Cz_u1IQiXIMmKD4c -j cali-INPUT";
        assert_eq!(cleanup.id(bare), Id::Ours("Cz_u1IQiXIMmKD4c".to_owned()));
    }

    #[test]
    fn only_nat_knows_the_old_masquerade_rules() {
        let line = "-A POSTROUTING -m set --match-set felix-masq-ipam-pools src -j MASQUERADE";
        assert_eq!(Patterns::new("nat", false).id(line), Id::Old);
        assert_eq!(Patterns::new("filter", false).id(line), Id::Foreign);
        let text = Patterns::new("nat", true);
        assert!(
            text.old_insert()
                .contains("|-j KUBE-[a-zA-Z0-9-]*SERVICES|-j KUBE-FORWARD|-A POSTROUTING")
        );
    }
}
