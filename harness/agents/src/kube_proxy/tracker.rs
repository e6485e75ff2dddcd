//! What kube-proxy knows of services and endpoints, and what of it is new since the last sync.
//!
//! Events change only what is pending. A sync takes the pending changes over before it does
//! anything else, so a sync that fails has lost them: that is why the next one must be full.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};

use super::{
    config::Config,
    health::Check,
    logs::Logs,
    names::{Namespaced, PortName, Protocol},
    ports::{self, Ports, ServicePort},
    slices::{Endpoint, Endpoints, Slices},
};

/// The state that rules are made from, and the changes to it that wait for a sync.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    services: BTreeMap<Namespaced, Ports>,
    endpoints: BTreeMap<Namespaced, Endpoints>,
    /// The newest of each service, whether taken over or not.
    told: BTreeMap<Namespaced, Ports>,
    /// Before and after.
    changed: BTreeMap<Namespaced, (Ports, Ports)>,
    slices: Slices,
}

/// What a sync took over.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Services of which something changed: a partial sync writes only their chains.
    pub(crate) services: BTreeSet<Namespaced>,
    /// Cluster IPs of UDP ports that are gone.
    pub(crate) gone_udp_ips: BTreeSet<IpAddr>,
    /// UDP ports that had no usable endpoint and have one now.
    pub(crate) activated_udp: Vec<PortName>,
    /// Endpoints of UDP ports that serve no more.
    pub(crate) gone_udp_endpoints: Vec<(PortName, SocketAddr)>,
    /// Whether it took over slices of a service that had a UDP port in them before or after, whatever changed
    /// (endpointschangetracker.go from 1.32, `ConntrackCleanupRequired`).
    pub(crate) of_udp: bool,
}

impl Tracker {
    /// Notes a service. True when any service waits for a sync, as the real tracker answers.
    pub(crate) fn set_service(&mut self, service: &Service, config: &Config, logs: &Logs) -> bool {
        let (Some(namespace), Some(name)) = (&service.metadata.namespace, &service.metadata.name)
        else {
            return false;
        };
        let ports = ports::of_service(service, config);
        let service = Namespaced::new(namespace.as_str(), name.as_str());
        self.change(service, ports, logs)
    }

    /// Notes the end of a service; answers as [`Self::set_service`].
    pub(crate) fn remove_service(&mut self, service: Namespaced, logs: &Logs) -> bool {
        self.change(service, Ports::new(), logs)
    }

    fn change(&mut self, service: Namespaced, ports: Ports, logs: &Logs) -> bool {
        let before = match self.changed.remove(&service) {
            Some((before, _)) => before,
            None => self.told.remove(&service).unwrap_or_default(),
        };
        if before != ports {
            logs.service_updated(&service, ports.len());
            let change = (before, ports.clone());
            self.changed.insert(service.clone(), change);
        }
        self.told.insert(service, ports);
        !self.changed.is_empty()
    }

    /// Notes a slice. True when it changed.
    pub(crate) fn set_slice(&mut self, slice: EndpointSlice, config: &Config) -> bool {
        self.slices.set(slice, config)
    }

    /// Notes the end of a slice. True when there was one.
    pub(crate) fn remove_slice(&mut self, slice: &Namespaced) -> bool {
        self.slices.remove(slice)
    }

    /// The services of which anything is pending.
    pub(crate) fn pending(&self) -> BTreeSet<Namespaced> {
        let services = self.changed.keys().chain(self.slices.pending());
        services.cloned().collect()
    }

    /// Takes over all that is pending.
    pub(crate) fn take_changes(&mut self, config: &Config, logs: &Logs) -> Changes {
        let mut changes = Changes::default();
        for (service, (before, after)) in std::mem::take(&mut self.changed) {
            self.say_changes(&service, &before, &after, logs);
            let gone = before.iter().filter(|(name, _)| !after.contains_key(name));
            let gone = gone.filter(|(name, _)| name.protocol == Protocol::Udp);
            changes
                .gone_udp_ips
                .extend(gone.map(|(_, port)| port.cluster_ip));
            changes.services.insert(service.clone());
            if after.is_empty() {
                self.services.remove(&service);
                self.told.remove(&service);
            } else {
                self.services.insert(service, after);
            }
        }
        for (service, after) in self.slices.take_changes(config) {
            let before = self.endpoints.remove(&service).unwrap_or_default();
            compare_udp(&before, &after, &mut changes);
            changes.services.insert(service.clone());
            if !after.is_empty() {
                self.endpoints.insert(service, after);
            }
        }
        changes
    }

    fn say_changes(&self, service: &Namespaced, before: &Ports, after: &Ports, logs: &Logs) {
        let known = self.services.get(service);
        for (name, port) in after {
            if known.is_some_and(|known| known.contains_key(name)) {
                logs.port_updated(name, port);
            } else {
                logs.port_added(name, port);
            }
        }
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            logs.port_removed(name);
        }
    }

    /// All ports of all services.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&PortName, &ServicePort)> {
        self.services.values().flatten()
    }

    /// One port, if its service is still there.
    pub(crate) fn port(&self, name: &PortName) -> Option<&ServicePort> {
        self.services.get(&name.service)?.get(name)
    }

    /// The endpoints of a port.
    pub(crate) fn endpoints(&self, name: &PortName) -> &[Endpoint] {
        let of_service = self.endpoints.get(&name.service);
        of_service
            .and_then(|it| it.get(name))
            .map_or(&[], Vec::as_slice)
    }

    /// The services with a health check node port (`HealthCheckNodePorts`), and how many addresses
    /// on this node are ready for each, over all its ports (`LocalReadyEndpoints`).
    pub(crate) fn health_checks(&self) -> BTreeMap<Namespaced, Check> {
        let checked = self.services.iter().filter_map(|(service, ports)| {
            let mut ports = ports.values().map(|it| it.health_check_node_port);
            Some((service, ports.find(|port| *port != 0)?))
        });
        checked
            .map(|(service, port)| {
                let endpoints = self.endpoints.get(service).into_iter();
                let endpoints = endpoints.flat_map(|it| it.values().flatten());
                let local: BTreeSet<IpAddr> = endpoints
                    .filter(|it| it.local && it.is_ready())
                    .map(|it| it.address.ip())
                    .collect();
                let local_endpoints = local.len();
                let check = Check {
                    port,
                    local_endpoints,
                };
                (service.clone(), check)
            })
            .collect()
    }
}

fn compare_udp(before: &Endpoints, after: &Endpoints, changes: &mut Changes) {
    let serving = |of: &Endpoints, name: &PortName| -> BTreeSet<SocketAddr> {
        let endpoints = of.get(name).into_iter().flatten();
        endpoints
            .filter(|it| it.serves())
            .map(|it| it.address)
            .collect()
    };
    let udp = |name: &&PortName| name.protocol == Protocol::Udp;
    changes.of_udp |= before.keys().chain(after.keys()).any(|name| udp(&name));
    for name in before.keys().filter(udp) {
        let now = serving(after, name);
        for address in serving(before, name).difference(&now) {
            changes.gone_udp_endpoints.push((name.clone(), *address));
        }
    }
    for name in after.keys().filter(udp) {
        if !serving(after, name).is_empty() && serving(before, name).is_empty() {
            changes.activated_udp.push(name.clone());
        }
    }
}
