//! The network around a cluster's nodes: hosts outside, pools of pod addresses, and what a CNI does.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::names::NodeName;

/// A host outside the cluster, on the nodes' network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostSpec {
    /// Addresses beside the one that the backend gives it. Everybody on the nodes' network has a route to them.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Its routes beside those to its own network and the default one.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The port at which nginx answers there.
    #[serde(default)]
    pub nginx: Option<u16>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Route {
    /// What it leads to.
    pub to: IpNet,
    /// The next hop.
    pub via: Via,
}

/// A next hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Whoever has that address.
    Address(IpAddr),
    /// A node, by its address on the nodes' network.
    Node(NodeName),
    /// Another host, likewise.
    Host(String),
}

/// A pool of pod addresses: Calico's `IPPool`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PoolSpec {
    /// By which pods choose it.
    pub name: String,
    /// Its addresses.
    pub cidr: IpNet,
    /// Whether packets between nodes travel in VXLAN.
    pub vxlan: Vxlan,
    /// Felix masquerades packets from it to outside of every pool.
    pub nat_outgoing: bool,
}

/// `vxlanMode` of an `IPPool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vxlan {
    /// Packets are routed.
    Never,
    /// Packets are routed between nodes of one subnet.
    CrossSubnet,
    /// Packets between nodes are encapsulated.
    Always,
}

/// What a CNI does that owns the pods' interfaces, as Amazon's VPC CNI does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CniSpec {
    /// `AWS_VPC_K8S_CNI_EXTERNALSNAT`: somebody else translates addresses, the nodes do not.
    pub external_snat: bool,
    /// `AWS_VPC_K8S_CNI_RANDOMIZESNAT`.
    pub randomize_snat: RandomizeSnat,
    /// Networks to which pods go with their own address; those of nodes and pods when empty.
    pub vpc_cidrs: Vec<IpNet>,
}

/// How the source port of a translated connection is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RandomizeSnat {
    /// `--random-fully`.
    Prng,
    /// `--random`.
    Hashrandom,
    /// The client's own port as long as nobody else has it.
    None,
}
