//! A sans-IO model of kube-proxy in iptables mode and in nftables mode.
//!
//! It follows the sources of `pkg/proxy`, `pkg/proxy/iptables` and `pkg/proxy/nftables` of the modelled
//! release (see [`Version`]): what is written, in which order, when, and what is said about it. The sync loop
//! (`sync`), paced by the bounded frequency runner (`runner`), is the same in both modes; what it writes with
//! (`dataplane`) is not. In iptables mode a monitor watches the canary chain (`monitor`), and both reach
//! netfilter only through `iptables`. Nobody watches the table of nftables mode.
//!
//! What the health servers are to tell is published (`health`); the driver listens.
//!
//! A dual-stack kube-proxy is two of these, which the driver runs side by side.
//!
//! Left out, and to be remembered when a model stands in for the real thing: the health of each family for itself, the listening
//! sockets that 1.20 opens for node ports (which ones is kept, and said, but none is opened) and for external
//! IPs that the node has, the lock file that
//! kube-proxy itself takes for iptables older than 1.6.2, the removal of the other mode's rules at the start, the sysctls written at the start
//! (`route_localnet` among them; those of conntrack the lab sets where a model starts), the end of the process when a node's addresses change (1.34), the
//! Kubernetes event about a health check that cannot be started, and the server for metrics.

mod config;
mod conntrack;
mod dataplane;
mod early;
mod health;
mod input;
mod iptables;
mod jumps;
mod klog;
mod logs;
mod modern;
mod monitor;
mod nftables;
pub(crate) mod ports;
mod profile;
mod rules;
mod runner;
mod shared;
pub(crate) mod slices;
mod sync;
pub(crate) mod topology;
mod tracker;

use std::{future::poll_fn, pin::pin, rc::Rc, task::Poll};

use chainbreak_netfilter::names;
use ipnet::IpNet;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};

pub use self::{
    config::{Config, DetectLocal, Family, Mode},
    health::{Answer, Check, ClockReading, Health, HealthLog},
    names::Namespaced,
    profile::{Profile, Version, VersionError},
};
use self::{dataplane::Dataplane, iptables::Iptables, shared::Shared};
use crate::step::Io;

/// What the API tells kube-proxy.
///
/// What the real thing leaves out by label selectors is the driver's to leave out.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A service was added or changed.
    Service(Box<Service>),
    /// A service is gone.
    ServiceGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// All services there were at the start have been told.
    ServicesSynced,
    /// An endpoint slice was added or changed.
    Slice(Box<EndpointSlice>),
    /// An endpoint slice is gone.
    SliceGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// All endpoint slices there were at the start have been told.
    SlicesSynced,
    /// The node that kube-proxy runs on was added or changed.
    Node(Box<Node>),
    /// That node is gone.
    NodeGone,
    /// All networks that cluster IPs are given out of.
    ServiceCidrs(Vec<IpNet>),
}

/// Runs kube-proxy. Returns the reason for which the process exits; it does so only when there is
/// no iptables, or no usable nft, at all. Every change of what the health servers tell is handed to `health`.
pub async fn run(io: Io<Event>, config: Config, health: impl Fn(&Health) + 'static) -> String {
    let config = Rc::new(config);
    let pulse = health::Pulse::new(&config, health);
    match config.mode {
        Mode::Iptables => with_iptables(io, config, pulse).await,
        Mode::Nftables => with_nftables(io, config, pulse).await,
    }
}

async fn with_nftables(io: Io<Event>, config: Rc<Config>, pulse: health::Pulse) -> String {
    let nft = match nftables::Nft::probe(io.clone(), config.family).await {
        Ok(nft) => nft,
        Err(reason) => return format!("unable to create proxier: {reason}"),
    };
    let writer = nftables::Writer::new(io.clone(), nft, &config);
    let dataplane = Dataplane::Nftables(Box::new(writer));
    let (shared, logs) = (Rc::default(), logs::Logs::new(io.clone(), &config));
    match sync::Proxier::new(io, config, dataplane, logs, shared, pulse)
        .run()
        .await {}
}

async fn with_iptables(io: Io<Event>, config: Rc<Config>, pulse: health::Pulse) -> String {
    let shared = Rc::new(Shared::default());
    let probed = Iptables::probe(
        io.clone(),
        config.family,
        Rc::clone(&shared),
        &config.version,
    );
    let iptables = match probed.await {
        Ok(iptables) => Rc::new(iptables),
        Err(reason) => return reason,
    };
    let logs = logs::Logs::new(io.clone(), &config);
    let mut monitor = pin!(monitor::watch(
        io.clone(),
        Rc::clone(&config),
        Rc::clone(&iptables),
        logs.clone(),
        Rc::clone(&shared),
    ));
    let writer = dataplane::iptables::Writer::new(io.clone(), iptables, config.seed);
    let dataplane = Dataplane::Iptables(Box::new(writer));
    let proxier = sync::Proxier::new(io, config, dataplane, logs, Rc::clone(&shared), pulse);
    let mut proxier = pin!(proxier.run());
    // Each may free the other (a lock given back, a reload asked for or done), and nobody steps a
    // core for that: poll both until neither moves the other any more.
    poll_fn(|context| {
        loop {
            let before = shared.stirred();
            match (
                monitor.as_mut().poll(context),
                proxier.as_mut().poll(context),
            ) {
                (Poll::Pending, Poll::Pending) if shared.stirred() == before => {
                    return Poll::Pending;
                }
                (Poll::Pending, Poll::Pending) => {}
            }
        }
    })
    .await
}
