//! The end of UDP flows that no rule stands behind any more, after a sync that succeeded.
//!
//! Until 1.31 the changes that the sync took over say which flows are stale, and `conntrack -D`
//! deletes them; a sync that failed has lost them. From 1.32 the whole table is compared with the
//! state, over netlink; here that goes through the `conntrack` command as well, with the same
//! outcome: flows of services that are gone or have no endpoints are left alone.

use std::collections::BTreeSet;

use chainbreak_netfilter::conntrack::{Flow, Tuple, flows};

use super::{
    Event,
    config::{Config, Family},
    iptables::Failure,
    logs::Logs,
    names::Protocol,
    tracker::{Changes, Tracker},
};
use crate::step::{Io, Output};

/// What conntrack says when it found nothing to delete, which is an error to it alone.
const NOTHING: &str = "0 flow entries have been deleted";

/// Deletes the stale flows.
pub(crate) async fn clean(
    io: &Io<Event>,
    config: &Config,
    logs: &Logs,
    tracker: &Tracker,
    changes: &Changes,
) {
    let commands = if !config.version.reconciles_conntrack() {
        by_changes(tracker, changes)
    } else if changes.touches_udp() {
        let listed = run(io, config, &["-L", "-p", "udp"]).await;
        if listed.exit != 0 {
            logs.conntrack_failed("UDP", &Failure::of(listed));
            return;
        }
        let stale = flows(&listed.stdout).filter(|flow| is_stale(flow, tracker));
        stale.map(|flow| ("UDP", deletion(&flow))).collect()
    } else {
        return;
    };
    for (what, words) in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run(io, config, &words).await;
        if output.exit != 0 && !output.stderr.contains(NOTHING) {
            logs.conntrack_failed(what, &Failure::of(output));
        }
    }
}

async fn run(io: &Io<Event>, config: &Config, words: &[&str]) -> Output {
    let family: &[&str] = match config.family {
        Family::Ipv4 => &[],
        Family::Ipv6 => &["-f", "ipv6"],
    };
    let words = [&["conntrack"], words, family].concat();
    io.run(&words, String::new()).await
}

type Deletion = (&'static str, Vec<String>);

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
        .map(|ip| ("service", words(&format!("-D --orig-dst {ip} -p udp"))));
    let node_ports = node_ports
        .iter()
        .map(|port| ("service", words(&format!("-D -p udp --dport {port}"))));
    let mut commands: Vec<Deletion> = ips.chain(node_ports).collect();
    for (name, endpoint) in &changes.gone_udp_endpoints {
        let Some(port) = tracker.port(name) else {
            continue;
        };
        let to = endpoint.ip();
        if port.node_port != 0 {
            let text = format!("-D -p udp --dport {} --dst-nat {to}", port.node_port);
            commands.push(("endpoint", words(&text)));
        }
        let others = port.external_ips.iter().chain(&port.load_balancer_ips);
        for ip in [&port.cluster_ip].into_iter().chain(others) {
            let text = format!("-D --orig-dst {ip} --dst-nat {to} -p udp");
            commands.push(("endpoint", words(&text)));
        }
    }
    commands
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
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

fn deletion(flow: &Flow) -> Vec<String> {
    let Tuple {
        src,
        dst,
        sport,
        dport,
    } = flow.original;
    let (sport, dport) = (sport.unwrap_or(0), dport.unwrap_or(0));
    words(&format!(
        "-D -p udp --orig-src {src} --orig-dst {dst} --sport {sport} --dport {dport}"
    ))
}
