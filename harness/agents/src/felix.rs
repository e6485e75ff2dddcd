//! Model of Calico's Felix, v3.25 to v3.32: the iptables side, in iptables mode and in BPF mode.
//!
//! [`run`] is one life of the process. It keeps Felix's chains (`cali-…`, with the ids Felix gives its
//! rules) and its rules in kernel chains, reads the tables again when Felix would, and mends what others
//! changed. In BPF mode it takes kube-proxy's chains for an older Felix's and deletes them, unless
//! `bpfKubeProxyIptablesCleanupEnabled` is false. It is told nothing of kube-proxy.
//!
//! What a model cannot do:
//! - **BPF programs.** Where [`Config::programs`] says that they work, a table of nftables stands in for them
//!   (`programs`, fed by `nat_map`). Else only the iptables rules around them are there, as on a node that cannot load them. With
//!   nobody to set the "Seen" mark, `-i cali+` not Seen → DROP drops what comes from every pod whose interface
//!   Calico owns; pods of a third-party CNI (`eni…`) are not touched. Service NAT by BPF is missing then, too.
//! - **Policies, host endpoints, floating IPs, IPIP, `WireGuard`, IPVS, the native nftables dataplane.** Where a
//!   real Felix would use nftables, because kube-proxy does, the model says so and writes through iptables all the same.
//!   A pod has the profiles of its namespace and its service account, which allow everything.
//! - Routes, interfaces and sysctls are the lab's.
//!
//! `params` reads the configuration; [`version`] says what changed when; `renderer` with
//! `static_iptables`, `static_bpf`, `endpoints` and `dispatch` say what shall be; `table` with
//! `load`, `plan` and `timers` decides; `detect`, `stack`, `apply` and `life` talk to the world.

use std::{collections::BTreeMap, net::IpAddr};

mod apply;
mod datastore;
mod detect;
mod dispatch;
mod endpoints;
mod hashes;
mod kube_nft;
mod life;
mod load;
mod log;
mod nat_map;
mod params;
mod patterns;
mod plan;
mod programs;
mod proxy_mode;
mod renderer;
mod rule;
mod sets;
mod stack;
mod static_bpf;
mod static_iptables;
mod table;
mod throttle;
mod timers;
mod value;
pub mod version;
mod world;

#[cfg(test)]
mod rules_tests;

pub use datastore::{Attempt, Unreached};
pub use endpoints::Workload;
pub use life::run;
pub use programs::{NOTHING_ATTACHED, lost_with_the_pod, lost_with_the_process, written};
pub use sets::Pool;
pub use version::{UnknownVersion, Version};

use crate::kube_proxy;

/// What Felix is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The `spec` of FelixConfiguration `default`, as the API has it.
    Config(serde_json::Map<String, serde_json::Value>),
    /// A pod of this node came or changed.
    Workload(Workload),
    /// A pod of this node went.
    WorkloadGone {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
    /// All IP pools.
    Pools(Vec<Pool>),
    /// The addresses of all nodes: who may send VXLAN packets.
    Nodes(Vec<IpAddr>),
    /// What Felix's own proxy is told of services and endpoints, in BPF mode.
    Proxied(kube_proxy::Event),
    /// Everything that was there at the start has been told.
    InSync,
    /// The API did not answer.
    Unreached(Unreached),
}

/// What is set outside of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Which Felix.
    pub version: Version,
    /// The node's name, for the log.
    pub node_name: String,
    /// The process's environment; `FELIX_…` wins over FelixConfiguration.
    pub env: BTreeMap<String, String>,
    /// `Ipv6Support` where neither of them sets it.
    pub ipv6: bool,
    /// Whether its eBPF programs work: the model's is a table in their place.
    pub programs: bool,
    /// Decides what Go's maps decide by chance: the order of chains in a write.
    pub seed: u64,
}

/// The environment that Calico's manifests give Felix, as far as its rules go by it, but for `Ipv6Support`, which is a cluster's. It wins over
/// FelixConfiguration.
pub fn manifest_environment() -> BTreeMap<String, String> {
    let settings = [("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT")];
    let owned = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    owned.into()
}

/// Which kernel interface iptables uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Legacy,
    Nft,
}

impl Backend {
    fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Nft => "nft",
        }
    }
}

/// Where Felix puts its rules in kernel chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InsertMode {
    Insert,
    Append,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// The device that carries its pods between nodes.
    fn vxlan_device(self) -> &'static str {
        match self {
            Self::V4 => "vxlan.calico",
            Self::V6 => "vxlan-v6.calico",
        }
    }

    /// As nft writes it.
    fn nft(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// As Felix logs it.
    fn hex(self) -> &'static str {
        match self {
            Self::V4 => "0x4",
            Self::V6 => "0x6",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }
}
