//! Which UDP flows 1.20 deletes after a sync (proxier.go, `syncProxyRules` and
//! `deleteEndpointConnections`): seen with a real 1.20.2, as later ones differ.
//!
//! When a service gets endpoints again, flows to its load balancers' addresses stay, and those to its node
//! ports. A load balancer that is known by a host name gives an address without text, which conntrack
//! complains of.

use std::net::SocketAddr;

use crate::kube_proxy::{
    conntrack::{Complaint, Deletion},
    names::PortName,
    tracker::{Changes, Tracker},
};

/// First services, then single endpoints.
pub(crate) fn deletions(tracker: &Tracker, changes: &Changes) -> Vec<Deletion> {
    let mut ips = changes.gone_udp_ips.clone();
    let activated = changes.activated_udp.iter();
    for port in activated.filter_map(|it| tracker.port(it)) {
        ips.insert(port.cluster_ip);
        ips.extend(&port.external_ips);
    }
    let services = ips.iter().map(|ip| Deletion {
        command: format!("-D --orig-dst {ip} -p udp"),
        complaint: Complaint::Early {
            site: "proxier.go:1640",
            text: format!(
                "Failed to delete stale service IP {ip} connections, error: error deleting \
                 connection tracking state for UDP service IP: {ip}"
            ),
        },
    });
    let endpoints = changes.gone_udp_endpoints.iter();
    services
        .chain(endpoints.flat_map(|(name, endpoint)| of_endpoint(tracker, name, *endpoint)))
        .collect()
}

fn of_endpoint(tracker: &Tracker, name: &PortName, endpoint: SocketAddr) -> Vec<Deletion> {
    let Some(port) = tracker.port(name) else {
        return Vec::new();
    };
    let peer = endpoint.ip();
    let to_ip = |ip: String, site, whose: &str| Deletion {
        command: format!("-D --orig-dst {ip} --dst-nat {peer} -p udp"),
        complaint: Complaint::Early {
            site,
            text: format!(
                "Failed to delete {name} endpoint connections{whose}, error: error deleting \
                 conntrack entries for udp peer {{{ip}, {peer}}}"
            ),
        },
    };
    let mut found = Vec::new();
    if port.node_port != 0 {
        let number = port.node_port;
        found.push(Deletion {
            command: format!("-D -p udp --dport {number} --dst-nat {peer}"),
            complaint: Complaint::Early {
                site: "proxier.go:772",
                text: format!(
                    "Failed to delete nodeport-related {name} endpoint connections, error: error \
                     deleting conntrack entries for UDP port: {number}"
                ),
            },
        });
    }
    found.push(to_ip(port.cluster_ip.to_string(), "proxier.go:777", ""));
    for ip in &port.external_ips {
        let whose = format!(" for externalIP {ip}");
        found.push(to_ip(ip.to_string(), "proxier.go:782", &whose));
    }
    let named = port.load_balancer_ips.iter().map(ToString::to_string);
    let unnamed = std::iter::repeat_n(String::new(), port.balancers_without_ip);
    for ip in named.chain(unnamed) {
        // Its own spelling.
        let whose = format!(" for LoabBalancerIP {ip}");
        found.push(to_ip(ip, "proxier.go:788", &whose));
    }
    found
}
