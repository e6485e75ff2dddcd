//! What kube-proxy takes from a Service: its ports, with all that rules need to know.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, Service, ServicePort as ApiPort, ServiceSpec,
};

use super::{
    config::{Config, Family},
    names::{Namespaced, PortName, Protocol},
    profile::Version,
};

/// The default of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const STICKY_SECONDS: u32 = 10_800;

/// The ports of one service.
pub(crate) type Ports = BTreeMap<PortName, ServicePort>;

/// A port of a service. A number that is absent in the API is 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServicePort {
    pub(crate) protocol: Protocol,
    pub(crate) cluster_ip: IpAddr,
    pub(crate) port: u16,
    pub(crate) node_port: u16,
    pub(crate) health_check_node_port: u16,
    pub(crate) external_ips: Vec<IpAddr>,
    pub(crate) load_balancer_ips: Vec<IpAddr>,
    /// Only 1.20 counts those that are known by a host name.
    pub(crate) balancers_without_ip: usize,
    pub(crate) source_ranges: Vec<IpNet>,
    /// For how long a client stays with its endpoint; `None` without session affinity.
    pub(crate) sticky_seconds: Option<u32>,
    pub(crate) internal_local: bool,
    pub(crate) external_local: bool,
    /// The service's annotation about topology hints as it is written, where it is read: to write it otherwise is a change.
    pub(crate) hints_annotation: String,
    /// The end of all its chains' names.
    pub(crate) hash: String,
}

impl ServicePort {
    /// Whether anything but its cluster IP leads to it.
    pub(crate) fn externally_accessible(&self) -> bool {
        self.node_port != 0 || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Also with a local external policy: pods and the node itself short-circuit to all endpoints.
    pub(crate) fn uses_cluster_endpoints(&self) -> bool {
        !self.internal_local || self.externally_accessible()
    }

    /// Whether the service asks for topology hints.
    pub(crate) fn asks_for_hints(&self, version: &Version) -> bool {
        match self.hints_annotation.as_str() {
            "Auto" | "auto" => true,
            "" | "Disabled" | "disabled" => false,
            _ => version.any_hints_annotation_counts(),
        }
    }

    pub(crate) fn uses_local_endpoints(&self) -> bool {
        self.internal_local || (self.external_local && self.externally_accessible())
    }
}

/// The ports of that service which this proxier serves: none when it is headless, an external
/// name, or of the other family only.
pub(crate) fn of_service(service: &Service, config: &Config) -> Ports {
    let (Some(namespace), Some(name), Some(spec)) = (
        service.metadata.namespace.as_deref(),
        service.metadata.name.as_deref(),
        service.spec.as_ref(),
    ) else {
        return Ports::new();
    };
    let Some(cluster_ip) = cluster_ip(spec, config) else {
        return Ports::new();
    };
    let key = Namespaced::new(namespace, name);
    let template = template(service, spec, cluster_ip, config);
    let ports = spec.ports.iter().flatten();
    ports
        .filter_map(|port| of_port(&key, port, &template))
        .collect()
}

fn cluster_ip(spec: &ServiceSpec, config: &Config) -> Option<IpAddr> {
    if spec.type_.as_deref() == Some("ExternalName") || spec.cluster_ip.as_deref() == Some("None") {
        return None;
    }
    let listed = spec.cluster_ips.iter().flatten();
    listed
        .chain(&spec.cluster_ip)
        .filter_map(|text| text.parse().ok())
        .find(|&ip| config.family.has(ip))
}

/// All that the ports of a service have in common.
fn template(
    service: &Service,
    spec: &ServiceSpec,
    cluster_ip: IpAddr,
    config: &Config,
) -> ServicePort {
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let external_ips = of_family(spec.external_ips.iter().flatten(), config);
    let exposed = matches!(type_, "NodePort" | "LoadBalancer") || !external_ips.is_empty();
    let local = |policy: &Option<String>| policy.as_deref() == Some("Local");
    let external_local = exposed && local(&spec.external_traffic_policy);
    let has_health_check = type_ == "LoadBalancer" && external_local;
    let health_check = spec.health_check_node_port.filter(|_| has_health_check);
    ServicePort {
        protocol: Protocol::Tcp,
        cluster_ip,
        port: 0,
        node_port: 0,
        health_check_node_port: number(health_check),
        external_ips,
        load_balancer_ips: load_balancer_ips(service, config),
        balancers_without_ip: balancers_without_ip(service, config),
        source_ranges: source_ranges(spec, config),
        sticky_seconds: sticky_seconds(spec),
        internal_local: config.version.internal_traffic_policy()
            && local(&spec.internal_traffic_policy),
        external_local,
        hints_annotation: hints_annotation(service, config),
        hash: String::new(),
    }
}

fn of_port(
    service: &Namespaced,
    port: &ApiPort,
    template: &ServicePort,
) -> Option<(PortName, ServicePort)> {
    let protocol = Protocol::from_api(port.protocol.as_deref())?;
    let name = PortName {
        service: service.clone(),
        port: port.name.clone().unwrap_or_default(),
        protocol,
    };
    let port = ServicePort {
        protocol,
        port: number(Some(port.port)),
        node_port: number(port.node_port),
        hash: name.hash(),
        ..template.clone()
    };
    Some((name, port))
}

/// The API server admits nothing but port numbers.
fn number(port: Option<i32>) -> u16 {
    port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
}

fn of_family<'a>(texts: impl Iterator<Item = &'a String>, config: &Config) -> Vec<IpAddr> {
    texts
        .filter_map(|text| text.parse().ok())
        .filter(|&ip| config.family.has(ip))
        .collect()
}

