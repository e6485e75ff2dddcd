//! EndpointSlices and the endpoints of ports made from them.
//!
//! Slices wait in `pending` until a sync takes them over, service by service; the ones of a service
//! together give the endpoints of each of its ports, without duplicates, in the order of their text.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use k8s_openapi::api::discovery::v1::{
    Endpoint as ApiEndpoint, EndpointConditions, EndpointPort, EndpointSlice,
};

use super::{
    config::Config,
    names::{Namespaced, PortName, Protocol},
};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The endpoints of each port of one service.
pub(crate) type Endpoints = BTreeMap<PortName, Vec<Endpoint>>;

/// One address that serves a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// The address as rules and their order have it.
    pub(crate) text: String,
    /// Its `KUBE-SEP-` chain.
    pub(crate) chain: String,
    pub(crate) local: bool,
    pub(crate) terminating: bool,
    pub(crate) state: State,
    pub(crate) zone_hints: BTreeSet<String>,
    pub(crate) node_hints: BTreeSet<String>,
}

/// How far an endpoint can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Terminating, but serving still: the last resort.
    Draining,
    Down,
}

impl Endpoint {
    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether flows to it are worth keeping.
    pub(crate) fn serves(&self) -> bool {
        self.state != State::Down
    }
}

/// All slices, by service.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    services: BTreeMap<Namespaced, OfService>,
    /// Where a slice is, for its end, which is told by name only.
    homes: BTreeMap<Namespaced, Namespaced>,
}

#[derive(Debug, Default)]
struct OfService {
    applied: BTreeMap<String, EndpointSlice>,
    /// `None` for a slice that is gone.
    pending: BTreeMap<String, Option<EndpointSlice>>,
}

impl Slices {
    /// Notes a slice, or says that nothing changed. A slice that belongs to no service is ignored.
    pub(crate) fn set(&mut self, slice: EndpointSlice, config: &Config) -> bool {
        let Some((key, service)) = keys(&slice) else {
            return false;
        };
        let of_service = self.services.entry(service.clone()).or_default();
        let known = match of_service.pending.get(&key.name) {
            Some(pending) => pending.as_ref(),
            None => of_service.applied.get(&key.name),
        };
        if known.is_some_and(|known| same(known, &slice, config)) {
            return false;
        }
        of_service.pending.insert(key.name.clone(), Some(slice));
        self.homes.insert(key, service);
        true
    }

    /// Notes the end of a slice, or says that there was none.
    pub(crate) fn remove(&mut self, slice: &Namespaced) -> bool {
        let Some(service) = self.homes.remove(slice) else {
            return false;
        };
        let of_service = self.services.entry(service).or_default();
        of_service.pending.insert(slice.name.clone(), None);
        true
    }

    /// The services that have something pending.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Namespaced> {
        let services = self.services.iter();
        let pending = services.filter(|(_, it)| !it.pending.is_empty());
        pending.map(|(service, _)| service)
    }

    /// Takes over what is pending: the endpoints of every service that had something pending.
    pub(crate) fn take_changes(&mut self, config: &Config) -> Vec<(Namespaced, Endpoints)> {
        let pending = self
            .services
            .iter_mut()
            .filter(|(_, it)| !it.pending.is_empty());
        pending
            .map(|(service, it)| {
                for (name, slice) in std::mem::take(&mut it.pending) {
                    match slice {
                        Some(slice) => drop(it.applied.insert(name, slice)),
                        None => drop(it.applied.remove(&name)),
                    }
                }
                (
                    service.clone(),
                    endpoints(service, it.applied.values(), config),
                )
            })
            .collect()
    }
}

fn keys(slice: &EndpointSlice) -> Option<(Namespaced, Namespaced)> {
    let namespace = slice.metadata.namespace.as_deref()?;
    let name = slice.metadata.name.as_deref()?;
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_LABEL)?;
    let key = Namespaced::new(namespace, name);
    Some((key, Namespaced::new(namespace, service.as_str())))
}

fn same(known: &EndpointSlice, told: &EndpointSlice, config: &Config) -> bool {
    if config.version.compares_whole_slices() {
        return known == told;
    }
    known.address_type == told.address_type
        && known.endpoints == told.endpoints
        && known.ports == told.ports
}

fn endpoints<'a>(
    service: &Namespaced,
    slices: impl Iterator<Item = &'a EndpointSlice>,
    config: &Config,
) -> Endpoints {
    let mut found: BTreeMap<PortName, BTreeMap<String, Endpoint>> = BTreeMap::new();
    for slice in slices.filter(|slice| slice.address_type == config.family.as_str()) {
        for (name, port) in slice
            .ports
            .iter()
            .flatten()
            .filter_map(|it| named(service, it))
        {
            let of_port = found.entry(name.clone()).or_default();
            for endpoint in &slice.endpoints {
                let Some(endpoint) = of_endpoint(&name, endpoint, port, config) else {
                    continue;
                };
                // Two slices may both hold an endpoint while it moves, or a new pod has the address of one that ends.
                let key = if config.version.endpoint_is_an_address() {
                    endpoint.address.ip().to_string()
                } else {
                    endpoint.text.clone()
                };
                let wins = if config.version.prefers_running_endpoints() {
                    !endpoint.terminating
                } else {
                    endpoint.local
                };
                if wins || !of_port.contains_key(&key) {
                    of_port.insert(key, endpoint);
                }
            }
        }
    }
    let ports = found.into_iter();
    ports
        .map(|(name, endpoints)| {
            let mut endpoints: Vec<Endpoint> = endpoints.into_values().collect();
            endpoints.sort_by(|a, b| a.text.cmp(&b.text));
            (name, endpoints)
        })
        .collect()
}

fn named(service: &Namespaced, port: &EndpointPort) -> Option<(PortName, u16)> {
    let number = u16::try_from(port.port?).ok()?;
    let name = PortName {
        service: service.clone(),
        port: port.name.clone().unwrap_or_default(),
        protocol: Protocol::from_api(port.protocol.as_deref())?,
    };
    Some((name, number))
}

/// Only the first address counts: all of them are the same endpoint.
fn of_endpoint(
    name: &PortName,
    endpoint: &ApiEndpoint,
    port: u16,
    config: &Config,
) -> Option<Endpoint> {
    let ip: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let hints = endpoint.hints.clone().unwrap_or_default();
    let zones = hints.for_zones.into_iter().flatten();
    let nodes = hints.for_nodes.into_iter().flatten();
    let address = SocketAddr::new(ip, port);
    Some(Endpoint {
        address,
        text: address.to_string(),
        chain: name.endpoint_chain(address),
        local: endpoint.node_name.as_deref() == Some(&config.node_name),
        terminating: conditions.terminating.unwrap_or(false),
        state: state(&conditions),
        zone_hints: zones.map(|hint| hint.name).collect(),
        node_hints: nodes.map(|hint| hint.name).collect(),
    })
}

/// Absent conditions mean ready, and serving as it is ready.
fn state(conditions: &EndpointConditions) -> State {
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    let terminating = conditions.terminating.unwrap_or(false);
    match (ready, serving && terminating) {
        (true, _) => State::Ready,
        (false, true) => State::Draining,
        (false, false) => State::Down,
    }
}
