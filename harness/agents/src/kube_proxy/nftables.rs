//! The rules of nftables mode (`pkg/proxy/nftables/proxier.go`), written as one transaction.
//!
//! All of it lies in a table of kube-proxy's own, `kube-proxy`, in the family `ip` or `ip6`. What leads to
//! a service are elements of maps; kube-proxy keeps a copy of them in its memory ([`elements`]) and
//! writes differences to the copy, not to the kernel. Nobody watches the table: what somebody else takes out of
//! it is missed when a write needs it, or made again by the next full sync.
//!
//! Until 1.35 every endpoint has a chain of its own, in which what it sends to itself is marked and DNAT is done. From 1.36 on
//! a service's one rule picks an endpoint from a map and does DNAT, and only services that remember their clients
//! have chains for endpoints. Nothing of the older layout is looked for but chains of services and endpoints:
//! `mark-for-masquerade` stays forever after an upgrade, as `hairpin-connections` does after a downgrade.
//!
//! A chain that nothing uses any more is emptied at once and deleted by a later sync, a second after at
//! the earliest: kernels before 6.2 do not see at once that no element leads to it.

mod elements;
mod endpoints;
mod nft;
mod services;
mod setup;
mod transaction;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ipnet::IpNet;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

pub(crate) use self::nft::Nft;
use self::{elements::Mirrors, nft::Listed, setup::Setup, transaction::Transaction};
use super::{
    Event,
    config::Config,
    dataplane::{Logged, View},
    names::{AFFINITY, PortName},
    ports::ServicePort,
};
use crate::step::Io;

/// How long a chain that nothing uses is kept.
const STALE_FOR: Duration = Duration::from_secs(1);

/// Writes the rules of nftables mode.
#[derive(Debug)]
pub(crate) struct Writer {
    io: Io<Event>,
    nft: Nft,
    mirrors: Mirrors,
    /// Emptied chains, and since when.
    stale: BTreeMap<String, Duration>,
    /// Base chains are made again once, so that they may change their priorities.
    rebased: bool,
    synced_once: bool,
    service_cidrs: Vec<IpNet>,
    map_order: ChaCha8Rng,
}

impl Writer {
    pub(crate) fn new(io: Io<Event>, nft: Nft, config: &Config) -> Self {
        Self {
            io,
            nft,
            mirrors: Mirrors::of(&config.version),
            stale: BTreeMap::new(),
            rebased: false,
            synced_once: false,
            service_cidrs: Vec::new(),
            map_order: ChaCha8Rng::seed_from_u64(config.seed),
        }
    }

    /// All networks of cluster IPs, which the next full sync heeds (`OnServiceCIDRsChanged`).
    pub(crate) fn set_service_cidrs(&mut self, cidrs: Vec<IpNet>) {
        self.service_cidrs = cidrs;
    }

    pub(crate) async fn write(&mut self, view: &View<'_>) -> Result<(), Logged> {
        let start = self.io.now();
        let mut changed = view.changed;
        if !self.delete_stale(view, start).await
            && view.config.version.full_sync_after_failed_deletion()
        {
            changed = None;
        }
        let listed = self.nft.list(view.config, view.logs).await;
        let mut tx = Transaction::new(view.config.family);
        if changed.is_none() {
            self.set_up(view, &mut tx).await;
        }
        let active = self.services(&View { changed, ..*view }, &listed, &mut tx);
        self.forget(&listed, &active, start, &mut tx);
        self.mirrors.clean(&mut tx);
        view.logs
            .reloading_nftables(view.tracker.ports().count(), view.endpoints());
        if let Err(error) = self.nft.run(tx).await {
            view.logs.nftables_failed(&error);
            self.stale.clear();
            return Err(Logged);
        }
        self.synced_once = true;
        Ok(())
    }

    /// Deletes the chains that were emptied long enough ago; false when that failed.
    async fn delete_stale(&mut self, view: &View<'_>, now: Duration) -> bool {
        let mut gone = Vec::new();
        self.stale.retain(|chain, since| {
            let kept = *since + STALE_FOR >= now;
            if !kept {
                gone.push(chain.clone());
            }
            kept
        });
        if gone.is_empty() {
            return true;
        }
        view.logs.deleting_stale(gone.len());
        let mut tx = Transaction::new(view.config.family);
        for chain in &gone {
            tx.delete("chain", chain);
        }
        let deleted = self.nft.run(tx).await;
        if let Err(error) = &deleted {
            view.logs.stale_deletion_failed(error);
        }
        deleted.is_ok()
    }

    async fn set_up(&mut self, view: &View<'_>, tx: &mut Transaction) {
        let setup = Setup {
            config: view.config,
            logs: view.logs,
            node_ip: view.node_ip,
            service_cidrs: &self.service_cidrs,
            rebase: !std::mem::replace(&mut self.rebased, true),
        };
        setup.write(tx);
        for mirror in self.mirrors.all() {
            if view.config.version.reads_elements() {
                match self.nft.elements(mirror.kind, mirror.name).await {
                    Ok(elements) => mirror.set(elements),
                    Err(error) => {
                        view.logs
                            .elements_unread(mirror.name, mirror.kind.word(), &error);
                        mirror.reset(tx);
                    }
                }
            } else {
                mirror.reset(tx);
            }
        }
    }

    /// Writes what leads to services, and the chains of those that changed.
    fn services(
        &mut self,
        view: &View<'_>,
        listed: &Listed,
        tx: &mut Transaction,
    ) -> services::Active {
        let mut ports: Vec<(&PortName, &ServicePort)> = view.tracker.ports().collect();
        ports.shuffle(&mut self.map_order);
        let skips = !self.synced_once && view.config.version.keeps_endpoint_chains_at_start();
        let none = Listed::default();
        let mut output = services::Output {
            view,
            tx,
            mirrors: &mut self.mirrors,
            kept: if skips { listed } else { &none },
            active: services::Active::default(),
        };
        for (name, port) in ports {
            output.port(name, port);
        }
        output.active
    }

    /// Empties chains that nothing uses, and deletes sets that nothing uses. Chains of services and
    /// endpoints are known by their slash.
    fn forget(
        &mut self,
        listed: &Listed,
        active: &services::Active,
        now: Duration,
        tx: &mut Transaction,
    ) {
        for chain in listed.chains.iter().filter(|chain| chain.contains('/')) {
            if active.chains.contains(chain) {
                self.stale.remove(chain);
            } else {
                tx.flush("chain", chain);
                self.stale.insert(chain.clone(), now);
            }
        }
        let sets: BTreeSet<&String> = listed
            .sets
            .iter()
            .filter(|set| set.starts_with(AFFINITY))
            .collect();
        for set in sets {
            if !active.affinity_sets.contains(set) {
                tx.delete("set", set);
            }
        }
    }
}
