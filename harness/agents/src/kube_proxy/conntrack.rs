//! The end of UDP flows that no rule stands behind any more, after a sync that succeeded.
//!
//! 1.20 has its own list ([`super::early::conntrack`]). Until 1.31 the changes that the sync took over say which flows are stale, and `conntrack -D`
//! deletes them; a sync that failed has lost them. From 1.32 the whole table is compared with the
//! state over netlink ([`table`]), and the program is not needed.

mod table;

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Event,
    config::{Config, Family},
    early,
    iptables::Failure,
    klog,
    logs::Logs,
    names::PortName,
    tracker::{Changes, Tracker},
};
use crate::step::{Io, Output};

/// What conntrack says when it found nothing to delete, which is an error to it alone.
const NOTHING: &str = "0 flow entries have been deleted";

/// One command that deletes flows.
#[derive(Debug)]
pub(crate) struct Deletion {
    /// conntrack's arguments, a space between them.
    pub(crate) command: String,
    pub(crate) complaint: Complaint,
}

/// What is said when it fails.
#[derive(Debug)]
pub(crate) enum Complaint {
    /// 1.20 has a line for each place.
    Early { site: &'static str, text: String },
    /// Later ones say what they were at (cleanup.go; until 1.27 proxier.go).
    Later {
        text: &'static str,
        /// Behind the family that some releases name.
        pairs: String,
        /// What could not be done.
        error: String,
    },
}

/// Deletes the stale flows.
pub(crate) async fn clean(
    io: &Io<Event>,
    config: &Config,
    logs: &Logs,
    tracker: &Tracker,
    changes: &Changes,
) {
    if config.version.reconciles_conntrack() {
        if changes.of_udp {
            table::reconcile(io, config, logs, tracker).await;
        }
        return;
    }
    let deletions = if config.version.cleans_conntrack_as_1_20() {
        early::conntrack::deletions(tracker, changes)
    } else {
        by_changes(config, tracker, changes)
    };
    for deletion in deletions {
        delete(io, config, logs, deletion).await;
    }
}

/// Deletes flows. That there are none is no failure.
pub(crate) async fn delete(io: &Io<Event>, config: &Config, logs: &Logs, deletion: Deletion) {
    let output = run(io, config, &deletion.command).await;
    if output.exit != 0 && !output.stderr.contains(NOTHING) {
        logs.conntrack_failed(&deletion.complaint, &Failure::of(output));
    }
}

async fn run(io: &Io<Event>, config: &Config, arguments: &str) -> Output {
    let family: &[&str] = match config.family {
        Family::Ipv4 => &[],
        Family::Ipv6 => &["-f", "ipv6"],
    };
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let words = [&["conntrack"], arguments.as_slice(), family].concat();
    io.run(&words, String::new()).await
}

/// First services, by address and node port, then single endpoints.
fn by_changes(config: &Config, tracker: &Tracker, changes: &Changes) -> Vec<Deletion> {
    let mut ips = changes.gone_udp_ips.clone();
    let mut node_ports = BTreeSet::new();
    for port in changes
        .activated_udp
        .iter()
        .filter_map(|it| tracker.port(it))
    {
        ips.insert(port.cluster_ip);
        ips.extend(&port.external_ips);
        if !config.version.leaves_out_flows_to_balancers() {
            ips.extend(&port.load_balancer_ips);
        }
        node_ports.extend(Some(port.node_port).filter(|it| *it != 0));
    }
    let ips = ips.iter().map(of_service);
    let node_ports = node_ports.into_iter().map(of_node_port);
    let mut commands: Vec<Deletion> = ips.chain(node_ports).collect();
    for (name, endpoint) in &changes.gone_udp_endpoints {
        let Some(port) = tracker.port(name) else {
            continue;
        };
        let peer = Peer {
            service: name,
            ip: endpoint.ip(),
        };
        if port.node_port != 0 {
            commands.push(peer.over_node_port(port.node_port));
        }
        commands.push(peer.at(
            port.cluster_ip,
            "Failed to delete endpoint connections",
            None,
        ));
        for ip in &port.external_ips {
            let text = "Failed to delete endpoint connections for externalIP";
            commands.push(peer.at(*ip, text, Some("externalIP")));
        }
        for ip in &port.load_balancer_ips {
            let text = "Failed to delete endpoint connections for LoadBalancerIP";
            commands.push(peer.at(*ip, text, Some("loadBalancerIP")));
        }
    }
    commands
}

fn of_service(ip: &IpAddr) -> Deletion {
    let mut pairs = String::new();
    klog::append(&mut pairs, "IP", &ip.to_string());
    Deletion {
        command: format!("-D --orig-dst {ip} -p udp"),
        complaint: Complaint::Later {
            text: "Failed to delete stale service connections",
            pairs,
            error: format!("error deleting connection tracking state for UDP service IP: {ip}"),
        },
    }
}

fn of_node_port(port: u16) -> Deletion {
    Deletion {
        command: format!("-D -p udp --dport {port}"),
        complaint: Complaint::Later {
            text: "Failed to clear udp conntrack",
            pairs: format!(" nodePort={port}"),
            error: format!("error deleting conntrack entries for UDP port: {port}"),
        },
    }
}

/// An endpoint that is gone, of a service.
struct Peer<'a> {
    service: &'a PortName,
    ip: IpAddr,
}

impl Peer<'_> {
    fn pairs(&self) -> String {
        let mut pairs = String::new();
        klog::append(&mut pairs, "servicePortName", &self.service.to_string());
        pairs
    }

    fn over_node_port(&self, port: u16) -> Deletion {
        Deletion {
            command: format!("-D -p udp --dport {port} --dst-nat {}", self.ip),
            complaint: Complaint::Later {
                text: "Failed to delete nodeport-related endpoint connections",
                pairs: self.pairs(),
                error: format!("error deleting conntrack entries for UDP port: {port}"),
            },
        }
    }

    fn at(&self, ip: IpAddr, text: &'static str, key: Option<&str>) -> Deletion {
        let (mut pairs, peer) = (self.pairs(), self.ip);
        if let Some(key) = key {
            klog::append(&mut pairs, key, &ip.to_string());
        }
        Deletion {
            command: format!("-D --orig-dst {ip} --dst-nat {peer} -p udp"),
            complaint: Complaint::Later {
                text,
                pairs,
                error: format!("error deleting conntrack entries for UDP peer {{{ip}, {peer}}}"),
            },
        }
    }
}
