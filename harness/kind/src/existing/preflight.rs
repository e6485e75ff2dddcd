//! Whether an existing cluster is what a case is about. Nothing of it is changed to be so: what is another thing is said, with the
//! matrix that is about it.

use chainbreak_model::{
    case::{AgentSource, Case, Fault, Origin, ProxyMode, Step},
    names::{AgentName, NodeName},
};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};
use kube::{Api, Client};

use crate::{
    error::KindError,
    shared::{iptables_backend, logs::DaemonPod, nodes::Nodes},
    versions::Version,
};

/// As far as the API tells.
pub(super) async fn settings(
    client: &Client,
    case: &Case,
    version: Version,
) -> Result<(), KindError> {
    if let Some(node) = case.timeline.iter().find_map(cut_off) {
        return Err(KindError::Unable(format!(
            "the case takes down an interface of {node}, by which it would have to be brought up again: the backend kind can"
        )));
    }
    let cluster = &case.cluster;
    let proxy = set(client, AgentName::KubeProxy).await?;
    match (&cluster.kube_proxy, proxy) {
        (None, Some(_)) => return other("a cluster without kube-proxy, this one has it"),
        (Some(_), None) => {
            return other("kube-proxy, this cluster has no DaemonSet kube-system/kube-proxy");
        }
        (Some(spec), Some(_)) if spec.source != AgentSource::Cluster => {
            return other("another kube-proxy than the cluster's own: leave its source out");
        }
        (Some(spec), Some(_)) if !version.is(&spec.version) => {
            let (wanted, is) = (&spec.version, version.minor());
            return other(&format!(
                "Kubernetes {wanted}, this one is {version}: --matrix kube-proxy={is}"
            ));
        }
        (Some(spec), Some(_)) => mode(client, spec.mode).await?,
        (None, None) => {}
    }
    let calico = set(client, AgentName::Felix).await?;
    let image = calico.as_ref().and_then(image).unwrap_or_default();
    match (&cluster.calico, &calico) {
        (None, Some(_)) => other("a cluster without Calico, this one has it"),
        (Some(_), None) => other(
            "Calico, this cluster has no DaemonSet calico-node in kube-system or calico-system",
        ),
        (Some(spec), Some(_)) if spec.source != AgentSource::Cluster => {
            other("another Felix than the cluster's own: leave its source out")
        }
        (Some(spec), Some(_)) => match image.rsplit_once(':') {
            Some((_, tag)) if Version::parse(tag).is_some_and(|it| !it.is(&spec.version)) => {
                let wanted = &spec.version;
                other(&format!(
                    "Calico {wanted}, this cluster's is {tag}: --matrix calico={tag}"
                ))
            }
            _ => Ok(()),
        },
        (None, None) => Ok(()),
    }
}

/// As far as the nodes tell: what kube-proxy writes through, which has to be what the node's own iptables read, too.
pub(super) async fn iptables_backends(nodes: &Nodes, case: &Case) -> Result<(), KindError> {
    let proxy = case.cluster.kube_proxy.as_ref();
    if proxy.is_none_or(|it| it.mode != ProxyMode::Iptables) {
        return Ok(());
    }
    for node in &nodes.0 {
        let name = &node.registered;
        let found = iptables_backend::found(node).await?;
        if found != case.cluster.iptables {
            let (is, wanted) = (
                iptables_backend::word(found),
                iptables_backend::word(case.cluster.iptables),
            );
            return other(&format!(
                "iptables-{wanted}, kube-proxy on {name} writes through iptables-{is}: --matrix iptables={is}"
            ));
        }
        if iptables_backend::own(node).await? != found {
            let is = iptables_backend::word(found);
            return other(&format!(
                "nodes whose own iptables show kube-proxy's rules, those of {name} are not iptables-{is}"
            ));
        }
    }
    Ok(())
}

/// The node that a step may cut off.
fn cut_off(step: &Step) -> Option<&NodeName> {
    match step {
        Step::Fault {
            fault:
                Fault::LinkDown {
                    at: Origin::Node(node),
                    ..
                },
            ..
        } => Some(node),
        _ => None,
    }
}

fn other<T>(words: &str) -> Result<T, KindError> {
    Err(KindError::Unable(format!("the case is about {words}")))
}

async fn set(client: &Client, agent: AgentName) -> Result<Option<DaemonSet>, KindError> {
    let pod = DaemonPod::of(client, agent).await?;
    let sets = Api::<DaemonSet>::namespaced(client.clone(), pod.namespace);
    let found = sets.get_opt(pod.name).await;
    found.map_err(KindError::api(format!("look for {}", pod.name)))
}

fn image(set: &DaemonSet) -> Option<String> {
    let pods = set.spec.as_ref()?.template.spec.as_ref()?;
    pods.containers.first()?.image.clone()
}

/// kubeadm keeps kube-proxy's configuration in a `ConfigMap` of its name; elsewhere the mode is taken for what the case says.
async fn mode(client: &Client, wanted: ProxyMode) -> Result<(), KindError> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let doing = KindError::api("read kube-proxy's configuration");
    let map = maps.get_opt("kube-proxy").await.map_err(doing)?;
    let Some(config) = map.and_then(|map| map.data?.remove("config.conf")) else {
        return Ok(());
    };
    let config: serde_json::Value = serde_yaml::from_str(&config).unwrap_or_default();
    let is = match config["mode"].as_str() {
        None | Some("") => "iptables",
        Some(mode) => mode,
    };
    let wanted = wanted.as_str();
    if is == wanted {
        return Ok(());
    }
    other(&format!(
        "kube-proxy's mode {wanted}, this one is in mode {is}"
    ))
}
