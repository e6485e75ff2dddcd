//! What kube-proxy's health servers know (`pkg/proxy/healthcheck`): of the proxier itself, asked for
//! on port 10256, and of every service with a health check node port.
//!
//! The core opens no socket. It publishes a [`Health`] whenever something of it changes; whoever
//! listens on the ports answers from the last one ([`Health::of_proxy`], [`Health::of_service`]).

mod answer;
mod lines;

use std::{collections::BTreeMap, fmt, net::IpAddr, time::Duration};

use k8s_openapi::api::core::v1::Node;

pub use self::{
    answer::{Answer, ClockReading},
    lines::HealthLog,
};
use super::{
    config::Config,
    names::Namespaced,
    profile::{Staleness, Version},
};

/// With this taint the cluster autoscaler marks a node that it is about to delete.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// What the health servers of one proxier tell. Times are on the core's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The end of the last sync that succeeded, or the start of the process.
    pub updated: Duration,
    /// When the change that waits for a sync is late, and the proxier unhealthy. `None` while
    /// nothing waits.
    pub late_at: Option<Duration>,
    /// Whether the node may take traffic at all: false when it is about to be deleted.
    pub node_eligible: bool,
    /// The services with a health check node port, as of the last sync that succeeded.
    pub checks: BTreeMap<Namespaced, Check>,
    /// The node's addresses at which they listen; `None` for all, as of the last sync that succeeded.
    pub checks_at: Option<Vec<IpAddr>>,
}

/// The health check of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its health check node port.
    pub port: u16,
    /// How many addresses on this node are ready for it.
    pub local_endpoints: usize,
}

impl Health {
    /// What is known when the process starts.
    pub fn new(version: &Version) -> Self {
        Self {
            updated: Duration::ZERO,
            late_at: None,
            node_eligible: !version.needs_node_to_be_eligible(),
            checks: BTreeMap::new(),
            checks_at: None,
        }
    }

    /// What is known of the proxiers of a process, told by the proxy's own port: late is whoever is late
    /// first. A service's check is each proxier's own.
    pub(crate) fn of_all(proxiers: &[Self]) -> Self {
        let mut all = proxiers[0].clone();
        for other in &proxiers[1..] {
            all.updated = all.updated.max(other.updated);
            all.late_at = all.late_at.into_iter().chain(other.late_at).min();
        }
        all
    }

    /// Whether the proxier keeps up with its changes. A loss of rules that it did not notice does
    /// not count.
    pub fn proxier_healthy(&self, now: Duration) -> bool {
        self.late_at.is_none_or(|at| now < at)
    }
}

/// Follows the proxier and publishes what changes.
pub(crate) struct Pulse {
    health: Health,
    version: Version,
    timeout: Duration,
    publish: Box<dyn Fn(&Health)>,
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse")
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

impl Pulse {
    pub(crate) fn new(config: &Config, publish: impl Fn(&Health) + 'static) -> Self {
        Self {
            health: Health::new(&config.version),
            version: config.version.clone(),
            timeout: config.sync_period * 2,
            publish: Box::new(publish),
        }
    }

    /// A change waits for a sync (`QueuedUpdate`).
    pub(crate) fn queued(&mut self, now: Duration) {
        let counts = match self.version.staleness() {
            Staleness::OfLatest => true,
            Staleness::OfOldest => self.health.late_at.is_none(),
        };
        if counts {
            self.health.late_at = Some(now + self.timeout);
            (self.publish)(&self.health);
        }
    }

    /// A sync succeeded (`Updated`, `SyncServices` and `SyncEndpoints`).
    pub(crate) fn synced(
        &mut self,
        now: Duration,
        checks: BTreeMap<Namespaced, Check>,
        at: Option<Vec<IpAddr>>,
    ) {
        self.health.updated = now;
        self.health.late_at = None;
        self.health.checks = checks;
        self.health.checks_at = at;
        (self.publish)(&self.health);
    }

    /// The node was told (`SyncNode`, `NodeEligible`). What is left of a node that is gone is what
    /// was known of it last.
    pub(crate) fn node(&mut self, node: &Node) {
        if !self.version.heeds_draining_node() {
            return;
        }
        let taints = node
            .spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten());
        let eligible = node.metadata.deletion_timestamp.is_none()
            && !taints.into_iter().any(|taint| taint.key == TO_BE_DELETED);
        if eligible != self.health.node_eligible {
            self.health.node_eligible = eligible;
            (self.publish)(&self.health);
        }
    }
}
