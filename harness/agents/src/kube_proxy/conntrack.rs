//! The end of UDP flows that no rule stands behind any more, after a sync that succeeded.
//!
//! 1.20 has its own list ([`super::early::conntrack`]). Until 1.31 the changes that the sync took over say which flows are stale, and `conntrack -D`
//! deletes them; a sync that failed has lost them. From 1.32 the whole table is compared with the
//! state, over netlink; here that goes through the `conntrack` command as well, with the same
//! outcome: flows of services that are gone or have no endpoints are left alone.

use std::collections::BTreeSet;

use chainbreak_netfilter::conntrack::{Flow, Tuple, flows};

use super::{
    Event,
    config::{Config, Family},
    early,
    iptables::Failure,
    logs::Logs,
    names::Protocol,
    profile::Profile,
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
    /// What was stale.
    Stale(&'static str),
}

/// Deletes the stale flows.
pub(crate) async fn clean(
    io: &Io<Event>,
    config: &Config,
    logs: &Logs,
    tracker: &Tracker,
    changes: &Changes,
) {
    let deletions = if config.version.profile() == Profile::V1_20 {
        early::conntrack::deletions(tracker, changes)
    } else if !config.version.reconciles_conntrack() {
        by_changes(tracker, changes)
    } else if changes.touches_udp() {
        let listed = run(io, config, "-L -p udp").await;
        if listed.exit != 0 {
            logs.conntrack_failed(&Complaint::Stale("UDP"), &Failure::of(listed));
            return;
        }
        let stale = flows(&listed.stdout).filter(|flow| is_stale(flow, tracker));
        stale.map(|flow| deletion(&flow)).collect()
    } else {
        return;
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

fn stale(what: &'static str, command: String) -> Deletion {
    let complaint = Complaint::Stale(what);
    Deletion { command, complaint }
}

/// First services, by address and node port, then single endpoints.
fn by_changes(tracker: &Tracker, changes: &Changes) -> Vec<Deletion> {
    let mut ips = changes.gone_udp_ips.clone();
    let mut node_ports = BTreeSet::new();
    for port in changes
        .activated_udp
        .iter()
        .filter_map(|it| tracker.port(it))
    {
        ips.insert(port.cluster_ip);
        ips.extend(port.external_ips.iter().chain(&port.load_balancer_ips));
        node_ports.extend(Some(port.node_port).filter(|it| *it != 0));
    }
    let ips = ips
        .iter()
        .map(|ip| stale("service", format!("-D --orig-dst {ip} -p udp")));
    let node_ports = node_ports
        .iter()
        .map(|port| stale("service", format!("-D -p udp --dport {port}")));
    let mut commands: Vec<Deletion> = ips.chain(node_ports).collect();
    for (name, endpoint) in &changes.gone_udp_endpoints {
        let Some(port) = tracker.port(name) else {
            continue;
        };
        let to = endpoint.ip();
        if port.node_port != 0 {
            let text = format!("-D -p udp --dport {} --dst-nat {to}", port.node_port);
            commands.push(stale("endpoint", text));
        }
        let others = port.external_ips.iter().chain(&port.load_balancer_ips);
        for ip in [&port.cluster_ip].into_iter().chain(others) {
            let text = format!("-D --orig-dst {ip} --dst-nat {to} -p udp");
            commands.push(stale("endpoint", text));
        }
    }
    commands
}

/// Whether it went to a service that has endpoints, and none of them is the one who answers.
fn is_stale(flow: &Flow, tracker: &Tracker) -> bool {
    let (to, to_port) = (flow.original.dst, flow.original.dport.unwrap_or(0));
    let (answered_by, _) = flow.backend();
    tracker.ports().any(|(name, port)| {
        let others = port.external_ips.iter().chain(&port.load_balancer_ips);
        let mut addresses = [&port.cluster_ip].into_iter().chain(others);
        let hit = (port.port == to_port && addresses.any(|ip| *ip == to))
            || (port.node_port != 0 && port.node_port == to_port);
        if name.protocol != Protocol::Udp || !hit {
            return false;
        }
        let endpoints = tracker.endpoints(name).iter();
        let mut serving = endpoints.filter(|it| it.serves()).peekable();
        serving.peek().is_some() && serving.all(|it| it.address.ip() != answered_by)
    })
}

fn deletion(flow: &Flow) -> Deletion {
    let Tuple {
        src,
        dst,
        sport,
        dport,
    } = flow.original;
    let (sport, dport) = (sport.unwrap_or(0), dport.unwrap_or(0));
    let ends = format!("--orig-src {src} --orig-dst {dst} --sport {sport} --dport {dport}");
    stale("UDP", format!("-D -p udp {ends}"))
}
