//! What the API server itself gives a Service: cluster IP, node ports, defaults.
//!
//! Addresses and ports are handed out in order, not at random, from above the band that Kubernetes
//! keeps for explicit choices, and not reused until the range has been gone through: a new Service
//! does not meet the conntrack entries of the last one.

mod families;
mod pool;

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use self::{
    families::{Family, cluster_ips, is_headless},
    pool::{Pool, offset_by},
};
use crate::{
    error::{ApiError, Cause},
    object::{as_map, default, drop_empty, items, map_at, meta, text},
};

const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// Node ports below are left to explicit choices (KEP-3668).
const FIRST_DYNAMIC_PORT: u16 = 30086;

/// The cluster IPs and node ports that are taken.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// One for each family of the cluster, its default first.
    pools: Vec<Pool>,
    ports: BTreeSet<u16>,
    next_port: u16,
}

impl Addresses {
    /// At most one range of each family; the first is the cluster's default.
    pub(crate) fn new(cidrs: &[IpNet]) -> Self {
        Self {
            pools: cidrs.iter().copied().map(Pool::new).collect(),
            ports: BTreeSet::new(),
            next_port: FIRST_DYNAMIC_PORT,
        }
    }

    fn families(&self) -> Vec<Family> {
        self.pools.iter().map(Pool::family).collect()
    }

    fn pool(&mut self, family: Family) -> Option<&mut Pool> {
        self.pools.iter_mut().find(|pool| pool.family() == family)
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
            if let Some(pool) = self.pool(Family::of(ip)) {
                pool.release(ip);
            }
        }
        for port in node_ports(service) {
            self.ports.remove(&port);
        }
    }

    fn claim(&mut self, service: &Value) {
        for ip in cluster_ips(service) {
            if let Some(pool) = self.pool(Family::of(ip)) {
                pool.take(ip);
            }
        }
        self.ports.extend(node_ports(service));
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
        let mut result = self.check(service, old);
        if result.is_ok() {
            result = self.allocate(service);
            if result.is_err() {
                self.release(service);
            }
        }
        if let (Err(_), Some(old)) = (&result, old) {
            self.claim(old);
        }
        result
    }

    /// Also completes the families, without which nothing can be said of addresses.
    fn check(&self, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        let mut causes = Vec::new();
        if Wants::of(service).cluster_ip {
            let settled = families::settle(service, old, &self.families());
            causes.extend(settled.err().into_iter().flatten());
            causes.extend(
                old.into_iter()
                    .flat_map(|old| families::change(service, old)),
            );
        }
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
        if items(service, "/spec/ports").is_empty()
            && !is_headless(service)
            && kind != "ExternalName"
        {
            causes.push(Cause::required("spec.ports", ""));
        }
        check_ports(service, &mut causes);
        for ip in cluster_ips(service) {
            let pool = self.pools.iter().find(|it| it.family() == Family::of(ip));
            if let Some(Err(why)) = pool.map(|pool| pool.check(ip)) {
                let detail = format!("failed to allocate IP {ip}: {why}");
                let ips = &spec["clusterIPs"];
                causes.push(Cause::invalid("spec.clusterIPs", ips, &detail));
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
        self.claim(service);
        let wants = Wants::of(service);
        if wants.cluster_ip && !is_headless(service) {
            let mut ips = cluster_ips(service);
            for family in families::named(service).into_iter().skip(ips.len()) {
                let given = self.pool(family).and_then(Pool::give);
                ips.push(given.ok_or_else(|| exhausted("spec.clusterIPs"))?);
                // Written down at once: what is named is given back on refusal.
                map_at(service, "spec").insert("clusterIPs".to_owned(), json!(ips));
            }
            let first = service["spec"]["clusterIPs"][0].clone();
            default(map_at(service, "spec"), "clusterIP", first);
        }
        let spec = map_at(service, "spec");
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
        keep_cluster_ips(spec, &old["spec"]);
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

/// One of `clusterIP` and `clusterIPs` may be changed alone, or left out.
fn keep_cluster_ips(spec: &mut Map<String, Value>, old: &Value) {
    let same = |spec: &Map<String, Value>, field: &str| spec.get(field) == old.get(field);
    match (same(spec, "clusterIP"), same(spec, "clusterIPs")) {
        (false, true) if spec.contains_key("clusterIP") => drop(spec.remove("clusterIPs")),
        (true, false) => {
            if let Some(first) = spec.get("clusterIPs").and_then(|ips| ips.get(0)).cloned() {
                spec.insert("clusterIP".to_owned(), first);
            }
        }
        _ => {}
    }
    keep(spec, old, "clusterIP");
    if same(spec, "clusterIP") {
        keep(spec, old, "clusterIPs");
    }
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

/// The first address of a range, which is that of the Service `kubernetes` (`pkg/controlplane`).
pub fn first_ip(cidr: IpNet) -> IpAddr {
    offset_by(cidr.network(), 1)
}

#[cfg(test)]
mod tests;
