//! The cluster that a case raises.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{
    IpFamily,
    network::{CniSpec, HostSpec, PoolSpec},
};
use crate::{names::NodeName, version};

/// The cluster that a backend raises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClusterSpec {
    /// How many nodes: `n1` … `nN`.
    pub nodes: u16,
    /// Which IP families it has, its default first; never empty.
    #[serde(default = "IpFamily::default_list")]
    pub ip_families: Vec<IpFamily>,
    /// Kubernetes' version where it was asked for; else it is kube-proxy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Which iptables the nodes have; also kube-proxy's and Felix's.
    pub iptables: IptablesVariant,
    /// kube-proxy, unless `none`.
    pub kube_proxy: Option<KubeProxySpec>,
    /// Calico, unless `none`.
    pub calico: Option<CalicoSpec>,
    /// The `spec` of FelixConfiguration `default`, as written, applied through the API before agents start.
    pub felix: Arc<serde_json::Map<String, serde_json::Value>>,
    /// Off-cluster hosts on the underlay, by name.
    pub hosts: Arc<IndexMap<String, HostSpec>>,
    /// Kernel settings of every node, by their names with dots, set before agents start.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Kernel settings of the machine that the cluster is on, which all its namespaces share, while the case runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_sysctls: BTreeMap<String, String>,
    /// What a third-party CNI does beside giving pods their interfaces.
    #[serde(default)]
    pub cni: Option<CniSpec>,
    /// The `IPPool`s of the manifests, the first one that of pods that choose none. Empty where the backend's own is
    /// all there is.
    #[serde(default)]
    pub pools: Arc<Vec<PoolSpec>>,
    /// Programs of the other versions of kube-proxy that the timeline goes to, where real ones play it. Absolute.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub releases: BTreeMap<String, PathBuf>,
}

impl ClusterSpec {
    /// Whether what Felix pins ends with its pod.
    pub fn has_own_bpffs(&self) -> bool {
        let calico = self.calico.as_ref();
        calico.is_some_and(|calico| calico.bpffs == Bpffs::Own)
    }

    /// So many bare nodes.
    pub fn new(nodes: u16, iptables: IptablesVariant) -> Self {
        Self {
            nodes,
            ip_families: IpFamily::default_list(),
            kubernetes: None,
            iptables,
            kube_proxy: None,
            calico: None,
            felix: Arc::default(),
            hosts: Arc::default(),
            sysctls: BTreeMap::new(),
            host_sysctls: BTreeMap::new(),
            cni: None,
            pools: Arc::default(),
            releases: BTreeMap::new(),
        }
    }

    /// `n1` … `nN`.
    pub fn node_names(&self) -> impl Iterator<Item = NodeName> + use<> {
        (1..=self.nodes).map(|number| NodeName::from(format!("n{number}")))
    }

    /// kube-proxy's version, or without it the one that was asked for; `None` where any will do.
    pub fn kubernetes_version(&self) -> Option<&str> {
        let kube_proxy = self.kube_proxy.as_ref().map(|spec| spec.version.as_str());
        kube_proxy.or(self.kubernetes.as_deref())
    }

    /// The family of what names none: the first.
    pub fn default_family(&self) -> IpFamily {
        self.ip_families.first().copied().unwrap_or_default()
    }

    /// The paths of the machine that real agents are at, each once.
    pub fn agent_paths(&self) -> Vec<PathBuf> {
        let sources = self.agents().filter_map(|agent| self.source(agent));
        let paths: BTreeSet<PathBuf> = sources
            .filter_map(|source| match source {
                AgentSource::Path(path) => Some(path.clone()),
                _ => None,
            })
            .chain(self.releases.values().cloned())
            .collect();
        paths.into_iter().collect()
    }
}

/// Which iptables backend the node's agents use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IptablesVariant {
    /// `iptables-legacy`.
    Legacy,
    /// `iptables-nft`.
    Nft,
}

/// Which program stands for an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentSource {
    /// Our model of its version.
    #[default]
    Model,
    /// The real one that the backend's clusters bring along in that version.
    Cluster,
    /// The real one: a binary, or the unpacked root file system of an image that has it. Absolute.
    Path(PathBuf),
    /// The real one, built of upstream's modules in the version that is written. Whoever runs the case gives a path in its place.
    Build,
    /// The real one, in an image: the one by that name, or that of the version that is written. Whoever runs the case gives a path
    /// in its place.
    Image(Option<String>),
}

