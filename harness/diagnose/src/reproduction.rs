//! A scenario of what was found: the cluster as far as it is known, its Services, and the steps that bring about what is wrong.
//!
//! What was attached is a stranger's: of its names only such are written as Kubernetes has, and of its settings plain values.

mod blind;
mod cluster;
mod played;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use chainbreak_model::is_hidden;
use chainbreak_netfilter::names::Namespaced;
use serde_json::{Map, Value, json};

use self::{
    cluster::{calico, kube_proxy, plain},
    played::{Played, played},
};
use crate::{Evidence, Finding, tables::Tables};

/// Which promise is of a client.
const ANSWERED: &str = "-is-answered";
const NODE: &str = "node";
/// A restart of kube-proxy, and its time.
const RESTARTED: [&str; 2] = ["restart: { agent: kube-proxy, node: n1 }", "settle: 1s"];
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
    /// What mends it, where a scenario tries that.
    pub(crate) mends: Option<Mends>,
    /// Of which ports alone (`test/web:http`); of all where it is empty.
    pub(crate) only: BTreeSet<String>,
}

/// What a variant tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mends {
    /// A restart of kube-proxy.
    Restart,
    /// The API at its own address for Felix's new pods, of what comes about by [`blind::steps`].
    Directly,
}

/// What is known of a cluster that a scenario says.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    kube_proxy: String,
    calico: Option<String>,
    felix: Map<String, Value>,
    is_blind: bool,
    services: Vec<Played>,
    made: Made,
    findings: Vec<String>,
    /// Of which kinds of findings no step brings anything about.
    pub left: Vec<String>,
}

impl Reproduction {
    /// Of what was attached and found.
    ///
    /// # Errors
    /// In words, where nothing is known of kube-proxy.
    pub fn of(evidence: &Evidence, findings: &[Finding]) -> Result<Self, String> {
        let tables = Tables::of(evidence);
        let calico = calico(evidence, &tables);
        let configuration = evidence.objects.felix_configuration();
        let felix = configuration.map(plain).unwrap_or_default();
        let can_be_blind = blind::comes_about(calico.as_deref(), &felix);
        let is_made = |made: &Made| can_be_blind || !made.is_blind();
        let (with, without): (Vec<&Finding>, Vec<_>) = findings
            .iter()
            .partition(|it| it.made.as_ref().is_some_and(is_made));
        let made = Made::of(&with);
        let is_blind = with
            .iter()
            .filter_map(|it| it.made.as_ref())
            .any(Made::is_blind);
        let with: BTreeSet<String> = with.iter().map(|it| it.kind.to_string()).collect();
        let without: BTreeSet<String> = without.iter().map(|it| it.kind.to_string()).collect();
        Ok(Self {
            kube_proxy: kube_proxy(evidence, &tables)?,
            is_blind,
            calico,
            felix,
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
            let api = if self.is_blind {
                blind::BY_THE_SERVICE
            } else {
                ""
            };
            text.extend([
                "  calico: { version: ",
                version,
                ", ",
                api,
                "programs: work }\n",
            ]);
            let mut felix = self.felix.clone();
            if self.is_blind {
                felix.insert("bpfEnabled".to_owned(), json!(true));
            }
            if !felix.is_empty() {
                text.extend([format!("  felix: {}\n", json!(felix))]);
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
        let timeline = self.timeline("  ", &[]);
        let mut text =
            format!("timeline:\n{timeline}variants:\n  as-found: {{ expect: {expected} }}\n");
        if let Some(mends) = made.mends.filter(|_| !broken.is_empty()) {
            let (name, mending) = match mends {
                Mends::Restart => ("kube-proxy-restarted", RESTARTED),
                Mends::Directly => ("felix-asks-the-api-directly", blind::DIRECTLY),
            };
            let timeline = self.timeline("      ", &mending);
            let parts = [
                "  ",
                name,
                ":\n    timeline:\n",
                &timeline,
                "    expect: healthy\n",
            ];
            text.extend(parts);
        }
        text
    }

    fn timeline(&self, indent: &str, mending: &[&str]) -> String {
        let blind = if self.is_blind {
            blind::steps(&self.services)
        } else {
            Vec::new()
        };
        // A Felix that cleans up deletes jumps itself.
        let is_done = |step: &&String| self.is_blind && step.starts_with("delete-rule:");
        let steps = self.made.steps.iter().filter(|step| !is_done(step));
        let steps = steps.chain(&blind).map(String::as_str);
        let all = ["settle: 1s"].into_iter().chain(steps);
        let all = all.chain(mending.iter().copied());
        let all = all.chain(["mark: found", "settle: 2s"]);
        let lines = all.map(|step| format!("{indent}- {step}\n"));
        lines.collect()
    }
}

impl Made {
    /// Whether it comes about by [`blind::steps`].
    fn is_blind(&self) -> bool {
        self.mends == Some(Mends::Directly)
    }

    /// What brings about all of them.
    fn of(findings: &[&Finding]) -> Self {
        let all = || findings.iter().filter_map(|it| it.made.as_ref());
        let mut steps: Vec<String> = Vec::new();
        for step in all().flat_map(|it| &it.steps) {
            if !steps.contains(step) {
                steps.push(step.clone());
            }
        }
        let mut breaking = all().filter(|it| it.pods || it.node);
        let first = breaking.next().and_then(|it| it.mends);
        Self {
            steps,
            pods: all().any(|it| it.pods),
            node: all().any(|it| it.node),
            mends: first.filter(|first| breaking.all(|it| it.mends == Some(*first))),
            only: all().flat_map(|it| it.only.clone()).collect(),
        }
    }
}
