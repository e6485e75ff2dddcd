//! The nodes of a cluster: scenarios call them n1, n2, …, and so does Kubernetes where the cluster is ours.

use std::{net::IpAddr, time::Duration};

use chainbreak_engine::cluster::Command;
use chainbreak_model::names::NodeName;
use futures::future::try_join_all;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node as NodeObject, Taint};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    error::KindError,
    shared::{
        program::{self, PROGRAM},
        shells::Shells,
    },
    tool::Tool,
    wait,
};

/// What kubeadm keeps pods off the first node with; scenarios want pods on every node.
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
/// What a node may take to be Ready. Calico's images may have to be pulled.
const READY: Duration = Duration::from_secs(300);

/// What a command on a node may take.
const SHORT: Duration = Duration::from_secs(30);

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// In the scenario.
    pub(crate) name: NodeName,
    /// In Kubernetes.
    pub(crate) registered: String,
    pub(crate) address: IpAddr,
    /// Program and arguments that give the command after them the node's namespaces and their own standard input.
    pub(crate) entry: Vec<String>,
    /// Where this program is on the node.
    pub(crate) program: String,
    /// Where commands go through shells that stand there.
    pub(crate) shells: Option<Shells>,
}

impl Node {
    /// One for tests, called n1, which is entered by that.
    #[cfg(test)]
    pub(crate) fn entered_by(entry: &[&str]) -> Self {
        Self {
            name: "n1".into(),
            registered: "n1".to_owned(),
            address: [127, 0, 0, 1].into(),
            entry: entry.iter().map(|&word| word.to_owned()).collect(),
            program: String::new(),
            shells: None,
        }
    }

    /// What to run here to run that there.
    pub(crate) fn argv<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Vec<String> {
        let argv = argv.into_iter().map(Into::into);
        self.entry.iter().cloned().chain(argv).collect()
    }

    /// A command in the words that run it there.
    pub(crate) fn words(&self, command: &Command) -> Vec<String> {
        program::words(&self.program, command)
    }

    /// Runs a command there to its end, which comes soon.
    pub(crate) async fn run(&self, argv: &[impl AsRef<str> + Sync]) -> Result<String, KindError> {
        self.run_within(SHORT, argv).await
    }

    /// The same with another deadline.
    pub(crate) async fn run_within(
        &self,
        within: Duration,
        argv: &[impl AsRef<str> + Sync],
    ) -> Result<String, KindError> {
        self.read_within(within, argv, "").await
    }

    /// The same with lines to read.
    pub(crate) async fn feed(
        &self,
        argv: &[impl AsRef<str> + Sync],
        lines: &str,
    ) -> Result<String, KindError> {
        self.read_within(SHORT, argv, lines).await
    }

    async fn read_within(
        &self,
        within: Duration,
        argv: &[impl AsRef<str> + Sync],
        lines: &str,
    ) -> Result<String, KindError> {
        if let Some(shells) = &self.shells {
            return shells.run(&self.entry, within, argv, lines).await;
        }
        let argv = self.argv(argv.iter().map(AsRef::as_ref));
        Tool::new(within, argv).reading(lines).output().await
    }
}

/// All nodes, n1 first.
#[derive(Debug, Clone)]
pub(crate) struct Nodes(pub(crate) Vec<Node>);

