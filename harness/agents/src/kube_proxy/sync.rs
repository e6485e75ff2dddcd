//! The sync loop (`syncProxyRules` and what leads to it).
//!
//! A sync that fails in any way makes the next one full: the changes it took over are lost to a
//! partial one. Events, the runner's timers and the monitor all come together here, one at a time.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    net::IpAddr,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::future::{Either, select};
use k8s_openapi::api::core::v1::Node;

use super::{
    Event,
    config::Config,
    conntrack,
    dataplane::{Dataplane, Logged, View},
    health::Pulse,
    logs::Logs,
    names::Namespaced,
    profile::Profile,
    runner::Runner,
    shared::Shared,
    topology::ZONE_LABEL,
    tracker::{Changes, Tracker},
};
use crate::step::Io;

/// The point between the two steps of [`Proxier::take_changes`].
const TAKING_CHANGES: &str = "taking-changes";

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// One family's proxier.
pub(crate) struct Proxier {
    io: Io<Event>,
    config: Rc<Config>,
    dataplane: Dataplane,
    logs: Logs,
    shared: Rc<Shared>,
    pulse: Pulse,
    runner: Runner,
    tracker: Tracker,
    synced: Synced,
    /// Told during a sync, and to wait for its end.
    held_back: VecDeque<Event>,
    /// `None` until the node is known, which differs from having no labels. From 1.34 on it does not: a node without the
    /// zone's label asks for no sync at the start (1.34 config.go, `NodeTopologyConfig`).
    node_labels: Option<BTreeMap<String, String>>,
    node_ip: IpAddr,
    needs_full_sync: bool,
    last_full_sync: Option<Duration>,
}

/// What of the API has been read whole.
#[derive(Default)]
struct Synced {
    services: bool,
    slices: bool,
}

/// What the loop wakes for.
enum Woke {
    Event(Event),
    Reload,
    Timer,
}

impl Proxier {
    pub(crate) fn new(
        io: Io<Event>,
        config: Rc<Config>,
        dataplane: Dataplane,
        logs: Logs,
        shared: Rc<Shared>,
        pulse: Pulse,
    ) -> Self {
        let profile = config.version.profile();
        let (min, retry) = (config.min_sync_period, config.sync_period);
        Self {
            runner: Runner::new(profile, min, retry, config.longest_interval(), io.now()),
            tracker: Tracker::default(),
            synced: Synced::default(),
            held_back: VecDeque::new(),
            node_labels: config.version.topology_labels_only().then(BTreeMap::new),
            node_ip: config.node_ip.unwrap_or(config.family.unknown_node()),
            needs_full_sync: true,
            last_full_sync: None,
            io,
            config,
            dataplane,
            logs,
            shared,
            pulse,
        }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) -> Infallible {
        self.dataplane.made(&self.config, &self.logs).await;
        loop {
            match self.wake().await {
                Woke::Event(event) => self.on_event(event).await,
                Woke::Reload => {
                    self.needs_full_sync = true;
                    self.sync_unasked().await;
                    self.shared.reloaded();
                }
                Woke::Timer => {
                    if self.runner.start(self.io.now()) {
                        let failed = self.sync().await.is_err();
                        self.runner.finished(self.io.now(), failed);
                    }
                }
            }
        }
    }

    /// Events first: a sync takes over all that is known when it starts.
    async fn wake(&mut self) -> Woke {
        if let Some(event) = self.held_back.pop_front() {
            return Woke::Event(event);
        }
        let event = pin!(self.io.event());
        let reload = pin!(self.shared.reload_asked());
        let timer = pin!(self.io.at(self.runner.due()));
        match select(event, select(reload, timer)).await {
            Either::Left((event, _)) => Woke::Event(event),
            Either::Right((Either::Left(_), _)) => Woke::Reload,
            Either::Right((Either::Right(_), _)) => Woke::Timer,
        }
    }

    async fn on_event(&mut self, event: Event) {
        match self.note(event) {
            Some(Event::ServicesSynced) => {
                self.synced.services = true;
                self.sync_unasked().await;
            }
            Some(Event::SlicesSynced) => {
                self.synced.slices = true;
                self.sync_unasked().await;
            }
            Some(Event::ServiceCidrs(cidrs)) => self.dataplane.set_service_cidrs(cidrs),
            Some(Event::Node(node)) => self.on_node(Some(&node)).await,
            Some(Event::NodeGone) => self.on_node(None).await,
            _ => {}
        }
    }

    /// Notes a change of a service or its endpoints, which a sync under way does not keep from
    /// happening. Anything else is given back.
    fn note(&mut self, event: Event) -> Option<Event> {
        let changed = match event {
            Event::Service(service) => self.tracker.set_service(&service, &self.config, &self.logs),
            Event::ServiceGone { namespace, name } => self
                .tracker
                .remove_service(Namespaced::new(namespace, name), &self.logs),
            Event::Slice(slice) => self.tracker.set_slice(*slice, &self.config),
            Event::SliceGone { namespace, name } => {
                self.tracker.remove_slice(&Namespaced::new(namespace, name))
            }
            other => return Some(other),
        };
        if changed && self.initialized() {
            self.request();
        }
        None
    }