impl AgentSource {
    /// Where it is, where that is known.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Model | Self::Cluster | Self::Build | Self::Image(_) => None,
        }
    }
}

/// What kube-proxy programs services with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyMode {
    /// iptables.
    #[default]
    Iptables,
    /// nft, in a table of its own.
    Nftables,
    /// IPVS, with some rules of iptables beside it (deprecated since Kubernetes 1.35).
    Ipvs,
}

impl ProxyMode {
    /// As scenarios and kube-proxy write them.
    pub const ALL: [(&'static str, Self); 3] = [
        ("iptables", Self::Iptables),
        ("nftables", Self::Nftables),
        ("ipvs", Self::Ipvs),
    ];

    /// `iptables`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
            Self::Ipvs => "ipvs",
        }
    }
}

/// kube-proxy's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KubeProxySpec {
    /// `--proxy-mode`.
    #[serde(default)]
    pub mode: ProxyMode,
    /// Which iptables the node has.
    pub iptables: IptablesVariant,
    /// `1.32` or `1.32.4`; of a real one, what it says itself.
    pub version: String,
    /// Who plays it.
    #[serde(default)]
    pub source: AgentSource,
    /// `--iptables-min-sync-period`, in nftables mode too.
    pub min_sync_period: Duration,
    /// `--iptables-sync-period`, in nftables mode too.
    pub sync_period: Duration,
    /// The age of the last full sync at which 1.33 and later make another: an hour, for which the real one
    /// has no flag.
    #[serde(default = "KubeProxySpec::hour")]
    pub full_sync_period: Duration,
    /// Further settings, as `KubeProxyConfiguration` has them.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub config: serde_json::Map<String, serde_json::Value>,
}

impl KubeProxySpec {
    /// What [`Self::full_sync_period`] is unless said.
    pub fn hour() -> Duration {
        Duration::from_secs(3600)
    }

    /// The same in another version.
    #[must_use]
    pub fn at(&self, version: &str) -> Self {
        Self {
            version: version.to_owned(),
            ..self.clone()
        }
    }

    /// Why nobody can play this mode in this version; `None` when somebody can, or when the version is the cluster's own.
    pub(crate) fn unknown_mode(&self) -> Option<String> {
        let known = self.mode != ProxyMode::Nftables
            || self.source == AgentSource::Cluster
            || version::has_nftables(&self.version);
        let version = &self.version;
        (!known).then(|| {
            format!("kube-proxy {version} has no nftables mode here: it is known from 1.31 on")
        })
    }
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
    /// How Felix reaches the API.
    #[serde(default, skip_serializing_if = "ApiWay::is_direct")]
    pub api: ApiWay,
    /// Whether its eBPF programs work, where the scenario says so. Unsaid, a real Felix's do and its model's do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Programs>,
    /// Where its programs and maps are pinned.
    #[serde(default, skip_serializing_if = "Bpffs::is_hosts")]
    pub bpffs: Bpffs,
    /// Felix's environment, over the manifest's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl CalicoSpec {
    /// Without anything said beside that.
    pub fn new(version: &str, source: AgentSource, pods: PodOwner) -> Self {
        Self {
            version: version.to_owned(),
            source,
            pods,
            api: ApiWay::default(),
            programs: None,
            bpffs: Bpffs::default(),
            env: BTreeMap::new(),
        }
    }
}

/// Whether Felix's eBPF programs work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Programs {
    /// They are loaded and translate services. The model's are a table of nftables.
    Work,
    /// They cannot be loaded.
    Fail,
}

/// Whose `/sys/fs/bpf` is in Felix's pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bpffs {
    /// The host's: what is pinned outlives the pod.
    #[default]
    Host,
    /// The pod's, which ends with it.
    Own,
}

impl Bpffs {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_hosts(&self) -> bool {
        *self == Self::Host
    }
}

/// How an agent reaches the API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiWay {
    /// By the cluster IP of the Service `kubernetes`, which somebody has to translate on the node.
    Service,
    /// By the address where it listens.
    #[default]
    Direct,
}

impl ApiWay {
    /// As scenarios write them.
    pub const ALL: [(&'static str, Self); 2] =
        [("service", Self::Service), ("direct", Self::Direct)];

    /// As scenarios write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Direct => "direct",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_direct(&self) -> bool {
        *self == Self::Direct
    }
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
