//! What a cluster is made of, as far as it is settled when it is made: cases with the same [`Spec`] can use
//! the same cluster, one after the other.

use std::{path::PathBuf, time::Duration};

use chainbreak_model::case::{
    AgentSource, ApiWay, Case, ClusterSpec, IpFamily, IptablesVariant, PodOwner,
};
use serde::Serialize;

use crate::{
    error::KindError,
    hash::short,
    made::calico::{Way, operator_can},
    name::ClusterName,
    versions::{Version, Versions},
};

/// What a person chose beside the case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Clusters are kept for cases, and runs, that need the same one.
    pub(crate) reuse: bool,
    /// Images that nodes lack and Docker has, or can pull, are loaded into the nodes before pods want them.
    pub(crate) preload: bool,
    /// The node image, instead of the pinned one.
    pub(crate) image: Option<String>,
    /// What answers on hosts outside of the cluster, instead of the pinned nginx.
    pub(crate) nginx_image: Option<String>,
    /// How Calico is installed.
    pub(crate) calico_install: Way,
    /// Calico's manifest, or its operator's, instead of the pinned one.
    pub(crate) calico_manifest: Option<PathBuf>,
    /// Images in place of those that the manifest names, as [`crate::made::calico::own_images`] reads them.
    pub(crate) calico_images: Vec<String>,
}

/// The node image of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Image {
    pub(crate) name: String,
    /// Its Kubernetes.
    pub(crate) version: Version,
}

impl Image {
    /// What kind can make a node of.
    pub(crate) fn of(name: String, version: Version) -> Self {
        Self { name, version }
    }

    /// Nobody has looked at it: it is of that version, and tells nothing else.
    pub(crate) fn unseen(version: &str) -> Self {
        Self::of(version.to_owned(), Version::of(0, 0, 0))
    }
}

/// Who gives pods their interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Network {
    /// kind's own CNI.
    Kindnet,
    /// Calico.
    Calico,
}

/// kube-proxy as kubeadm configures it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Proxy {
    /// `iptables`, `nftables` or `ipvs`.
    pub(crate) mode: &'static str,
    pub(crate) min_sync_period: Duration,
    /// Further settings, as `KubeProxyConfiguration` has them.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub(crate) config: serde_json::Map<String, serde_json::Value>,
    pub(crate) sync_period: Duration,
}

/// Who plays Felix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Felix {
    /// Our model, a process on each node.
    Model,
    /// Calico of that version, as scenarios write it.
    Calico(String),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Spec {
    pub(crate) image: Image,
    pub(crate) nodes: u16,
    pub(crate) ip_families: Vec<IpFamily>,
    /// Which iptables kube-proxy is to write through.
    pub(crate) iptables: IptablesVariant,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) network: Network,
    pub(crate) felix: Option<Felix>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calico_install: Option<Way>,
    /// How Calico asks the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    calico_api: Option<ApiWay>,
    /// What tells Calico's manifest, its images and its pools from others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calico_made_of: Option<String>,
}

impl Spec {
    /// What the case's cluster is made of, of that node image. An error is what no real cluster can be: the plan
    /// knows most of it before.
    pub(crate) fn of(case: &Case, image: Image, options: &Options) -> Result<Self, KindError> {
        let cluster = &case.cluster;
        let felix = felix(cluster)?;
        let network = network(felix.as_ref());
        let real = matches!(felix, Some(Felix::Calico(_)));
        let calico_install = real.then_some(options.calico_install);
        if calico_install == Some(Way::Operator) {
            operator_can(case)?;
        }
        Ok(Self {
            nodes: cluster.nodes,
            ip_families: cluster.ip_families.clone(),
            iptables: cluster.iptables,
            proxy: proxy(cluster)?,
            network,
            calico_install,
            calico_api: real.then(|| way(cluster)),
            calico_made_of: None,
            felix,
            image,
        })
    }

    /// Whether all that is written on nodes is known: a real Felix' rules are not.
    pub(crate) fn is_foreseen(&self) -> bool {
        !matches!(self.felix, Some(Felix::Calico(_)))
    }

    /// Whether Calico asks the API where it listens, and not by the Service `kubernetes`.
    pub(crate) fn asks_directly(&self) -> bool {
        self.calico_api == Some(ApiWay::Direct)
    }

    /// The name of every cluster that is made of this.
    pub(crate) fn name(&self) -> ClusterName {
        let text = serde_json::to_string(self).expect("a spec has string keys only");
        ClusterName::of_hash(&short(&text))
    }
}

/// The pinned image for the case; a chosen one is looked at by [`crate::made::images`].
pub(crate) fn pinned(cluster: &ClusterSpec, pins: &Versions) -> Result<Image, KindError> {
    let found = match cluster.kubernetes_version() {
        Some(wanted) => pins.node_image(wanted),
        None => pins.kubernetes.first(),
    };
    let found = found.ok_or_else(|| {
        let wanted = cluster.kubernetes_version().unwrap_or("any");
        KindError::Unable(format!(
            "no node image of Kubernetes {wanted} is pinned: `chainbreak versions` lists all"
        ))
    })?;
    Ok(Image::of(found.name(), found.version))
}

fn proxy(cluster: &ClusterSpec) -> Result<Option<Proxy>, KindError> {
    let Some(spec) = &cluster.kube_proxy else {
        return Ok(None);
    };
    if spec.source != AgentSource::Cluster {
        let why = "kube-proxy of a real cluster is the cluster's own: leave its source out";
        return Err(KindError::Unable(why.to_owned()));
    }
    Ok(Some(Proxy {
        mode: spec.mode.as_str(),
        min_sync_period: spec.min_sync_period,
        sync_period: spec.sync_period,
        config: spec.config.clone(),
    }))
}

