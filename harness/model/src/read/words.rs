//! Words that several mappings take, with what they mean.

use crate::{
    case::{Family, IptablesVariant, RuleBackend},
    language::Kind,
};

/// A node of the cluster.
pub(super) const NODE: Kind = Kind::Form("^n[0-9]+$", "n1");
pub(super) const KUBE_PROXY_VERSION: Kind = Kind::Version("^1\\.[0-9]+(\\.[0-9]+)?$", "1.32");
pub(super) const CALICO_VERSION: Kind = Kind::Version("^v3\\.[0-9]+(\\.[0-9]+)?$", "v3.28.1");

/// Which iptables a node has.
pub(super) const IPTABLES: [(&str, IptablesVariant); 2] = [
    ("legacy", IptablesVariant::Legacy),
    ("nft", IptablesVariant::Nft),
];

/// Through what rules are asked for, or touched.
pub(super) const BACKENDS: [(&str, RuleBackend); 3] = [
    ("legacy", RuleBackend::Legacy),
    ("nft", RuleBackend::Nft),
    ("nftables", RuleBackend::Nftables),
];

/// Of which packets rules are.
pub(super) const FAMILIES: [(&str, Family); 3] = [
    ("ip", Family::Ip),
    ("ip6", Family::Ip6),
    ("inet", Family::Inet),
];

/// iptables' tables.
pub(super) const TABLES: [(&str, &str); 4] = [
    ("nat", "nat"),
    ("filter", "filter"),
    ("mangle", "mangle"),
    ("raw", "raw"),
];
