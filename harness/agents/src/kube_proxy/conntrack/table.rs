//! From 1.32: conntrack's whole table is listed over netlink, and what is stale in it is deleted (cleanup.go).
//!
//! A UDP flow is stale when it went to a port of a service, and whoever answers it is no serving endpoint of that
//! port: terminating ones that serve still count, policies do not. To a node port it may have gone at any
//! address, also another host's. Flows of a service without a serving endpoint stay, but in 1.32.0 to 1.32.2.
//!
//! The real ones delete by what the stale flows have in common until 1.35, after a second listing, and those very
//! flows from 1.36. Here it is always those very flows: a stale one that came between the two listings stays.

use std::fmt::Write as _;

use chainbreak_netfilter::conntrack::{Flow, flows};

use crate::{
    driver::netlink::PROGRAM,
    kube_proxy::{
        Event,
        config::{Config, Family},
        logs::Logs,
        names::Protocol,
        ports::ServicePort,
        slices::Endpoint,
        tracker::Tracker,
    },
    step::{Io, Output},
};

/// A change interrupted the listing.
const EINTR: i32 = 4;
/// How often a listing is tried, from 1.33 on.
const TRIES: u32 = 5;

/// Deletes the stale flows.
pub(super) async fn reconcile(io: &Io<Event>, config: &Config, logs: &Logs, tracker: &Tracker) {
    let begin = io.now();
    let listed = list(io, config).await;
    let partial = listed.exit == EINTR && config.version.takes_partial_listing();
    if partial {
        logs.partial_listing(&listed.stderr);
    } else if listed.exit != 0 {
        return logs.listing_failed(&listed.stderr);
    }
    let mut stale = String::new();
    for flow in flows(&listed.stdout).filter(|flow| is_stale(flow, tracker, config)) {
        writeln!(stale, "{flow}").expect("a string takes everything");
    }
    if stale.is_empty() {
        return;
    }
    let deleted = ask(io, config, "delete", stale).await;
    if deleted.exit != 0 {
        let took = io.now().saturating_sub(begin);
        let count = deleted.stdout.lines().count();
        logs.deletion_failed(&deleted.stderr, count, took);
    }
}

async fn list(io: &Io<Event>, config: &Config) -> Output {
    let again = config.version.takes_partial_listing();
    let mut listed = ask(io, config, "list", String::new()).await;
    for _ in 1..TRIES {
        if listed.exit != EINTR || !again {
            break;
        }
        listed = ask(io, config, "list", String::new()).await;
    }
    listed
}

async fn ask(io: &Io<Event>, config: &Config, what: &str, input: String) -> Output {
    let family = match config.family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    };
    io.run(&[PROGRAM, "conntrack", what, family], input).await
}

fn is_stale(flow: &Flow, tracker: &Tracker, config: &Config) -> bool {
    let version = &config.version;
    tracker.ports().any(|(name, port)| {
        if name.protocol != Protocol::Udp || !went_to(flow, port, config) {
            return false;
        }
        let endpoints = tracker.endpoints(name).iter();
        let mut serving = endpoints.filter(|it| it.serves()).peekable();
        let guarded = serving.peek().is_some() || version.clears_services_without_endpoints();
        guarded && !serving.any(|it| answers(it, flow, config))
    })
}

/// Whether its first packet was sent to that port of a service. 1.32.0 to 1.32.2 look at the address alone.
fn went_to(flow: &Flow, port: &ServicePort, config: &Config) -> bool {
    let to_port = flow.original.dport.unwrap_or(0);
    let others = port.external_ips.iter().chain(&port.load_balancer_ips);
    let mut addresses = [&port.cluster_ip].into_iter().chain(others);
    let same_port = port.port == to_port || config.version.clears_by_address_alone();
    (same_port && addresses.any(|ip| *ip == flow.original.dst))
        || (port.node_port != 0 && port.node_port == to_port)
}

fn answers(endpoint: &Endpoint, flow: &Flow, config: &Config) -> bool {
    let (ip, port) = flow.backend();
    endpoint.address.ip() == ip
        && (!config.version.knows_endpoints_by_port() || port == Some(endpoint.address.port()))
}
