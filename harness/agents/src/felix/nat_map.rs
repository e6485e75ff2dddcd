//! What Felix's own proxy knows of services, and the NAT map that follows from it (`felix/bpf/proxy`). It is made of kube-proxy's
//! parts, which Felix links: services and EndpointSlices come by informers of its own, and nothing is written before both were listed.
//!
//! Session affinity, source ranges of load balancers and topology hints are not modelled.

use std::{collections::BTreeMap, net::IpAddr};

use chainbreak_netfilter::names::{Namespaced, PortName, Protocol};

use super::Config;
use crate::kube_proxy::{
    self,
    ports::{self, Ports, ServicePort},
    slices::{Endpoint, Endpoints, Slices},
    topology::{Usable, usable},
};

/// An address that services are reached by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A cluster IP, external IP or load balancer's.
    Ip(IpAddr),
    /// Any of the node's.
    Node,
}

/// An entry of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frontend {
    /// Whose it is, as logs name it.
    pub(super) port: String,
    pub(super) address: Address,
    pub(super) protocol: Protocol,
    pub(super) number: u16,
    /// Where packets go; nowhere without one.
    pub(super) backends: Vec<(IpAddr, u16)>,
}

/// What was told, and whether it is written.
#[derive(Debug)]
pub(super) struct NatMap {
    config: kube_proxy::Config,
    services: BTreeMap<Namespaced, Ports>,
    slices: Slices,
    endpoints: BTreeMap<Namespaced, Endpoints>,
    services_listed: bool,
    slices_listed: bool,
    changed: bool,
}

impl NatMap {
    pub(super) fn new(config: &Config) -> Self {
        let kubernetes = config.version.kubernetes();
        let kubernetes = kubernetes.parse().expect("it is a version");
        Self {
            config: kube_proxy::Config::new(kubernetes, config.node_name.as_str()),
            services: BTreeMap::new(),
            slices: Slices::default(),
            endpoints: BTreeMap::new(),
            services_listed: false,
            slices_listed: false,
            changed: false,
        }
    }

    pub(super) fn take(&mut self, event: kube_proxy::Event) {
        match event {
            kube_proxy::Event::Service(service) => {
                let key = key(&service.metadata);
                self.services
                    .insert(key, ports::of_service(&service, &self.config));
                self.changed = true;
            }
            kube_proxy::Event::ServiceGone { namespace, name } => {
                self.changed |= self
                    .services
                    .remove(&Namespaced::new(namespace, name))
                    .is_some();
            }
            kube_proxy::Event::Slice(slice) => {
                self.changed |= self.slices.set(*slice, &self.config);
            }
            kube_proxy::Event::SliceGone { namespace, name } => {
                self.changed |= self.slices.remove(&Namespaced::new(namespace, name));
            }
            kube_proxy::Event::ServicesSynced => {
                self.services_listed = true;
                self.changed = true;
            }
            kube_proxy::Event::SlicesSynced => {
                self.slices_listed = true;
                self.changed = true;
            }
            kube_proxy::Event::Node(_)
            | kube_proxy::Event::NodeGone
            | kube_proxy::Event::ServiceCidrs(_) => {}
        }
    }

    /// Whether there is something to write.
    pub(super) fn is_due(&self) -> bool {
        self.changed && self.services_listed && self.slices_listed
    }

    /// The map as it is to be written now.
    pub(super) fn frontends(&mut self) -> Vec<Frontend> {
        self.changed = false;
        for (service, endpoints) in self.slices.take_changes(&self.config) {
            self.endpoints.insert(service, endpoints);
        }
        let ports = self.services.values().flatten();
        ports
            .flat_map(|(name, port)| {
                let of_service = self.endpoints.get(&name.service);
                let endpoints = of_service
                    .and_then(|it| it.get(name))
                    .map_or(&[][..], Vec::as_slice);
                let usable = usable(endpoints, port, &BTreeMap::new(), &self.config);
                of_port(name, port, &usable)
            })
            .collect()
    }
}

fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Namespaced {
    let text = |of: &Option<String>| of.clone().unwrap_or_default();
    Namespaced::new(text(&metadata.namespace), text(&metadata.name))
}

/// The entries of a service's port: each of its addresses has the backends that its policy allows.
fn of_port(name: &PortName, port: &ServicePort, usable: &Usable<'_>) -> Vec<Frontend> {
    let entry = |address, number, local: bool| {
        let endpoints = if local {
            &usable.local
        } else {
            &usable.cluster
        };
        let backend = |it: &&Endpoint| (it.address.ip(), it.address.port());
        Frontend {
            port: name.to_string(),
            address,
            protocol: port.protocol,
            number,
            backends: endpoints.iter().map(backend).collect(),
        }
    };
    let cluster_ip = entry(Address::Ip(port.cluster_ip), port.port, port.internal_local);
    let outside = port.external_ips.iter().chain(&port.load_balancer_ips);
    let outside = outside.map(|ip| entry(Address::Ip(*ip), port.port, port.external_local));
    let node_port =
        (port.node_port != 0).then(|| entry(Address::Node, port.node_port, port.external_local));
    [cluster_ip]
        .into_iter()
        .chain(outside)
        .chain(node_port)
        .collect()
}
