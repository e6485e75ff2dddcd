//! A scenario of what was found: the cluster as far as it is known, its Services, and the steps that bring about what is wrong.
//!
//! What was attached is a stranger's: of its names only such are written as Kubernetes has, and of its settings plain values.

mod cluster;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use chainbreak_model::{is_hidden, is_name};
use chainbreak_netfilter::names::{Namespaced, Protocol};
use serde_json::{Map, Value, json};

use self::cluster::{calico, kube_proxy, plain};
use crate::{
    Evidence, Finding,
    services::{self, Led},
    tables::Tables,
};

/// So many Services are played: those that findings name first.
const PLAYED: usize = 5;
/// Which promise is of a client.
const ANSWERED: &str = "-is-answered";
const NODE: &str = "node";
/// Who asks, and from where.
const CLIENTS: [(&str, &str); 2] = [("pod", "pod/client"), (NODE, "node/n1")];

/// How a scenario brings something about, in a cluster of IPv4.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Steps of a timeline, in YAML.
    pub(crate) steps: Vec<String>,
    /// Whether pods lose requests by it.
    pub(crate) pods: bool,
    /// Whether programs of the node do.
    pub(crate) node: bool,
    /// Whether a restart of kube-proxy mends it.
    pub(crate) restart: bool,
    /// Of which ports alone (`test/web:http`); of all where it is empty.
    pub(crate) only: BTreeSet<String>,
}

/// What is known of a cluster that a scenario says.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    kube_proxy: String,
    calico: Option<String>,
    felix: Map<String, Value>,
    services: Vec<Played>,
    made: Made,
    findings: Vec<String>,
    /// Of which kinds of findings no step brings anything about.
    pub left: Vec<String>,
}

/// A Service over TCP, and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Played {
    service: Namespaced,
    /// The port's name; empty where it has none.
    name: String,
    port: u16,
    /// What its pods listen at.
    at: u16,
    replicas: usize,
}

impl Reproduction {
    /// Of what was attached and found.
    ///
    /// # Errors
    /// In words, where nothing is known of kube-proxy.
    pub fn of(evidence: &Evidence, findings: &[Finding]) -> Result<Self, String> {
        let tables = Tables::of(&evidence.dumps);
        let made = Made::of(findings);
        let (with, without): (Vec<&Finding>, _) = findings.iter().partition(|it| it.made.is_some());
        let with: BTreeSet<String> = with.iter().map(|it| it.kind.to_string()).collect();
        let without: BTreeSet<String> = without.iter().map(|it| it.kind.to_string()).collect();
        let configuration = evidence.objects.felix_configuration();
        Ok(Self {
            kube_proxy: kube_proxy(evidence, &tables)?,
            calico: calico(evidence, &tables),
            felix: configuration.map(plain).unwrap_or_default(),
            services: played(evidence, &tables, findings, &made.only),
            made,
            findings: findings.iter().map(|it| it.what.clone()).collect(),
            left: without.difference(&with).cloned().collect(),
        })
    }

    /// Without FelixConfiguration, of which a scenario does not take everything.
    #[must_use]
    pub fn without_felix_configuration(self) -> Self {
        Self {
            felix: Map::new(),
            ..self
        }
    }

    /// The scenario, of that name.
    pub fn scenario(&self, name: &str) -> String {
        let parts = [
            self.head(name),
            self.cluster(),
            self.manifests(),
            self.traffic(),
            self.variants(),
        ];
        parts.concat()
    }

    fn head(&self, name: &str) -> String {
        let mut text = format!(
            "name: {name}\nabout: >\n  Written by `chainbreak diagnose`. What was found on a node:\n"
        );
        for what in &self.findings {
            // A paragraph each.
            let what = what.replace(is_hidden, " ");
            let words: Vec<&str> = what.split_whitespace().collect();
            text.extend(["\n  ", &words.join(" "), "\n"]);
        }
        if self.findings.is_empty() {
            text.push_str("\n  Nothing.\n");
        }
        if !self.left.is_empty() {
            text.extend(["\n  No step brings about: ", &self.left.join(", "), ".\n"]);
        }
        text
    }

    fn cluster(&self) -> String {
        let mut text = format!("cluster:\n  nodes: 1\n  kube-proxy: {}\n", self.kube_proxy);
        if let Some(version) = &self.calico {
            text.extend(["  calico: { version: ", version, ", programs: work }\n"]);
            if !self.felix.is_empty() {
                text.extend([format!("  felix: {}\n", json!(self.felix))]);
            }
        }
        text
    }

