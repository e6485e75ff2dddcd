//! What writes the rules of a sync into the kernel, one kind for each mode.

pub(crate) mod counters;
pub(crate) mod iptables;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use super::{config::Config, logs::Logs, names::Namespaced, nftables, tracker::Tracker};

/// A sync failed, and the log says why.
#[derive(Debug)]
pub(crate) struct Logged;

/// What a sync writes rules from.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) logs: &'a Logs,
    pub(crate) tracker: &'a Tracker,
    /// The services whose own chains are written; `None` in a full sync, which writes all.
    pub(crate) changed: Option<&'a BTreeSet<Namespaced>>,
    pub(crate) node_labels: &'a BTreeMap<String, String>,
    pub(crate) node_ip: IpAddr,
}

impl View<'_> {
    /// How many endpoints all ports have together.
    pub(crate) fn endpoints(&self) -> usize {
        let ports = self.tracker.ports();
        ports
            .map(|(name, _)| self.tracker.endpoints(name).len())
            .sum()
    }
}

/// The writer of one mode.
#[derive(Debug)]
pub(crate) enum Dataplane {
    /// `--proxy-mode=iptables`.
    Iptables(Box<iptables::Writer>),
    /// `--proxy-mode=nftables`.
    Nftables(Box<nftables::Writer>),
}

impl Dataplane {
    /// The proxier is made, and says so.
    pub(crate) async fn made(&mut self, config: &Config, logs: &Logs) {
        match self {
            Self::Iptables(writer) => writer.made(config, logs).await,
            Self::Nftables(_) => {}
        }
    }

    /// Writes the rules; what it knows of the kernel is lost when it cannot.
    pub(crate) async fn write(&mut self, view: &View<'_>) -> Result<(), Logged> {
        match self {
            Self::Iptables(writer) => writer.write(view).await,
            Self::Nftables(writer) => writer.write(view).await,
        }
    }

    /// Whether the cluster was large at the last sync, and is spared some work.
    pub(crate) fn is_large(&self) -> bool {
        match self {
            Self::Iptables(writer) => writer.is_large(),
            Self::Nftables(_) => false,
        }
    }

    /// All networks of cluster IPs, which iptables mode does not heed.
    pub(crate) fn set_service_cidrs(&mut self, cidrs: Vec<IpNet>) {
        match self {
            Self::Iptables(_) => {}
            Self::Nftables(writer) => writer.set_service_cidrs(cidrs),
        }
    }
}
