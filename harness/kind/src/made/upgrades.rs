//! Kubernetes of a cluster's nodes brought to a later version as its documentation has it (Upgrading kubeadm clusters): the control plane first,
//! each node upgraded by kubeadm, drained, given the new kubelet, and open for pods again; no minor version is left out.
//!
//! What a version takes is in the node image of that version: kubeadm, kubelet and kubectl, and the images of the control plane where Docker
//! does not have them by themselves. Pods that nothing would make again stay on their node: `kubectl drain` refuses to go on there, and the requests of
//! a scenario start in such pods.

mod drain;
mod way;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use chainbreak_engine::cluster::{NodeUpgrades, Say};
use chainbreak_model::{
    case::IpFamily,
    names::{AgentName, NodeName},
};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, Client};
use tokio::sync::Mutex;

use crate::{
    error::KindError,
    made::{config::OURS, docker, images, owned_cluster::OwnedCluster, spec::Image},
    shared::{
        first_sync,
        logs::DaemonPod,
        nodes::{self, Node, Nodes},
        restart, signal,
    },
    tool::Tool,
    versions::{Version, Versions},
    wait,
};

/// What copying programs or an image may take.
const COPY: Duration = Duration::from_secs(300);
/// What kubeadm may take on one node.
const KUBEADM: Duration = Duration::from_secs(600);
/// What a node may take to be Ready in its new version.
const READY: Duration = Duration::from_secs(180);

/// The programs of a version, as a tar archive of a node image; into a node's folder beside those that run.
const PROGRAMS: &str = "image=$1 label=$2; shift 2; docker run --rm --log-driver none --label \"$label\" --entrypoint tar \"$image\" \
    -C /usr/bin -c kubeadm kubelet kubectl | \"$@\"";
const UNPACK: &str = "mkdir -p /usr/local/lib/chainbreak && tar -C /usr/local/lib/chainbreak -x";
const RESTART: &str = "systemctl daemon-reload && systemctl restart kubelet";
/// What a running program is replaced by.
const REPLACE: &str = "for it in \"$@\"; do mv /usr/local/lib/chainbreak/$it /usr/bin/$it; done";
/// An image of a node image, by its containerd, which is started for that; into another containerd.
const EXPORT: &str = "image=$1 of=$2 label=$3; shift 3; docker run --rm --log-driver none --label \"$label\" --privileged \
    --entrypoint sh \"$of\" -c 'containerd >/dev/null 2>&1 & \
    until ctr version >/dev/null 2>&1; do sleep 0.1; done; ctr -n k8s.io images export - \"$0\"' \"$image\" | \"$@\"";

/// See the module.
pub(super) struct Upgrades {
    pub(super) client: Client,
    pub(super) nodes: Nodes,
    pub(super) owned: Arc<OwnedCluster>,
    /// Whether the case stops kube-proxy, which is to run where our label is for that.
    pub(super) stops_kube_proxy: bool,
    /// Of which pods have addresses.
    pub(super) ip_families: Vec<IpFamily>,
    /// The node image that a person chose.
    pub(super) chosen: Option<String>,
    /// The version whose images all nodes have.
    pub(super) brought: Mutex<Option<Version>>,
}

/// The node image of a version, or of the newest patch of a minor one: of the repository that was chosen, as far as Docker has it, or the pinned one.
pub(super) async fn image(chosen: Option<&str>, wanted: &str) -> Result<Image, KindError> {
    let Some(chosen) = chosen else {
        let pins = Versions::pinned()?;
        let pinned = pins.node_image(wanted);
        let image = pinned.map(|pinned| Image::of(pinned.name(), pinned.version));
        return image.ok_or_else(|| {
            KindError::Unable(format!("no node image of Kubernetes {wanted} is pinned"))
        });
    };
    let all = docker::tags(restart::repository(chosen)).await?;
    let fit = all.into_iter().filter_map(|name| {
        let version = images::tagged(&name).filter(|it| it.is(wanted))?;
        Some(Image::of(name, version))
    });
    fit.max_by_key(|image| image.version).ok_or_else(|| {
        let repository = restart::repository(chosen);
        KindError::Unable(format!("Docker has no {repository} of Kubernetes {wanted}"))
    })
}

impl Upgrades {
    /// The nodes of the API, as soon as it answers: a kubelet that was just replaced may be starting the control plane anew.
    async fn listed(&self) -> Result<Vec<NodeObject>, KindError> {
        let look = || nodes::list(&self.client);
        wait::until("the API answers", READY, look, wait::nothing).await
    }

    /// Has every node what kubeadm takes to upgrade the first of them: then kube-proxy's pods are made anew on all.
    async fn bring(&self, image: &Image, kubeadm: &Node) -> Result<(), KindError> {
        let mut brought = self.brought.lock().await;
        if *brought == Some(image.version) {
            return Ok(());
        }
        let version = image.version.to_string();
        let list = [
            "kubeadm",
            "config",
            "images",
            "list",
            "--kubernetes-version",
        ];
        let listed = kubeadm.run(&[&list[..], &[&version]].concat()).await?;
        for wanted in listed.lines().map(str::trim).filter(|it| !it.is_empty()) {
            for node in images::lacking(wanted, &self.nodes).await? {
                self.bring_one(wanted, image, node).await?;
            }
        }
        *brought = Some(image.version);
        Ok(())
    }