fn felix(cluster: &ClusterSpec) -> Result<Option<Felix>, KindError> {
    let Some(spec) = &cluster.calico else {
        return Ok(None);
    };
    match (&spec.source, spec.pods) {
        (AgentSource::Cluster, _) => Ok(Some(Felix::Calico(spec.version.clone()))),
        (AgentSource::Model, PodOwner::ThirdParty) => Ok(Some(Felix::Model)),
        (AgentSource::Model, PodOwner::Calico) => Err(KindError::Unable(
            "Felix's model on a real cluster knows no pods' interfaces: calico: { pods: third-party }"
                .to_owned(),
        )),
        (AgentSource::Path(path), _) => Err(KindError::Unable(format!(
            "{} cannot play Felix on a real cluster: it is the cluster's own, or felix=model",
            path.display()
        ))),
        (AgentSource::Build | AgentSource::Image(_), _) => Err(KindError::Unable(
            "Felix of a real cluster is the cluster's own, or felix=model".to_owned(),
        )),
    }
}

/// Without kube-proxy nobody leads to the Service when Calico starts.
fn way(cluster: &ClusterSpec) -> ApiWay {
    match &cluster.calico {
        Some(calico) if cluster.kube_proxy.is_some() => calico.api,
        _ => ApiWay::Direct,
    }
}

/// Felix knows pods by the names of their interfaces, which are of Calico's CNI or of one that names them alike (as that of AWS does). kindnet
/// does not: its pods would be strangers to Felix, and answered by nobody.
fn network(felix: Option<&Felix>) -> Network {
    match felix {
        Some(Felix::Calico(_)) => Network::Calico,
        Some(Felix::Model) | None => Network::Kindnet,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use chainbreak_model::case::{CalicoSpec, KubeProxySpec, ProxyMode};

    use super::*;

    pub(crate) fn image() -> Image {
        Image {
            name: "kindest/node:v1.32.8".to_owned(),
            version: Version([1, 32, 8]),
        }
    }

    pub(crate) fn cluster() -> ClusterSpec {
        let mut cluster = ClusterSpec::new(2, IptablesVariant::Nft);
        cluster.kube_proxy = Some(KubeProxySpec {
            mode: ProxyMode::Iptables,
            iptables: IptablesVariant::Nft,
            version: "1.32".to_owned(),
            source: AgentSource::Cluster,
            min_sync_period: Duration::from_secs(1),
            sync_period: Duration::from_secs(30),
            full_sync_period: KubeProxySpec::hour(),
            config: serde_json::Map::new(),
        });
        cluster
    }

    pub(crate) fn with_calico(pods: PodOwner) -> ClusterSpec {
        ClusterSpec {
            calico: Some(CalicoSpec::new("v3.28.1", AgentSource::Cluster, pods)),
            ..cluster()
        }
    }

    pub(crate) fn spec(cluster: &ClusterSpec) -> Result<Spec, KindError> {
        let felix = felix(cluster)?;
        Ok(Spec {
            nodes: cluster.nodes,
            ip_families: cluster.ip_families.clone(),
            iptables: cluster.iptables,
            proxy: proxy(cluster)?,
            network: network(felix.as_ref()),
            image: image(),
            calico_install: None,
            calico_api: matches!(felix, Some(Felix::Calico(_))).then(|| way(cluster)),
            calico_made_of: None,
            felix,
        })
    }

    #[test]
    fn clusters_share_a_name_exactly_when_they_are_made_of_the_same() {
        let name = |change: fn(&mut ClusterSpec)| {
            let mut cluster = cluster();
            change(&mut cluster);
            spec(&cluster).unwrap().name()
        };
        let as_it_is = name(|_| ());
        // FelixConfiguration is patched live.
        let felix = |it: &mut ClusterSpec| {
            Arc::make_mut(&mut it.felix).insert("bpfEnabled".to_owned(), true.into());
        };
        assert_eq!(name(felix), as_it_is);
        let others: [fn(&mut ClusterSpec); 4] = [
            |it| it.nodes = 3,
            |it| it.ip_families = vec![IpFamily::V6],
            |it| it.kube_proxy = None,
            |it| it.iptables = IptablesVariant::Legacy,
        ];
        for (index, other) in others.into_iter().enumerate() {
            assert_ne!(name(other), as_it_is, "change {index}");
        }
    }

    #[test]
    fn what_no_real_cluster_can_be_is_said() {
        let mut cluster = cluster();
        let calico = |source, pods| Some(CalicoSpec::new("v3.28.1", source, pods));
        cluster.calico = calico(AgentSource::Model, PodOwner::Calico);
        let said = spec(&cluster).unwrap_err().to_string();
        assert!(said.contains("knows no pods' interfaces"), "{said}");
        cluster.calico = calico(AgentSource::Path("/felix".into()), PodOwner::ThirdParty);
        let said = spec(&cluster).unwrap_err().to_string();
        assert!(said.contains("/felix cannot play Felix"), "{said}");
        cluster.calico = calico(AgentSource::Model, PodOwner::ThirdParty);
        let made = spec(&cluster).unwrap();
        assert_eq!(made.network, Network::Kindnet);
        assert_eq!(made.felix, Some(Felix::Model));
        for pods in [PodOwner::Calico, PodOwner::ThirdParty] {
            cluster.calico = calico(AgentSource::Cluster, pods);
            assert_eq!(spec(&cluster).unwrap().network, Network::Calico);
        }
    }
}
