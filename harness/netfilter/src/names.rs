//! Names of services' ports, and of the chains that kube-proxy calls after them.
//!
//! In iptables mode a chain's name ends in the first sixteen characters of the base32 of a SHA-256, over the port's
//! name and the lower-case protocol, and the endpoint for `KUBE-SEP-`: nothing stands between them. In nftables mode it
//! ends in eight characters of such a hash, so that names differ early, and then in what it belongs to in clear text.

use std::{fmt, net::SocketAddr};

use data_encoding::BASE32;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The prefix of the sets of nftables mode that remember clients.
pub const AFFINITY: &str = "affinity-";

/// How much of a hash is in the names of iptables' chains.
const HASH: usize = 16;
/// How much of one is in those of nftables' chains.
const SHORT_HASH: usize = 8;
/// nft takes 256 characters, of which the longest prefix may have 16 (proxier.go, `chainNameBaseLengthMax`).
const LONGEST: usize = 240;

/// A namespace and a name in it. Printed as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// As the API writes it; absent means TCP.
    pub fn from_api(text: Option<&str>) -> Option<Self> {
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

/// A kind of chain that kube-proxy has for a service's port, in nftables mode and, from 1.24 on, in iptables mode: before
/// that `KUBE-XLB-` was in place of [`Local`](Self::Local) and [`External`](Self::External). In iptables mode all of them
/// are in the table nat (1.20 … 1.36, proxier.go).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceChain {
    /// The endpoints for the cluster policy.
    Service,
    /// The endpoints for the local policy.
    Local,
    /// Where traffic from outside comes in.
    External,
    /// What stands before a load balancer's address that has source ranges.
    Firewall,
}

impl ServiceChain {
    /// Each with its word.
    pub const ALL: [(&'static str, Self); 4] = [
        ("service", Self::Service),
        ("local", Self::Local),
        ("external", Self::External),
        ("firewall", Self::Firewall),
    ];

    /// What stands before a port's [`hash`](PortName::hash) in iptables mode.
    pub const fn iptables_prefix(self) -> &'static str {
        match self {
            Self::Service => "KUBE-SVC-",
            Self::Local => "KUBE-SVL-",
            Self::External => "KUBE-EXT-",
            Self::Firewall => "KUBE-FW-",
        }
    }

    /// What stands before a port's [`base`](PortName::base) in nftables mode.
    pub const fn nftables_prefix(self) -> &'static str {
        match self {
            Self::Service => "service-",
            Self::Local => "local-",
            Self::External => "external-",
            Self::Firewall => "firewall-",
        }
    }
}

/// One port of one service. Printed as `namespace/name:port`, without the colon when the port has
/// no name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortName {
    /// The service.
    pub service: Namespaced,
    /// The port's name; empty without one.
    pub port: String,
    /// The port's protocol.
    pub protocol: Protocol,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = &self.service;
        match self.port.as_str() {
            "" => service.fmt(f),
            port => write!(f, "{service}:{port}"),
        }
    }
}

impl PortName {
    /// What the chains of this port share behind their prefixes in iptables mode.
    pub fn hash(&self) -> String {
        hash(&format!("{self}{}", self.protocol), HASH)
    }

    /// What they share in nftables mode: `3DQLO4TQ-test/nginx/tcp/http`.
    pub fn base(&self) -> String {
        hashed(&self.plain())
    }

    /// Its chain of that kind in iptables mode.
    pub fn iptables_chain(&self, chain: ServiceChain) -> String {
        format!("{}{}", chain.iptables_prefix(), self.hash())
    }

    /// The port whose chain in nftables mode that is, of whichever kind: the name stands in it in clear text
    /// (`endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80`).
    pub fn of_nftables_chain(chain: &str) -> Option<Self> {
        let mut parts = chain.splitn(3, '-').nth(2)?.split('/');
        let service = Namespaced::new(parts.next()?, parts.next()?);
        let protocol = parts.next()?;
        let mut known = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter();
        Some(Self {
            service,
            protocol: known.find(|it| it.to_string() == protocol)?,
            port: parts.next()?.split("__").next()?.to_owned(),
        })
    }

    /// Its chain of that kind in nftables mode.
    pub fn nftables_chain(&self, chain: ServiceChain) -> String {
        format!("{}{}", chain.nftables_prefix(), self.base())
    }

