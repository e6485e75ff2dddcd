//! What a case sends.

use std::{fmt, time::Duration};

use chainbreak_probe::wire::{Connections, Protocol};
use serde::{Deserialize, Serialize};

use super::IpFamily;
use crate::names::NodeName;

/// Requests sent during the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Traffic {
    /// Where requests start.
    pub from: Origin,
    /// Where they go.
    pub to: Destination,
    /// What carries them.
    #[serde(default)]
    pub protocol: Protocol,
    /// The port: a Service's port (for `node-port`: the node port is looked up), a pod's container port.
    pub port: u16,
    /// Which of the target's addresses; its first when not given.
    #[serde(default)]
    pub family: Option<IpFamily>,
    /// Distance of two requests.
    pub every: Duration,
    /// New connections or kept ones.
    pub connections: Connections,
    /// When a request counts as timed out.
    pub timeout: Duration,
}

/// Where requests start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// `pod/client` or `pod/test/client`.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// `node/n1`.
    Node(NodeName),
    /// `host/outside`.
    Host(String),
}

impl fmt::Display for Origin {
    /// As scenarios write it, a pod with its namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(f, "pod/{namespace}/{name}"),
            Self::Node(name) => write!(f, "node/{name}"),
            Self::Host(name) => write!(f, "host/{name}"),
        }
    }
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    /// `service/test/nginx`: the cluster IP.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// `pod/test/web`: the pod's address.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// `node-port/n1/test/nginx`: the Service's node port at that node's address.
    NodePort {
        /// Which node is addressed.
        node: NodeName,
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
    },
    /// `host/db`: the first of the addresses that the scenario gives the host, else the one that the lab gives it.
    Host(String),
}

impl Destination {
    /// Namespace and name of the Service that is asked, by whatever address.
    pub fn service(&self) -> Option<(&str, &str)> {
        match self {
            Self::Service { namespace, name }
            | Self::NodePort {
                namespace, name, ..
            } => Some((namespace, name)),
            Self::Pod { .. } | Self::Host(_) => None,
        }
    }
}
