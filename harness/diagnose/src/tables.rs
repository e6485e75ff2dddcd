//! The rules of iptables, by front end and family, wherever in the dumps they stand.

use std::fmt;

use chainbreak_netfilter::{Chain, Family, Owner, Rule, Ruleset, nft::NftTable, replay::Backend};

use crate::{Evidence, printed};

/// Chains that kube-proxy makes in iptables mode and nobody else: others whose names begin with `KUBE-` are the kubelet's, too, or
/// kube-router's (kube-proxy and kubelet 1.20 to 1.36).
const SERVICES: [&str; 4] = [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-PROXY-FIREWALL",
];
/// What the names of its chains for a port of a service begin with.
const PORTS: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SEP-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SVL-",
    "KUBE-XLB-",
];
/// Chains of its ipvs mode.
const IPVS: [&str; 2] = ["KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"];
/// The empty chain by which it notices that its rules were flushed.
pub(crate) const CANARY: &str = "KUBE-PROXY-CANARY";

/// What of kube-proxy is among rules of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KubeProxy {
    /// Chains of services.
    Iptables,
    /// Only its canary: it is there and its chains are not, or it was there.
    Canary,
    /// Its ipvs mode, which is not judged.
    Ipvs,
    /// Nothing.
    None,
}

/// The tables of one front end and family.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) family: Family,
    pub(crate) backend: Option<Backend>,
    pub(crate) ruleset: Ruleset,
    /// Whether nft printed some of them, and not iptables: without comments.
    pub(crate) is_printed: bool,
}

impl fmt::Display for Tables {
    /// `legacy, IPv4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        match self.backend {
            _ if self.is_printed => write!(f, "nft, {family}, at least in part as nft prints it"),
            Some(Backend::Legacy) => write!(f, "legacy, {family}"),
            Some(Backend::Nft) => write!(f, "nft, {family}"),
            None => f.write_str(family),
        }
    }
}

impl Tables {
    /// All of a node, those of one front end and family together. A table that comes again is another's, or was attached twice: it stays apart.
    pub(crate) fn of(evidence: &Evidence) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let saves = evidence.dumps.saves().iter().map(|save| Self {
            family: save.family,
            backend: save.backend,
            ruleset: save.ruleset.clone(),
            is_printed: false,
        });
        for one in saves.chain(printed::tables(evidence)) {
            let is_it = |it: &&mut Self| {
                let has = |name: &String| it.ruleset.tables.contains_key(name);
                let same = it.family == one.family && it.backend == one.backend;
                same && !one.ruleset.tables.keys().any(has)
            };
            match all.iter_mut().find(is_it) {
                Some(known) => {
                    known.ruleset.tables.extend(one.ruleset.tables);
                    known.is_printed |= one.is_printed;
                }
                None => all.push(one),
            }
        }
        all
    }

    /// Whether there is one of the family and the name of a table of nft's.
    pub(crate) fn has(&self, table: &NftTable) -> bool {
        self.family.of_nft() == table.family && self.ruleset.tables.contains_key(&table.name)
    }

    pub(crate) fn chain(&self, table: &str, chain: &str) -> Option<&Chain> {
        self.ruleset.chain(table, chain)
    }

    /// The rules of a chain; none of one that is not there.
    pub(crate) fn rules(&self, table: &str, chain: &str) -> &[Rule] {
        self.chain(table, chain).map_or(&[], |chain| &chain.rules)
    }

    /// Every chain of every table.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (&str, &str, &Chain)> {
        self.ruleset.tables.iter().flat_map(|(table, it)| {
            let chains = it.chains.iter();
            chains.map(move |(name, chain)| (table.as_str(), name.as_str(), chain))
        })
    }

    /// Whether Felix has a chain here.
    pub(crate) fn has_felix(&self) -> bool {
        self.chains()
            .any(|(_, name, _)| Owner::of_chain(name) == Owner::Felix)
    }

    /// Whether what comes in is led to kube-proxy's services.
    pub(crate) fn leads_in(&self) -> bool {
        let to = Some("KUBE-SERVICES");
        self.ruleset.count("nat", "PREROUTING", to) > 0
    }

    /// What of kube-proxy is here.
    pub(crate) fn kube_proxy(&self) -> KubeProxy {
        let is_led =
            |name: &str| SERVICES.contains(&name) || PORTS.iter().any(|it| name.starts_with(it));
        let has = |is: &dyn Fn(&str) -> bool| self.chains().any(|(_, name, _)| is(name));
        if has(&|name| IPVS.contains(&name)) {
            KubeProxy::Ipvs
        } else if has(&is_led) {
            KubeProxy::Iptables
        } else if has(&|name| name == CANARY) {
            KubeProxy::Canary
        } else {
            KubeProxy::None
        }
    }
}