    /// The chain of one endpoint in iptables mode, which belongs to this port alone.
    pub fn endpoint_chain(&self, endpoint: SocketAddr) -> String {
        let hash = hash(&format!("{self}{}{endpoint}", self.protocol), HASH);
        format!("KUBE-SEP-{hash}")
    }

    /// What the names of an endpoint's chain and set end in in nftables mode:
    /// `…-test/nginx/tcp/http__10.20.10.127/80`. Names have no colons, so an IPv6 address has dots.
    pub fn endpoint_base(&self, endpoint: SocketAddr) -> String {
        let ip = endpoint.ip().to_string().replace(':', ".");
        hashed(&format!("{}__{ip}/{}", self.plain(), endpoint.port()))
    }

    fn plain(&self) -> String {
        format!("{}/{}/{}", self.service, self.protocol, self.port)
    }
}

/// All of it is ASCII: names of the API, digits, slashes.
fn hashed(text: &str) -> String {
    let mut name = hash(text, SHORT_HASH);
    name.push('-');
    name.push_str(text);
    if name.len() > LONGEST {
        name.truncate(LONGEST - 3);
        name.push_str("...");
    }
    name
}

/// The first characters of the base32 of a SHA-256.
fn hash(text: &str, length: usize) -> String {
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

    #[test]
    fn chains_of_nftables_have_the_names_that_kube_proxy_gives_them() {
        let nginx = name("test", "nginx", "http", Protocol::Tcp);
        assert_eq!(nginx.base(), "3DQLO4TQ-test/nginx/tcp/http");
        assert_eq!(
            nginx.endpoint_base("10.20.10.127:80".parse().unwrap()),
            "5YCAXA76-test/nginx/tcp/http__10.20.10.127/80"
        );
        // The comments of proxier.go, and a port without a name as a cluster on EKS had it.
        let p80 = name("ns1", "svc1", "p80", Protocol::Tcp);
        assert_eq!(p80.base(), "ULMVA6XW-ns1/svc1/tcp/p80");
        assert_eq!(
            p80.endpoint_base("10.180.0.1:80".parse().unwrap()),
            "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"
        );
        let unnamed = name("sgp", "nginx-service", "", Protocol::Tcp);
        assert_eq!(unnamed.base(), "2SONTFIS-sgp/nginx-service/tcp/");
        assert_eq!(
            unnamed.endpoint_base("100.64.7.86:80".parse().unwrap()),
            "T5VHWRWL-sgp/nginx-service/tcp/__100.64.7.86/80"
        );
    }

    #[test]
    fn an_ipv6_endpoint_has_no_colons_in_its_name() {
        let nginx = name("test", "nginx", "http", Protocol::Tcp);
        let base = nginx.endpoint_base("[fd00:20::7f]:80".parse().unwrap());
        assert!(
            base.ends_with("-test/nginx/tcp/http__fd00.20..7f/80"),
            "{base}"
        );
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_still_its_own() {
        let long = "x".repeat(63);
        let port = name(&long, &long, &long, Protocol::Tcp);
        let endpoint = |ip: &str| port.endpoint_base(ip.parse().unwrap());
        let (one, other) = (
            endpoint("[fd00:1111:2222:3333:4444:5555:6666:7777]:65535"),
            endpoint("[fd00:1111:2222:3333:4444:5555:6666:7778]:65535"),
        );
        assert_eq!(one.len(), LONGEST);
        assert!(one.ends_with("..."), "{one}");
        assert_ne!(one, other);
    }

    #[test]
    fn a_chain_of_nftables_has_its_services_name() {
        for (chain, name) in [
            ("service-3DQLO4TQ-test/nginx/tcp/http", "test/nginx:http"),
            (
                "service-2SONTFIS-sgp/nginx-service/tcp/",
                "sgp/nginx-service",
            ),
            (
                "endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80",
                "ns1/svc1:p80",
            ),
        ] {
            let port = PortName::of_nftables_chain(chain).map(|it| it.to_string());
            assert_eq!(port.as_deref(), Some(name));
        }
        assert_eq!(PortName::of_nftables_chain("nat-prerouting"), None);
    }
}
