//! A case: one scenario with one variant's overrides and one matrix cell applied, ready to run.
//! Everything a backend and the engine need is here, checked and resolved; spans and spelling
//! mistakes stay behind in the reader.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    time::Duration,
};

use chainbreak_probe::wire::Connections;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::names::{AgentName, NodeName, PromiseName, ScenarioName, TrafficName, VariantName};

/// The unit that runs, and one JUnit test suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    /// The scenario's name.
    pub scenario: ScenarioName,
    /// The variant's name.
    pub variant: VariantName,
    /// The matrix cell, e.g. `iptables` → `nft`; empty without a matrix.
    pub cell: IndexMap<String, String>,
    /// What the scenario says of itself.
    pub about: String,
    /// References such as `projectcalico/calico#10538`.
    pub incident: Vec<String>,
    /// The scenario file.
    pub file: PathBuf,
    /// What to raise.
    pub cluster: ClusterSpec,
    /// Kubernetes objects to apply, in order, namespaces added in front where they are missing.
    pub manifests: Vec<serde_json::Value>,
    /// Traffic, by name.
    pub traffic: IndexMap<TrafficName, Traffic>,
    /// What happens, one step after the other.
    pub timeline: Vec<Step>,
    /// What is judged.
    pub promises: IndexMap<PromiseName, Promise>,
    /// What is expected of the promises.
    pub expect: Expect,
    /// Seed of everything random.
    pub seed: u64,
}

impl Case {
    /// `scenario/variant` or `scenario/variant[iptables=nft]`: unique in a run, and what a person filters by.
    pub fn id(&self) -> String {
        if self.cell.is_empty() {
            return format!("{}/{}", self.scenario, self.variant);
        }
        let cell: Vec<String> = self.cell.iter().map(|(k, v)| format!("{k}={v}")).collect();
        format!("{}/{}[{}]", self.scenario, self.variant, cell.join(","))
    }
}

/// What is expected of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// Every promise is kept.
    Healthy,
    /// Exactly these promises are broken, every other one is kept.
    Broken(Vec<PromiseName>),
}

/// The cluster that a backend raises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClusterSpec {
    /// How many nodes: `n1` … `nN`.
    pub nodes: u16,
    /// Which iptables the nodes have; also kube-proxy's and Felix's.
    pub iptables: IptablesVariant,
    /// kube-proxy, unless `none`.
    pub kube_proxy: Option<KubeProxySpec>,
    /// Calico, unless `none`.
    pub calico: Option<CalicoSpec>,
    /// The `spec` of FelixConfiguration `default`, as written, applied through the API before agents start.
    pub felix: serde_json::Map<String, serde_json::Value>,
    /// Off-cluster hosts on the underlay, by name.
    pub hosts: Vec<String>,
}

impl ClusterSpec {
    /// `n1` … `nN`.
    pub fn node_names(&self) -> impl Iterator<Item = NodeName> + use<> {
        (1..=self.nodes).map(|number| NodeName::from(format!("n{number}")))
    }

    /// The paths of the machine that real agents are at, each once.
    pub fn agent_paths(&self) -> Vec<PathBuf> {
        let kube_proxy = self.kube_proxy.as_ref().map(|spec| &spec.source);
        let felix = self.calico.as_ref().map(|spec| &spec.source);
        let paths = kube_proxy.into_iter().chain(felix);
        let paths: BTreeSet<PathBuf> = paths
            .filter_map(|source| match source {
                AgentSource::Model => None,
                AgentSource::Path(path) => Some(path.clone()),
            })
            .collect();
        paths.into_iter().collect()
    }
}

/// Which netfilter front end the node's agents use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IptablesVariant {
    /// `iptables-legacy`.
    Legacy,
    /// `iptables-nft`.
    Nft,
}

/// Which program stands for an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentSource {
    /// Our model of its version.
    #[default]
    Model,
    /// The real one: a binary, or the unpacked root file system of an image that has it. Absolute.
    Path(PathBuf),
}

