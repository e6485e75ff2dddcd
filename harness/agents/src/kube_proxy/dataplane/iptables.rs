//! The rules written through `iptables-restore`, and in a full sync the jumps before them.

use std::{rc::Rc, time::Duration};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::{Logged, View, counters::Counters};
use crate::{
    kube_proxy::{
        Event, config::Config, early::sockets::Sockets, iptables::Iptables, jumps, logs::Logs,
        names::PortName, ports::ServicePort, rules::Scene,
    },
    step::Io,
};

/// More endpoints than this are a large cluster.
const LARGE_CLUSTER: usize = 1000;

/// Writes the rules of iptables mode.
#[derive(Debug)]
pub(crate) struct Writer {
    io: Io<Event>,
    iptables: Rc<Iptables>,
    last_cleanup: Option<Duration>,
    large_cluster: bool,
    sockets: Sockets,
    counters: Counters,
    map_order: ChaCha8Rng,
}

impl Writer {
    pub(crate) fn new(io: Io<Event>, iptables: Rc<Iptables>, seed: u64) -> Self {
        Self {
            io,
            iptables,
            last_cleanup: None,
            large_cluster: false,
            sockets: Sockets::default(),
            counters: Counters::default(),
            map_order: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub(super) async fn made(&mut self, config: &Config, logs: &Logs) {
        logs.made(config, self.iptables.random_fully());
        if config.accepts_invalid() {
            logs.liberal();
        }
        self.counters.probe(&self.io, config, logs).await;
    }

    pub(super) fn is_large(&self) -> bool {
        self.large_cluster
    }

    pub(super) async fn write(&mut self, view: &View<'_>) -> Result<(), Logged> {
        if view.changed.is_none() {
            self.ensure_jumps(view).await?;
            self.counters.ensure(&self.io, view.logs).await;
        }
        let endpoints = view.endpoints();
        self.large_cluster = endpoints > LARGE_CLUSTER;
        let mut existing = self.existing_chains(view).await;
        existing.shuffle(&mut self.map_order);
        let mut ports: Vec<(&PortName, &ServicePort)> = view.tracker.ports().collect();
        ports.shuffle(&mut self.map_order);
        let sockets = if view.config.version.opens_node_ports() {
            let opened = self.sockets.open(&self.io, view.config, view.logs, &ports);
            opened.await
        } else {
            Sockets::default()
        };
        let scene = Scene {
            config: view.config,
            logs: view.logs,
            tracker: view.tracker,
            ports: &ports,
            changed: view.changed,
            node_labels: view.node_labels,
            node_ip: view.node_ip,
            existing: &existing,
            random_fully: self.iptables.random_fully(),
            counters: &self.counters,
            large: self.large_cluster,
        };
        let input = scene.render();
        view.logs.reloading(ports.len(), endpoints, &input);
        if let Err(failure) = self.iptables.restore(input.to_string()).await {
            view.logs.restore_failed(&failure);
            return Err(Logged);
        }
        self.sockets = sockets;
        Ok(())
    }

    async fn ensure_jumps(&self, view: &View<'_>) -> Result<(), Logged> {
        let version = &view.config.version;
        for jump in jumps::jumps(version) {
            self.ensure_chain(view.logs, jump.table, jump.to).await?;
            let rule = jump.rule();
            let made = self.iptables.ensure_rule(jump.table, jump.from, &rule);
            if let Err(error) = made.await {
                view.logs.jump_failed(jump, &error);
                return Err(Logged);
            }
        }
        for (table, chain) in jumps::kubelet_chains(version) {
            self.ensure_chain(view.logs, table, chain).await?;
        }
        Ok(())
    }

    async fn ensure_chain(&self, logs: &Logs, table: &str, chain: &str) -> Result<(), Logged> {
        let made = self.iptables.ensure_chain(table, chain).await;
        made.map_err(|error| {
            logs.chain_failed(table, chain, &error);
            Logged
        })
    }

    /// The chains of nat, for the removal of stale ones. Until 1.24 filter is saved as well, and in every
    /// sync; since 1.25 a large cluster is looked at once in a sync period at most.
    async fn existing_chains(&mut self, view: &View<'_>) -> Vec<String> {
        let now = self.io.now();
        let early = view.config.version.saves_both_tables();
        let rested = |last| now.saturating_sub(last) > view.config.sync_period;
        if !early && self.large_cluster && !self.last_cleanup.is_none_or(rested) {
            return Vec::new();
        }
        if early && let Err(failure) = self.iptables.chains("filter").await {
            view.logs.save_failed(&failure, true);
        }
        match self.iptables.chains("nat").await {
            Ok(chains) => {
                self.last_cleanup = Some(self.io.now());
                chains
            }
            Err(failure) => {
                view.logs.save_failed(&failure, early);
                Vec::new()
            }
        }
    }
}
