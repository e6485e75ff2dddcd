//! What the API server itself gives a Service: cluster IP, node ports, defaults.
//!
//! Addresses and ports are handed out in order, not at random, from above the band that Kubernetes
//! keeps for explicit choices, and not reused until the range has been gone through: a new Service
//! does not meet the conntrack entries of the last one.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::{
    error::{ApiError, Cause},
    object::{as_map, default, drop_empty, items, map_at, meta, text},
};

const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// Node ports below are left to explicit choices (KEP-3668).
const FIRST_DYNAMIC_PORT: u16 = 30086;

/// The cluster IPs and node ports that are taken.
#[derive(Debug)]
pub(crate) struct Addresses {
    cidr: IpNet,
    ips: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
    next_ip: IpAddr,
    next_port: u16,
}

impl Addresses {
    pub(crate) fn new(cidr: IpNet) -> Self {
        let mut addresses = Self {
            cidr,
            ips: BTreeSet::new(),
            ports: BTreeSet::new(),
            next_ip: cidr.network(),
            next_port: FIRST_DYNAMIC_PORT,
        };
        addresses.next_ip = addresses.first_dynamic_ip();
        addresses
    }

    /// Above a sixteenth of the range, within 16 and 256 addresses (KEP-3070).
    fn first_dynamic_ip(&self) -> IpAddr {
        let bits = u32::from(self.cidr.max_prefix_len() - self.cidr.prefix_len());
        let size = 1_u128.checked_shl(bits).unwrap_or(u128::MAX);
        let offset = if size <= 16 {
            1
        } else {
            (size / 16).clamp(16, 256)
        };
        offset_by(self.cidr.network(), offset)
    }

    fn new_ip(&mut self) -> Option<IpAddr> {
        let usable = |ip: &IpAddr, net: &IpNet| net.contains(ip) && *ip != net.broadcast();
        let start = self.next_ip;
        let mut ip = start;
        loop {
            if !usable(&ip, &self.cidr) {
                ip = offset_by(self.cidr.network(), 1);
            }
            let next = offset_by(ip, 1);
            if self.ips.insert(ip) {
                self.next_ip = next;
                return Some(ip);
            }
            ip = next;
            if ip == start {
                return None;
            }
        }
    }

    fn new_port(&mut self) -> Option<u16> {
        let order = (self.next_port..=*NODE_PORTS.end()).chain(*NODE_PORTS.start()..self.next_port);
        let port = order.into_iter().find(|port| !self.ports.contains(port))?;
        self.ports.insert(port);
        self.next_port = if port == *NODE_PORTS.end() {
            FIRST_DYNAMIC_PORT
        } else {
            port + 1
        };
        Some(port)
    }

    /// Gives back what a Service holds.
    pub(crate) fn release(&mut self, service: &Value) {
        for ip in cluster_ips(service) {
            self.ips.remove(&ip);
        }
        for port in node_ports(service) {
            self.ports.remove(&port);
        }
    }

    /// Completes a Service and claims what it holds. `old` is the Service before an update: what it
    /// held and the new one does not name is kept when it still fits. Nothing is claimed on refusal.
    pub(crate) fn settle(
        &mut self,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        defaults(service);
        if let Some(old) = old {
            keep_allocated(service, old);
            self.release(old);
        }
        let mut result = self.check(service);
        if result.is_ok() {
            result = self.allocate(service);
            if result.is_err() {
                self.release(service);
            }
        }
        if let (Err(_), Some(old)) = (&result, old) {
            self.ips.extend(cluster_ips(old));
            self.ports.extend(node_ports(old));
        }
        result
    }