    async fn upgraded(&self, node: &Node, to: &str, say: Say<'_>) -> Result<bool, KindError> {
        let image = image(self.chosen.as_deref(), to).await?;
        let is = version_of(node, &self.listed().await?)?;
        if is >= image.version {
            say(format!("{} is {is} already", node.name));
            return Ok(false);
        }
        docker::have(&image.name).await?;
        // It is no longer what the next case that asks for it would get.
        self.owned.keep_no_longer();
        self.copy_programs(&image, node).await?;
        node.run(&["sh", "-c", REPLACE, "sh", "kubeadm"]).await?;
        self.bring(&image, node).await?;
        let first = self.nodes.0.first();
        let is_first = first.is_some_and(|first| first.name == node.name);
        let argv = node.argv(kubeadm(image.version, is_first));
        Tool::new(KUBEADM, argv).output().await?;
        say(format!("kubeadm has upgraded {}", node.name));
        if is_first {
            self.kube_proxy_is_new().await?;
            say("kube-proxy's pods are of the new version on every node".to_owned());
        }
        let evicted = drain::drain(&self.client, &node.registered).await?;
        say(format!("{} is drained: {evicted} pods evicted", node.name));
        let rest = ["sh", "-c", REPLACE, "sh", "kubelet", "kubectl"];
        node.run(&rest).await?;
        node.run(&["sh", "-c", RESTART]).await?;
        self.is_ready(node, image.version).await?;
        drain::allow_pods(&self.client, &node.registered, true).await?;
        Ok(true)
    }

    /// kubeadm has given the DaemonSet another template, and with it taken away where a case made its pods run.
    async fn kube_proxy_is_new(&self) -> Result<(), KindError> {
        let agent = AgentName::KubeProxy;
        let pod = DaemonPod::of(&self.client, agent).await?;
        if self.stops_kube_proxy {
            signal::run_where_labelled(&self.client, agent, pod).await?;
        }
        signal::rolled_out(&self.client, pod, signal::ROLLOUT).await?;
        for node in &self.nodes.0 {
            // The case may have stopped it there.
            if pod.on(&self.client, &node.registered).await?.is_some() {
                first_sync::seen(node, &self.ip_families).await?;
            }
        }
        Ok(())
    }

    /// What the containers have by which `clean` knows them.
    fn label(&self) -> String {
        format!("{OURS}={}", self.owned.name)
    }

    async fn copy_programs(&self, image: &Image, node: &Node) -> Result<(), KindError> {
        let label = self.label();
        let script = ["sh", "-c", PROGRAMS, "sh", &image.name, &label].map(str::to_owned);
        let argv = script.into_iter().chain(node.argv(["sh", "-c", UNPACK]));
        Tool::new(COPY, argv).output().await.map(drop)
    }

    /// From Docker, from the node image, or from its registry.
    async fn bring_one(&self, wanted: &str, image: &Image, node: &Node) -> Result<(), KindError> {
        if docker::id(wanted).await?.is_some() {
            return images::give(wanted, [node]).await;
        }
        let exported = images::import(node, EXPORT, &[wanted, &image.name, &self.label()]).await;
        let one = Nodes(vec![node.clone()]);
        if exported.is_ok() && images::lacking(wanted, &one).await?.is_empty() {
            return Ok(());
        }
        docker::have(wanted).await?;
        images::load(wanted, &one).await
    }

    async fn is_ready(&self, node: &Node, version: Version) -> Result<(), KindError> {
        let all = Api::<NodeObject>::all(self.client.clone());
        let look = || async {
            let found = all.get(&node.registered).await;
            let found = found.map_err(|error| error.to_string())?;
            match (kubelet(&found), nodes::not_ready(&found)) {
                (Some(is), None) if is == version => Ok(()),
                (_, Some(why)) => Err(why),
                (is, None) => Err(format!("its kubelet is {}", is.unwrap_or(Version([0; 3])))),
            }
        };
        let what = format!("{} is ready in {version}", node.name);
        wait::until(&what, READY, look, wait::nothing).await
    }
}

/// A node's version, as its kubelet tells it.
fn version_of(node: &Node, listed: &[NodeObject]) -> Result<Version, KindError> {
    let mut all = listed.iter();
    let found = all.find(|it| it.metadata.name.as_deref() == Some(&node.registered));
    let unknown = || KindError::Unable(format!("the version of {} is not known", node.name));
    found.and_then(kubelet).ok_or_else(unknown)
}

fn kubelet(node: &NodeObject) -> Option<Version> {
    let info = node.status.as_ref()?.node_info.as_ref()?;
    Version::parse(&info.kubelet_version)
}

/// kind's nodes do not pass what kubeadm wants of a machine.
fn kubeadm(version: Version, is_first: bool) -> Vec<String> {
    let checks = "--ignore-preflight-errors=all";
    let version = version.to_string();
    let words: &[&str] = if is_first {
        &[
            "kubeadm", "upgrade", "apply", &version, "--yes", "--force", checks,
        ]
    } else {
        &["kubeadm", "upgrade", "node", checks]
    };
    words.iter().map(|&word| word.to_owned()).collect()
}

#[async_trait]
impl NodeUpgrades for Upgrades {
    async fn way(&self, nodes: &[NodeName], to: &str) -> Result<Vec<String>, String> {
        let known = async {
            let target = image(self.chosen.as_deref(), to).await?.version;
            let listed = self.listed().await?;
            let all = self.nodes.0.iter();
            let all = all.map(|node| Ok((&node.name, version_of(node, &listed)?)));
            Ok::<_, KindError>((target, all.collect::<Result<Vec<_>, KindError>>()?))
        };
        let (target, all) = known.await.map_err(|error| error.to_string())?;
        way::of(&all, nodes, target)
    }

    async fn upgrade(&self, node: &NodeName, to: &str, say: Say<'_>) -> Result<bool, String> {
        let upgraded = async { self.upgraded(self.nodes.get(node.as_str())?, to, say).await };
        upgraded.await.map_err(|error| error.to_string())
    }
}