fn ingress(service: &Service) -> impl Iterator<Item = &LoadBalancerIngress> {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    balancer
        .into_iter()
        .flat_map(|it| it.ingress.iter().flatten())
}

fn balancers_without_ip(service: &Service, config: &Config) -> usize {
    if !config.version.cleans_conntrack_as_1_20() || config.family == Family::Ipv6 {
        return 0;
    }
    ingress(service).filter(|it| it.ip.is_none()).count()
}

fn load_balancer_ips(service: &Service, config: &Config) -> Vec<IpAddr> {
    let by_mode = config.version.load_balancer_ip_mode();
    let ips = ingress(service)
        .filter(|it| !by_mode || it.ip_mode.as_deref() != Some("Proxy"))
        .filter_map(|it| it.ip.as_ref());
    of_family(ips, config)
}

fn source_ranges(spec: &ServiceSpec, config: &Config) -> Vec<IpNet> {
    let ranges = spec.load_balancer_source_ranges.iter().flatten();
    let ranges: Vec<IpNet> = ranges
        .filter_map(|text| text.trim().parse::<IpNet>().ok())
        .filter(|range| config.family.has(range.addr()))
        .map(|range| range.trunc())
        .collect();
    let open = ranges.iter().any(|range| range.prefix_len() == 0);
    if open && config.version.zero_range_opens() {
        return Vec::new();
    }
    ranges
}

fn sticky_seconds(spec: &ServiceSpec) -> Option<u32> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let affinity = spec.session_affinity_config.as_ref();
    let client_ip = affinity.and_then(|it| it.client_ip.as_ref());
    let seconds = client_ip.and_then(|it| it.timeout_seconds);
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    Some(seconds.unwrap_or(STICKY_SECONDS))
}

/// The deprecated one comes first.
fn hints_annotation(service: &Service, config: &Config) -> String {
    if !config.version.reads_hints_annotation() {
        return String::new();
    }
    let annotations = service.metadata.annotations.as_ref();
    let said =
        |name: &str| annotations.and_then(|it| it.get(&format!("service.kubernetes.io/{name}")));
    let named = config.version.hints_annotations();
    named
        .iter()
        .find_map(|name| said(name))
        .cloned()
        .unwrap_or_default()
}
