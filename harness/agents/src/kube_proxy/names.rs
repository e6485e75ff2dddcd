//! Names of services' ports and the names of chains made from them.
//!
//! A chain's name ends in the first sixteen characters of the base32 of a SHA-256, over the port's
//! name and the lower-case protocol, and the endpoint for `KUBE-SEP-`: nothing stands between them.

use std::{fmt, net::SocketAddr};

use data_encoding::BASE32;
use sha2::{Digest, Sha256};

/// How much of a hash is in the names of iptables' chains.
const HASH: usize = 16;

/// A namespace and a name in it. Printed as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespaced {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for Namespaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Namespaced {
    /// Both as they are.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// The protocols that a service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// As the API writes it; absent means TCP.
    pub(crate) fn from_api(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// One port of one service. Printed as `namespace/name:port`, without the colon when the port has
/// no name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortName {
    pub(crate) service: Namespaced,
    pub(crate) port: String,
    pub(crate) protocol: Protocol,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Namespaced { namespace, name } = &self.service;
        match self.port.as_str() {
            "" => write!(f, "{namespace}/{name}"),
            port => write!(f, "{namespace}/{name}:{port}"),
        }
    }
}

impl PortName {
    /// What the chains of this port share behind their prefixes.
    pub(crate) fn hash(&self) -> String {
        hash(&format!("{self}{}", self.protocol), HASH)
    }

    /// The chain of one endpoint, which belongs to this port alone.
    pub(crate) fn endpoint_chain(&self, endpoint: SocketAddr) -> String {
        let hash = hash(&format!("{self}{}{endpoint}", self.protocol), HASH);
        format!("KUBE-SEP-{hash}")
    }
}

/// The first characters of the base32 of a SHA-256.
pub(crate) fn hash(text: &str, length: usize) -> String {
    let mut encoded = BASE32.encode(&Sha256::digest(text));
    encoded.truncate(length);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str, name: &str, port: &str, protocol: Protocol) -> PortName {
        PortName {
            service: Namespaced::new(namespace, name),
            port: port.to_owned(),
            protocol,
        }
    }

    #[test]
    fn chains_have_the_names_that_kube_proxy_gives_them() {
        let nginx = name("test", "nginx", "http", Protocol::Tcp);
        assert_eq!(nginx.hash(), "IU46S4VZFN77LK6S");
        for (endpoint, chain) in [
            ("10.20.10.127:80", "KUBE-SEP-XAAQ4E3V5J6GEKUJ"),
            ("10.20.11.179:80", "KUBE-SEP-S7XCV467AW272WRX"),
            ("10.20.10.218:80", "KUBE-SEP-K34D3XS7VWEHKFPE"),
        ] {
            assert_eq!(nginx.endpoint_chain(endpoint.parse().unwrap()), chain);
        }
        for (port, hash) in [
            (
                name("default", "kubernetes", "https", Protocol::Tcp),
                "NPX46M4PTMTKRN6Y",
            ),
            (
                name("kube-system", "kube-dns", "dns", Protocol::Udp),
                "TCOU7JCQXEZGVUNU",
            ),
            (
                name("kube-system", "kube-dns", "dns-tcp", Protocol::Tcp),
                "ERIFXISQEP7F7OF4",
            ),
            (
                name("default", "web", "", Protocol::Tcp),
                "LOLE4ISW44XBNF3G",
            ),
            (
                name("test", "lb", "http", Protocol::Tcp),
                "VGUOL4GRNAEO3TE3",
            ),
        ] {
            assert_eq!(port.hash(), hash, "{port}");
        }
    }

    #[test]
    fn a_port_without_a_name_leaves_no_colon() {
        let web = name("default", "web", "", Protocol::Tcp);
        assert_eq!(web.to_string(), "default/web");
    }
}
