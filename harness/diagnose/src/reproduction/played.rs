//! The Services that a scenario plays.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use chainbreak_model::is_name;
use chainbreak_netfilter::names::{Namespaced, Protocol};
use serde_json::{Value, json};

use crate::{
    Evidence, Finding,
    services::{self, Led},
    tables::Tables,
};

/// So many Services are played: those that findings name first.
const PLAYED: usize = 5;
/// A Service over TCP, and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Played {
    pub(super) service: Namespaced,
    /// The port's name; empty where it has none.
    name: String,
    pub(super) port: u16,
    /// What its pods listen at.
    at: u16,
    replicas: usize,
}

impl Played {
    pub(super) fn objects(&self) -> [Value; 2] {
        let Namespaced { namespace, name } = &self.service;
        let mut port = json!({ "port": self.port, "targetPort": self.at });
        if !self.name.is_empty() {
            port["name"] = json!(self.name);
        }
        [
            self.deployment(None),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": namespace, "name": name },
                "spec": { "selector": { "app": name }, "ports": [port] },
            }),
        ]
    }

    /// Its pods; those of a release where one is named.
    pub(super) fn deployment(&self, release: Option<&str>) -> Value {
        let Namespaced { namespace, name } = &self.service;
        let containers = json!([{ "name": "nginx", "image": "nginx:1.27", "ports": [{ "containerPort": self.at }] }]);
        let mut labels = json!({ "app": name });
        if let Some(release) = release {
            labels["release"] = json!(release);
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": namespace, "name": name },
            "spec": {
                "replicas": self.replicas.clamp(1, 3), "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
            },
        })
    }

    /// Of what rules lead, by the name that kube-proxy writes.
    fn of_rules(led: &Led) -> Option<Self> {
        let (namespace, rest) = led.name.split_once('/')?;
        let (name, port) = rest.split_once(':').unwrap_or((rest, ""));
        Some(Self {
            service: Namespaced::new(namespace, name),
            name: port.to_owned(),
            port: led.port,
            at: led.endpoints.first().map_or(led.port, SocketAddr::port),
            replicas: led.endpoints.len(),
        })
    }

    /// Whether Kubernetes would have such a Service, and it is another than the API's own.
    fn is_plain(&self) -> bool {
        let Namespaced { namespace, name } = &self.service;
        let is_own = namespace == "default" && name == "kubernetes";
        let has_name = self.name.is_empty() || is_name(&self.name);
        is_name(namespace) && is_name(name) && has_name && !is_own && self.port > 0 && self.at > 0
    }
}

/// The Services that are played, one port of each: those of these names alone, where there are some.
pub(super) fn played(
    evidence: &Evidence,
    tables: &[Tables],
    findings: &[Finding],
    only: &BTreeSet<String>,
) -> Vec<Played> {
    let mut known: BTreeMap<Namespaced, Played> = BTreeMap::new();
    let mut add = |played: Played| {
        if played.is_plain() {
            known.entry(played.service.clone()).or_insert(played);
        }
    };
    let slices = evidence.objects.endpoints().unwrap_or_default();
    let of_api = evidence.objects.services().into_iter();
    let of_api = of_api.filter(|it| it.name.protocol == Protocol::Tcp);
    let of_api = of_api.filter(|it| only.is_empty() || only.contains(&it.name.to_string()));
    for port in of_api {
        let endpoints = slices.get(&port.name);
        let at = endpoints.and_then(|it| it.all.first());
        add(Played {
            at: at.map_or(port.port, SocketAddr::port),
            replicas: endpoints.map_or(0, |it| it.ready.len()),
            service: port.name.service,
            name: port.name.port,
            port: port.port,
        });
    }
    let led = services::all(tables, evidence).into_iter();
    let led = led.filter(|it| it.protocol == "tcp" && (only.is_empty() || only.contains(&it.name)));
    led.filter_map(|it| Played::of_rules(&it)).for_each(add);
    let mut all: Vec<Played> = known.into_values().collect();
    if all.is_empty() {
        all.push(Played {
            service: Namespaced::new("test", "web"),
            name: String::new(),
            port: 80,
            at: 80,
            replicas: 2,
        });
    }
    let lines: Vec<&String> = findings.iter().flat_map(|it| &it.evidence).collect();
    all.sort_by_cached_key(|it| {
        let name = it.service.to_string();
        !lines.iter().any(|line| line.contains(&name))
    });
    all.truncate(PLAYED);
    all
}