    fn check(&self, service: &Value) -> Result<(), ApiError> {
        let mut causes = Vec::new();
        let spec = &service["spec"];
        let kind = text(service, "/spec/type");
        if !["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"].contains(&kind) {
            causes.push(Cause::invalid(
                "spec.type",
                &spec["type"],
                "supported values: \
                \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ));
        }
        let headless = spec["clusterIP"] == "None";
        if items(service, "/spec/ports").is_empty() && !headless && kind != "ExternalName" {
            causes.push(Cause::required("spec.ports", ""));
        }
        check_ports(service, &mut causes);
        if let Some(ip) = spec["clusterIP"].as_str().filter(|ip| *ip != "None") {
            match ip.parse::<IpAddr>() {
                Ok(ip) if !self.cidr.contains(&ip) => causes.push(Cause::invalid(
                    "spec.clusterIP",
                    &spec["clusterIP"],
                    &format!(
                        "failed to allocate IP {ip}: the provided IP is not in the valid \
                        range. The range of valid IPs is {}",
                        self.cidr
                    ),
                )),
                Ok(ip) if self.ips.contains(&ip) => causes.push(Cause::invalid(
                    "spec.clusterIP",
                    &spec["clusterIP"],
                    &format!("failed to allocate IP {ip}: provided IP is already allocated"),
                )),
                Ok(_) => {}
                Err(_) => causes.push(Cause::invalid(
                    "spec.clusterIP",
                    &spec["clusterIP"],
                    "must be a valid IP address",
                )),
            }
        }
        let mut seen = BTreeSet::new();
        for port in node_ports(service) {
            if !NODE_PORTS.contains(&port) {
                causes.push(Cause::invalid(
                    "spec.ports[0].nodePort",
                    &port.into(),
                    "provided port is not in the valid range. The range of valid ports is \
                     30000-32767",
                ));
            } else if self.ports.contains(&port) || !seen.insert(port) {
                causes.push(Cause::invalid(
                    "spec.ports[0].nodePort",
                    &port.into(),
                    "provided port is already allocated",
                ));
            }
        }
        invalid(service, causes)
    }

    fn allocate(&mut self, service: &mut Value) -> Result<(), ApiError> {
        let exhausted = |what: &str| ApiError::Invalid {
            kind: "Service".to_owned(),
            name: String::new(),
            causes: vec![Cause::invalid(what, &Value::Null, "range is full")],
        };
        self.ips.extend(cluster_ips(service));
        self.ports.extend(node_ports(service));
        let wants = Wants::of(service);
        let spec = map_at(service, "spec");
        if wants.cluster_ip && !spec.contains_key("clusterIP") {
            let ip = self.new_ip().ok_or_else(|| exhausted("spec.clusterIP"))?;
            spec.insert("clusterIP".to_owned(), ip.to_string().into());
        }
        if let Some(ip) = spec.get("clusterIP").cloned() {
            spec.insert("clusterIPs".to_owned(), json!([ip]));
            let family = if self.cidr.addr().is_ipv4() {
                "IPv4"
            } else {
                "IPv6"
            };
            default(spec, "ipFamilies", json!([family]));
            default(spec, "ipFamilyPolicy", "SingleStack");
        }
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let port = as_map(port);
            if wants.node_ports && !port.contains_key("nodePort") {
                let number = self.new_port().ok_or_else(|| exhausted("spec.ports"))?;
                port.insert("nodePort".to_owned(), number.into());
            }
        }
        if wants.health_check && !spec.contains_key("healthCheckNodePort") {
            let number = self
                .new_port()
                .ok_or_else(|| exhausted("spec.healthCheckNodePort"))?;
            spec.insert("healthCheckNodePort".to_owned(), number.into());
        }
        Ok(())
    }
}

/// What a Service's type makes the server allocate.
struct Wants {
    cluster_ip: bool,
    node_ports: bool,
    health_check: bool,
}

impl Wants {
    fn of(service: &Value) -> Self {
        let kind = text(service, "/spec/type");
        let spec = &service["spec"];
        let balanced = kind == "LoadBalancer";
        Self {
            cluster_ip: kind != "ExternalName",
            node_ports: kind == "NodePort"
                || (balanced && spec["allocateLoadBalancerNodePorts"] != false),
            health_check: balanced && spec["externalTrafficPolicy"] == "Local",
        }
    }
}

fn check_ports(service: &Value, causes: &mut Vec<Cause>) {
    let ports = items(service, "/spec/ports");
    for (i, port) in ports.iter().enumerate() {
        let number = port["port"].as_u64().unwrap_or_default();
        if !(1..=65535).contains(&number) {
            causes.push(Cause::invalid(
                &format!("spec.ports[{i}].port"),
                &port["port"],
                "must be between 1 and 65535, inclusive",
            ));
        }
        if ports.len() > 1 && text(port, "/name").is_empty() {
            causes.push(Cause::required(&format!("spec.ports[{i}].name"), ""));
        }
    }
}

fn invalid(service: &Value, causes: Vec<Cause>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid {
        kind: "Service".to_owned(),
        name: meta(service, "name").to_owned(),
        causes,
    })
}