impl Nodes {
    pub(crate) fn named(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|node| node.name.as_str() == name)
    }

    /// The same; that there is none is an error.
    pub(crate) fn get(&self, name: &str) -> Result<&Node, KindError> {
        let lost = || KindError::Unable(format!("there is no node {name}"));
        self.named(name).ok_or_else(lost)
    }

    /// The one that Kubernetes calls so.
    pub(crate) fn registered_as(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|node| node.registered == name)
    }

    /// Runs a command on every node, on all at a time.
    pub(crate) async fn run(&self, argv: &[impl AsRef<str> + Sync]) -> Result<(), KindError> {
        let run = self.0.iter().map(|node| node.run(argv));
        try_join_all(run).await.map(drop)
    }

    /// Waits until the API knows n1, n2, … with an address; a node is entered by its entry of `entries`, n1's first.
    pub(crate) async fn registered(
        client: &Client,
        entries: &[Vec<String>],
    ) -> Result<Self, KindError> {
        let look = || async {
            let listed = list(client).await?;
            let node = |(entry, number): (&Vec<String>, usize)| {
                let name = format!("n{number}");
                let found = listed.iter().find(|node| node.name_any() == name);
                let address = found.and_then(address);
                Ok(Node {
                    entry: entry.clone(),
                    program: PROGRAM.to_owned(),
                    address: address.ok_or_else(|| format!("{name} is not registered"))?,
                    name: name.as_str().into(),
                    registered: name,
                    shells: Some(Shells::default()),
                })
            };
            let nodes = entries.iter().zip(1..).map(node);
            nodes.collect::<Result<Vec<_>, String>>()
        };
        let what = "every node is registered";
        wait::until(what, READY, look, wait::nothing)
            .await
            .map(Self)
    }

    /// The networks that Kubernetes has given to the pods of each, n1's first.
    pub(crate) async fn pods(&self, client: &Client) -> Result<Vec<Vec<IpNet>>, KindError> {
        let listed = list(client).await.map_err(KindError::Unable)?;
        let of = |node: &Node| {
            let mut all = listed.iter();
            let found = all.find(|it| it.name_any() == node.registered);
            let spec = found.and_then(|it| it.spec.as_ref());
            let networks = spec.and_then(|spec| spec.pod_cidrs.clone());
            let networks = networks.into_iter().flatten();
            networks.filter_map(|it| it.parse().ok()).collect()
        };
        Ok(self.0.iter().map(of).collect())
    }

    /// Waits until all of them are Ready; what is still missing is told with the end of the kubelet's log.
    pub(crate) async fn ready(&self, client: &Client, within: Duration) -> Result<(), KindError> {
        let look = || async {
            let listed = list(client).await?;
            let not_ready = listed
                .iter()
                .find_map(|node| Some((node.name_any(), not_ready(node)?)));
            not_ready.map_or(Ok(()), |(name, why)| {
                Err(format!("{name} is not ready: {why}"))
            })
        };
        let evidence = || async { self.kubelets().await };
        wait::until("every node is ready", within, look, evidence).await
    }

    async fn kubelets(&self) -> String {
        let mut said = Vec::new();
        for node in &self.0 {
            let journal = [
                "journalctl",
                "--unit",
                "kubelet",
                "--lines",
                "5",
                "--output",
                "cat",
            ];
            let log = node.run(&journal).await;
            let log = log.unwrap_or_else(|error| error.to_string());
            let log = log.trim_end();
            let name = &node.name;
            said.push(format!("the kubelet of {name} said last:\n{log}"));
        }
        said.join("\n")
    }

    /// Lets pods onto the first node.
    pub(crate) async fn untaint(&self, client: &Client) -> Result<(), KindError> {
        let nodes = Api::<NodeObject>::all(client.clone());
        for node in list(client).await.map_err(KindError::Unable)? {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
            let taints: Vec<Taint> = taints.unwrap_or_default();
            let keeps_off = |taint: &Taint| CONTROL_PLANE.contains(&taint.key.as_str());
            if !taints.iter().any(keeps_off) {
                continue;
            }
            let rest: Vec<&Taint> = taints.iter().filter(|taint| !keeps_off(taint)).collect();
            // With the version that was read: somebody else may be changing the list.
            let patch = Patch::Merge(json!({
                "metadata": { "resourceVersion": node.resource_version() },
                "spec": { "taints": rest },
            }));
            let name = node.name_any();
            let patched = nodes.patch(&name, &PatchParams::default(), &patch).await;
            patched.map_err(KindError::api(format!("let pods onto {name}")))?;
        }
        Ok(())
    }
}

pub(crate) async fn list(client: &Client) -> Result<Vec<NodeObject>, String> {
    let listed = Api::<NodeObject>::all(client.clone())
        .list(&ListParams::default())
        .await;
    listed
        .map(|list| list.items)
        .map_err(|error| error.to_string())
}

pub(crate) fn address(node: &NodeObject) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.iter().flatten();
    let mut internal = addresses.filter(|it| it.type_ == "InternalIP");
    internal.next()?.address.parse().ok()
}

/// Why a node is not Ready.
pub(crate) fn not_ready(node: &NodeObject) -> Option<String> {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|it| it.type_ == "Ready");
    match ready.next() {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(ready.message.clone().unwrap_or_default()),
        None => Some("its kubelet has said nothing yet".to_owned()),
    }
}
