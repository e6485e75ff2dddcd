//! Which endpoints a port uses on this node (`CategorizeEndpoints`).
//!
//! Ready endpoints first; when there is none, those that still serve while they terminate, for the
//! cluster policy and the local one separately.

use std::collections::BTreeMap;

use super::{
    config::Config,
    ports::ServicePort,
    slices::{Endpoint, State},
};

pub(crate) const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The endpoints of a port, by policy.
#[derive(Debug, Default)]
pub(crate) struct Usable<'a> {
    /// For the cluster policy.
    pub(crate) cluster: Vec<&'a Endpoint>,
    /// For the local policy.
    pub(crate) local: Vec<&'a Endpoint>,
    /// Those of either.
    pub(crate) reachable: Vec<&'a Endpoint>,
    /// Whether any node of the cluster has a usable one.
    pub(crate) anywhere: bool,
}

/// Where traffic to a port may go under its policies.
#[derive(Debug)]
pub(crate) struct Routes<'a> {
    pub(crate) usable: Usable<'a>,
    /// Whether traffic to the cluster IP finds endpoints.
    pub(crate) has_internal: bool,
    /// Whether traffic from outside does.
    pub(crate) has_external: bool,
}

impl<'a> Routes<'a> {
    pub(crate) fn of(
        endpoints: &'a [Endpoint],
        port: &ServicePort,
        labels: &BTreeMap<String, String>,
        config: &Config,
    ) -> Self {
        let usable = usable(endpoints, port, labels, config);
        let allowed = |local: bool| usable.anywhere && (!local || !usable.local.is_empty());
        Self {
            has_internal: allowed(port.internal_local),
            has_external: allowed(port.external_local),
            usable,
        }
    }

    /// Whether there is a chain for traffic from outside. Also without endpoints for its policy: pods and
    /// the node itself short-circuit there.
    pub(crate) fn uses_external(&self, port: &ServicePort) -> bool {
        self.usable.anywhere && port.externally_accessible()
    }
}

/// Sorts a port's endpoints.
pub(crate) fn usable<'a>(
    endpoints: &'a [Endpoint],
    port: &ServicePort,
    labels: &BTreeMap<String, String>,
    config: &Config,
) -> Usable<'a> {
    let last_resort =
        |it: &&Endpoint| config.version.terminating_endpoints() && it.state == State::Draining;
    let mut usable = Usable::default();
    if port.uses_cluster_endpoints() {
        let hinted = Hinted::of(endpoints, port, labels, config);
        let ready = endpoints
            .iter()
            .filter(|it| it.is_ready() && hinted.allows(it));
        usable.cluster = ready.collect();
        if usable.cluster.is_empty() {
            usable.cluster = endpoints.iter().filter(last_resort).collect();
        }
        usable.anywhere = !usable.cluster.is_empty();
    }
    if port.uses_local_endpoints() {
        usable.anywhere |= endpoints.iter().any(|it| it.is_ready() || last_resort(&it));
        let local = || endpoints.iter().filter(|it| it.local);
        usable.local = local().filter(|it| it.is_ready()).collect();
        if usable.local.is_empty() {
            usable.local = local().filter(last_resort).collect();
        }
    }
    let either = usable.cluster.iter().chain(&usable.local);
    let merged: BTreeMap<&str, &Endpoint> = either.map(|it| (it.text.as_str(), *it)).collect();
    usable.reachable = merged.into_values().collect();
    usable
}

/// Whom hints keep: nobody is kept out unless every ready endpoint has hints and at least one is
/// meant for here.
enum Hinted<'a> {
    Nobody,
    Node(&'a str),
    Zone(&'a str),
}

impl<'a> Hinted<'a> {
    fn of(
        endpoints: &[Endpoint],
        port: &ServicePort,
        labels: &'a BTreeMap<String, String>,
        config: &'a Config,
    ) -> Self {
        let version = &config.version;
        if !version.zone_hints()
            || (version.hints_need_annotation() && !port.asks_for_hints(version))
        {
            return Self::Nobody;
        }
        let decides = |hinted: &Self| {
            let mut ready = endpoints.iter().filter(|it| it.is_ready()).peekable();
            ready.clone().all(|it| hinted.speaks_of(it)) && ready.any(|it| hinted.allows(it))
        };
        let node = Self::Node(&config.node_name);
        if version.node_hints() && decides(&node) {
            return node;
        }
        match labels.get(ZONE_LABEL).map(|zone| Self::Zone(zone)) {
            Some(zone) if decides(&zone) => zone,
            _ => Self::Nobody,
        }
    }

    fn speaks_of(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Nobody => true,
            Self::Node(_) => !endpoint.node_hints.is_empty(),
            Self::Zone(_) => !endpoint.zone_hints.is_empty(),
        }
    }

    fn allows(&self, endpoint: &Endpoint) -> bool {
        match *self {
            Self::Nobody => true,
            Self::Node(node) => endpoint.node_hints.contains(node),
            Self::Zone(zone) => endpoint.zone_hints.contains(zone),
        }
    }
}
