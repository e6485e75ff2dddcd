//! Names of chains and sets: a prefix for what it is, eight characters of a hash so that names differ early, then
//! what it belongs to in clear text.

use std::net::SocketAddr;

use crate::kube_proxy::names::{PortName, hash};

/// The prefix of the sets that remember clients.
pub(super) const AFFINITY: &str = "affinity-";

/// nft takes 256 characters, of which the longest prefix may have 16 (proxier.go, `chainNameBaseLengthMax`).
const LONGEST: usize = 240;
const HASH: usize = 8;

/// What the names of a port's chains end in: `3DQLO4TQ-test/nginx/tcp/http`.
pub(super) fn of_port(name: &PortName) -> String {
    hashed(&plain(name))
}

/// What the names of an endpoint's chain and set end in: `…-test/nginx/tcp/http__10.20.10.127/80`. Names have no
/// colons, so an IPv6 address has dots.
pub(super) fn of_endpoint(name: &PortName, endpoint: SocketAddr) -> String {
    let ip = endpoint.ip().to_string().replace(':', ".");
    hashed(&format!("{}__{ip}/{}", plain(name), endpoint.port()))
}

fn plain(name: &PortName) -> String {
    let PortName {
        service,
        port,
        protocol,
    } = name;
    format!("{service}/{protocol}/{port}")
}

/// All of it is ASCII: names of the API, digits, slashes.
fn hashed(text: &str) -> String {
    let mut name = hash(text, HASH);
    name.push('-');
    name.push_str(text);
    if name.len() > LONGEST {
        name.truncate(LONGEST - 3);
        name.push_str("...");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_proxy::names::{Namespaced, Protocol};

    fn port(namespace: &str, service: &str, port: &str) -> PortName {
        PortName {
            service: Namespaced::new(namespace, service),
            port: port.to_owned(),
            protocol: Protocol::Tcp,
        }
    }

    #[test]
    fn names_are_those_of_kube_proxy() {
        let nginx = port("test", "nginx", "http");
        assert_eq!(of_port(&nginx), "3DQLO4TQ-test/nginx/tcp/http");
        assert_eq!(
            of_endpoint(&nginx, "10.20.10.127:80".parse().unwrap()),
            "5YCAXA76-test/nginx/tcp/http__10.20.10.127/80"
        );
        // The comments of proxier.go, and a port without a name as a cluster on EKS had it.
        let p80 = port("ns1", "svc1", "p80");
        assert_eq!(of_port(&p80), "ULMVA6XW-ns1/svc1/tcp/p80");
        assert_eq!(
            of_endpoint(&p80, "10.180.0.1:80".parse().unwrap()),
            "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"
        );
        let unnamed = port("sgp", "nginx-service", "");
        assert_eq!(of_port(&unnamed), "2SONTFIS-sgp/nginx-service/tcp/");
        assert_eq!(
            of_endpoint(&unnamed, "100.64.7.86:80".parse().unwrap()),
            "T5VHWRWL-sgp/nginx-service/tcp/__100.64.7.86/80"
        );
    }

    #[test]
    fn an_ipv6_endpoint_has_no_colons_in_its_name() {
        let name = of_endpoint(
            &port("test", "nginx", "http"),
            "[fd00:20::7f]:80".parse().unwrap(),
        );
        assert!(
            name.ends_with("-test/nginx/tcp/http__fd00.20..7f/80"),
            "{name}"
        );
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_still_its_own() {
        let long = "x".repeat(63);
        let endpoint = |ip: &str| of_endpoint(&port(&long, &long, &long), ip.parse().unwrap());
        let (one, other) = (
            endpoint("[fd00:1111:2222:3333:4444:5555:6666:7777]:65535"),
            endpoint("[fd00:1111:2222:3333:4444:5555:6666:7778]:65535"),
        );
        assert_eq!(one.len(), LONGEST);
        assert!(one.ends_with("..."), "{one}");
        assert_ne!(one, other);
    }
}