/// kube-proxy's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KubeProxySpec {
    /// Which iptables the node has.
    pub iptables: IptablesVariant,
    /// `1.32` or `1.32.4`; of a real one, what it says itself.
    pub version: String,
    /// Who plays it.
    #[serde(default)]
    pub source: AgentSource,
    /// `--iptables-min-sync-period`.
    pub min_sync_period: Duration,
    /// `--iptables-sync-period`.
    pub sync_period: Duration,
}

/// Calico's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CalicoSpec {
    /// `v3.28.1`; of a real one, what it says itself.
    pub version: String,
    /// Who plays Felix.
    #[serde(default)]
    pub source: AgentSource,
    /// Who owns the pods' interfaces.
    pub pods: PodOwner,
}

/// Who owns the pods' interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodOwner {
    /// Calico: host veths are `cali…`, and Felix has a workload endpoint for each pod.
    Calico,
    /// Another CNI: host veths are `eni…`, Felix knows no workload.
    ThirdParty,
}

/// Requests sent during the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Traffic {
    /// Where requests start.
    pub from: From,
    /// Where they go.
    pub to: To,
    /// The port: a Service's port (for `node-port`: the node port is looked up), a pod's container port.
    pub port: u16,
    /// Distance of two requests.
    pub every: Duration,
    /// New connections or kept ones.
    pub connections: Connections,
    /// When a request counts as timed out.
    pub timeout: Duration,
}

/// Where requests start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    /// `pod/client` or `pod/test/client`.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// `node/n1`.
    Node(NodeName),
    /// `host/outside`.
    Host(String),
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// `service/test/nginx`: the cluster IP.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// `pod/test/web`: the pod's address.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// `node-port/n1/test/nginx`: the Service's node port at that node's address.
    NodePort {
        /// Which node is addressed.
        node: NodeName,
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
    },
}

/// One step of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Let things be for a while.
    Settle(Duration),
    /// Scale a Deployment through the given replica counts, over and over.
    Churn {
        /// `test/nginx`.
        namespace: String,
        /// `test/nginx`.
        deployment: String,
        /// Replica counts, taken in turn.
        replicas: Vec<u32>,
        /// Distance of two changes.
        every: Duration,
        /// How long.
        duration: Duration,
    },
    /// Merge this into FelixConfiguration `default`'s spec.
    Felix(serde_json::Map<String, serde_json::Value>),
    /// From here on, while the next steps happen, an agent's command starts later than the agent wants.
    Slow {
        /// Whose command.
        agent: AgentName,
        /// The command's name: `iptables-restore` is that of both front ends.
        command: String,
        /// How much later each of them starts.
        by: Duration,
        /// How long this is so; the timeline is not over before.
        duration: Duration,
    },
}

/// One health criterion over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Promise {
    /// Requests are answered.
    Available {
        /// Which traffic.
        traffic: TrafficName,
        /// Least share of answered requests, 0–100 (percent).
        at_least: f64,
        /// Longest allowed time without an answer to any request sent.
        longest_gap: Option<Duration>,
    },
    /// No log entry matches.
    NoLog {
        /// Whose log.
        agent: AgentName,
        /// A regular expression.
        matches: String,
    },
    /// Some log entry matches.
    HasLog {
        /// Whose log.
        agent: AgentName,
        /// A regular expression.
        matches: String,
    },
    /// A rule is there, on every node.
    HasRule {
        /// Which rule.
        rule: RuleQuery,
        /// At all times; else at the end.
        always: bool,
    },
}

/// A rule in a node's tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleQuery {
    /// `nat`, `filter`, ….
    pub table: String,
    /// The chain that holds it.
    pub chain: String,
    /// Its target; without it the chain itself is asked for.
    pub jump: Option<String>,
}

impl fmt::Display for RuleQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.chain)?;
        self.jump.iter().try_for_each(|jump| write!(f, " → {jump}"))
    }
}

/// What can run here; for what cannot, the reason a person acts on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(pub BTreeMap<String, Result<(), String>>);