    /// Asks for a sync (`Sync`).
    fn request(&mut self) {
        self.pulse.queued(self.io.now());
        self.runner.request();
    }

    fn initialized(&self) -> bool {
        self.synced.services && self.synced.slices
    }

    /// A change of the node's labels makes the next sync full. Only the family's first internal
    /// address is taken over besides, and only when none was given.
    async fn on_node(&mut self, node: Option<&Node>) {
        if let Some(node) = node {
            self.pulse.node(node);
        }
        if let Some(ip) = node.and_then(|node| self.config.family.internal_ip(node)) {
            self.node_ip = self.config.node_ip.unwrap_or(ip);
        }
        let labels = node.map(|node| self.labels(node));
        let version = &self.config.version;
        let same = match node {
            Some(_) => labels == self.node_labels,
            // The node manager of 1.34 keeps what it knew.
            None => version.topology_labels_only(),
        };
        if same || !version.follows_node_labels() {
            return;
        }
        self.node_labels = labels;
        if version.profile() == Profile::V1_26 {
            return self.sync_unasked().await;
        }
        self.needs_full_sync = true;
        self.request();
    }

    fn labels(&self, node: &Node) -> BTreeMap<String, String> {
        let mut labels = node.metadata.labels.clone().unwrap_or_default();
        if self.config.version.topology_labels_only() {
            labels.retain(|key, _| key == ZONE_LABEL);
        }
        labels
    }

    /// A sync past the runner.
    async fn sync_unasked(&mut self) {
        // What failed is logged, and from 1.34 on nobody else hears of it.
        if let Err(Logged) = self.sync().await {
            self.runner.settle();
        }
    }

    /// Without the API nothing is written, which is no failure.
    async fn sync(&mut self) -> Result<(), Logged> {
        if !self.initialized() {
            self.logs.not_ready();
            return Ok(());
        }
        let start = self.io.now();
        let full = self.must_be_full(start);
        let changes = self.take_changes(full).await;
        for name in &changes.activated_udp {
            if let Some(port) = self.tracker.port(name) {
                self.logs.stale_udp(name, port);
            }
        }
        self.logs.syncing(full);
        let outcome = self.write(full, &changes).await;
        match outcome {
            Ok(()) if full => self.last_full_sync = Some(self.io.now()),
            Ok(()) => {}
            Err(Logged) => {
                self.logs.sync_failed(self.config.sync_period);
                self.runner.sync_failed(self.io.now());
                self.needs_full_sync = true;
            }
        }
        self.logs.complete(self.io.now().saturating_sub(start));
        outcome
    }

    /// Takes over what is pending. Until pull request 122204 a partial sync looked first which services
    /// to write, and then took over: each under the lock of the trackers, not both (1.28 proxier.go,
    /// `PendingChanges` and `Update`). What was told between is taken over and not written, and no later
    /// sync hears of it.
    async fn take_changes(&mut self, full: bool) -> Changes {
        if full || !self.config.version.loses_changes_told_meanwhile() {
            return self.tracker.take_changes(&self.config, &self.logs);
        }
        let pending = self.tracker.pending();
        self.io.point(TAKING_CHANGES).await;
        while let Some(event) = self.io.try_event() {
            let other = self.note(event);
            self.held_back.extend(other);
        }
        Changes {
            services: pending,
            ..self.tracker.take_changes(&self.config, &self.logs)
        }
    }

    fn must_be_full(&self, now: Duration) -> bool {
        let version = &self.config.version;
        let last = self.last_full_sync;
        !version.partial_sync()
            || self.needs_full_sync
            || (version.hourly_full_sync(self.dataplane.is_large())
                && last.is_none_or(|last| now.saturating_sub(last) > self.config.full_sync_period))
    }

    async fn write(&mut self, full: bool, changes: &Changes) -> Result<(), Logged> {
        let view = View {
            config: &self.config,
            logs: &self.logs,
            tracker: &self.tracker,
            changed: (!full).then_some(&changes.services),
            node_labels: self.node_labels.as_ref().unwrap_or(&NO_LABELS),
            node_ip: self.node_ip,
        };
        self.dataplane.write(&view).await?;
        self.needs_full_sync = false;
        let checks_at = self.config.health_checks_at(self.node_ip);
        self.pulse
            .synced(self.io.now(), self.tracker.health_checks(), checks_at);
        conntrack::clean(&self.io, &self.config, &self.logs, &self.tracker, changes).await;
        Ok(())
    }
}