fn defaults(service: &mut Value) {
    let spec = map_at(service, "spec");
    drop_empty(spec, &["clusterIP", "type", "sessionAffinity"]);
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        default(
            spec,
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": 10800}}),
        );
    } else {
        spec.remove("sessionAffinityConfig");
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if kind != "ExternalName" {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if ["NodePort", "LoadBalancer"].contains(&&*kind) {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let port = as_map(port);
        default(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_default();
        if port
            .get("targetPort")
            .is_some_and(|t| *t == json!(0) || *t == json!(""))
        {
            port.remove("targetPort");
        }
        default(port, "targetPort", number);
        if port
            .get("nodePort")
            .is_some_and(|n| n.as_u64().unwrap_or_default() == 0)
        {
            port.remove("nodePort");
        }
    }
}

/// Carries cluster IP and node ports over an update that does not name them, and drops what the new
/// type has no use for.
fn keep_allocated(service: &mut Value, old: &Value) {
    let wants = Wants::of(service);
    let old_ports: Vec<&Value> = items(old, "/spec/ports").iter().collect();
    let spec = map_at(service, "spec");
    if wants.cluster_ip {
        keep(spec, &old["spec"], "clusterIP");
    } else {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let same = |o: &&&Value| o["port"] == port["port"] && o["protocol"] == port["protocol"];
        let old = old_ports.iter().find(same).copied();
        let port = as_map(port);
        match old {
            Some(old) if wants.node_ports => keep(port, old, "nodePort"),
            _ if !wants.node_ports => drop(port.remove("nodePort")),
            _ => {}
        }
    }
    if wants.health_check {
        keep(spec, &old["spec"], "healthCheckNodePort");
    } else {
        spec.remove("healthCheckNodePort");
    }
    if !wants.node_ports {
        spec.remove("externalTrafficPolicy");
    }
}

fn keep(new: &mut Map<String, Value>, old: &Value, field: &str) {
    if let Some(value) = old.get(field) {
        default(new, field, value.clone());
    }
}

/// The cluster IP may be set once, and only goes away with the type.
pub(crate) fn check_update(new: &Value, old: &Value) -> Result<(), ApiError> {
    let (was, is) = (text(old, "/spec/clusterIP"), text(new, "/spec/clusterIP"));
    if was.is_empty() || is.is_empty() || was == is || text(new, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    let cause = Cause::invalid("spec.clusterIPs[0]", &is.into(), "may not change once set");
    invalid(new, vec![cause])
}

fn cluster_ips(service: &Value) -> Vec<IpAddr> {
    text(service, "/spec/clusterIP")
        .parse()
        .into_iter()
        .collect()
}

fn node_ports(service: &Value) -> Vec<u16> {
    let ports = items(service, "/spec/ports")
        .iter()
        .map(|port| &port["nodePort"]);
    ports
        .chain([&service["spec"]["healthCheckNodePort"]])
        .filter_map(Value::as_u64)
        .filter_map(|port| u16::try_from(port).ok())
        .collect()
}

/// The first address of a range, which the API server keeps for itself.
pub(crate) fn first_ip(cidr: IpNet) -> IpAddr {
    offset_by(cidr.network(), 1)
}

fn offset_by(ip: IpAddr, offset: u128) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let offset = u32::try_from(offset).unwrap_or(u32::MAX);
            IpAddr::V4(u32::from(ip).wrapping_add(offset).into())
        }
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).wrapping_add(offset).into()),
    }
}