    fn manifests(&self) -> String {
        let client = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "default", "name": "client" },
            "spec": { "containers": [{ "name": "client", "image": "busybox:1.36", "command": ["sleep", "infinity"] }] },
        });
        let objects = self.services.iter().flat_map(Played::objects);
        let lines = objects
            .chain([client])
            .map(|object| format!("  - {object}\n"));
        format!("manifests:\n{}", lines.collect::<String>())
    }

    fn traffic(&self) -> String {
        let mut text = "traffic:\n".to_owned();
        for (number, played) in self.services.iter().enumerate() {
            let Namespaced { namespace, name } = &played.service;
            let to = format!("to: service/{namespace}/{name}, port: {}", played.port);
            let lines = CLIENTS.map(|(who, from)| {
                format!("  {who}-{number}: {{ from: {from}, {to}, every: 50ms }}\n")
            });
            text.extend(lines);
        }
        text.push_str("promises:\n");
        let promises = self.promises(|_| true).into_iter().map(|promise| {
            let traffic = promise.trim_end_matches(ANSWERED);
            format!("  {promise}: {{ available: {{ traffic: {traffic}, at-least: 95%, from: found }} }}\n")
        });
        text.extend(promises);
        text
    }

    /// Those of the clients that are asked about.
    fn promises(&self, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
        let numbers = 0..self.services.len();
        let all = numbers.flat_map(|number| CLIENTS.map(|(who, _)| (who, number)));
        let asked = all.filter(|(who, _)| is_asked(who));
        asked
            .map(|(who, number)| format!("{who}-{number}{ANSWERED}"))
            .collect()
    }

    fn variants(&self) -> String {
        let made = &self.made;
        let broken = self.promises(|who| if who == NODE { made.node } else { made.pods });
        let expected = match broken.as_slice() {
            [] => "healthy".to_owned(),
            broken => format!("{{ broken: [{}] }}", broken.join(", ")),
        };
        let mut text = format!(
            "timeline:\n{}variants:\n  as-found: {{ expect: {expected} }}\n",
            made.timeline("  ", &[])
        );
        if made.restart && !broken.is_empty() {
            let mending = ["restart: { agent: kube-proxy, node: n1 }", "settle: 1s"];
            let timeline = made.timeline("      ", &mending);
            let parts = [
                "  kube-proxy-restarted:\n    timeline:\n",
                &timeline,
                "    expect: healthy\n",
            ];
            text.extend(parts);
        }
        text
    }
}

impl Made {
    /// What brings about all of them.
    fn of(findings: &[Finding]) -> Self {
        let all = || findings.iter().filter_map(|it| it.made.as_ref());
        let mut steps: Vec<String> = Vec::new();
        for step in all().flat_map(|it| &it.steps) {
            if !steps.contains(step) {
                steps.push(step.clone());
            }
        }
        let mut breaking = all().filter(|it| it.pods || it.node);
        Self {
            steps,
            pods: all().any(|it| it.pods),
            node: all().any(|it| it.node),
            restart: breaking.all(|it| it.restart),
            only: all().flat_map(|it| it.only.clone()).collect(),
        }
    }

    fn timeline(&self, indent: &str, mending: &[&str]) -> String {
        let steps = self.steps.iter().map(String::as_str);
        let all = ["settle: 1s"].into_iter().chain(steps);
        let all = all.chain(mending.iter().copied());
        let all = all.chain(["mark: found", "settle: 2s"]);
        let lines = all.map(|step| format!("{indent}- {step}\n"));
        lines.collect()
    }
}

impl Played {
    fn objects(&self) -> [Value; 2] {
        let Namespaced { namespace, name } = &self.service;
        let mut port = json!({ "port": self.port, "targetPort": self.at });
        if !self.name.is_empty() {
            port["name"] = json!(self.name);
        }
        let containers = json!([{ "name": "nginx", "image": "nginx:1.27", "ports": [{ "containerPort": self.at }] }]);
        [
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": namespace, "name": name },
                "spec": {
                    "replicas": self.replicas.clamp(1, 3), "selector": { "matchLabels": { "app": name } },
                    "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": containers } },
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": namespace, "name": name },
                "spec": { "selector": { "app": name }, "ports": [port] },
            }),
        ]
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
fn played(
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
    let of_api = of_api.filter(|it| it.name.protocol == Protocol::Tcp && only.is_empty());
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
