//! A recorded world: what it was made of, what happened in it, and what stood in the kernel afterwards.

use std::{collections::BTreeSet, fmt};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::standing::Delta;

/// `--proxy-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Rules of iptables.
    Iptables,
    /// A table of nft.
    Nftables,
}

impl Mode {
    /// As the flag has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The backend that the world's `iptables` had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IptablesBackend {
    /// iptables-legacy.
    Legacy,
    /// iptables-nft.
    Nft,
}

/// What a world was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Setup {
    /// What it was drawn from.
    pub seed: u64,
    /// What `iptables` was.
    #[serde(rename = "front")]
    pub backend: IptablesBackend,
    /// `--cluster-cidr`, one of each family that was served, the default first.
    pub cluster_cidrs: Vec<IpNet>,
    /// The networks of cluster IPs.
    pub service_cidrs: Vec<IpNet>,
    /// `--iptables-sync-period`. The shortest interval between syncs was none.
    pub sync_period_ms: u64,
    /// The node that kube-proxy was of.
    pub node: Value,
}

/// A world and what happened in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct World {
    /// What it was made of.
    pub setup: Setup,
    /// In order. What happens in the first one happens before kube-proxy is started.
    pub rounds: Vec<Round>,
    /// The kinds of line that it said.
    pub said: BTreeSet<String>,
}

/// Operations, and what stood in the kernel when kube-proxy had come to rest after them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Round {
    /// In order.
    #[serde(rename = "deeds")]
    pub operations: Vec<Operation>,
    /// What differs from what stood there last.
    pub after: Delta,
    /// Whether it never got there: it failed, again and again, to write what it was told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// The API had this object from now on.
    Put(Value),
    /// The API had it no more: its kind, namespace and name.
    Delete {
        /// `Service` or `EndpointSlice`.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A third party changed rules while kube-proxy stood still.
    Harm {
        /// What was done.
        what: String,
        /// What differed from what stood there before.
        after: Delta,
        /// What kube-proxy said because of it, before anything else happened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noticed_by: Option<String>,
    },
}
