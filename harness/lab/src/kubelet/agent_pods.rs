//! Agents as pods. They run on their nodes without any, as nothing of a case depends on it; who looks at a kept world with kubectl looks for
//! them where clusters have them. So a kept world gets their DaemonSets, whose pods stand for the agents that run: their logs are the
//! agents', a command in one runs on its node, and an agent lives as long as its pod.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use chainbreak_apiserver::ContainerId;
use chainbreak_engine::{cluster::Signal, supervisor::Supervisor};
use chainbreak_model::{
    case::ClusterSpec,
    names::{AgentName, NodeName},
};
use futures::StreamExt;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{Api, Client, ResourceExt, api::PostParams};
use serde_json::json;
use tokio::sync::watch;

use super::{
    Kubelet,
    pod::{Ending, finalise, patch},
    status::{ContainerStatus, State, render},
};
use crate::world::Node;

/// Says which agent a pod stands for.
const AGENT: &str = "chainbreak.dev/agent";
const NAMESPACE: &str = "kube-system";

/// Who stops and starts the agents; nobody as long as there are no pods of them.
pub(crate) type Keeper = Arc<OnceLock<Supervisor>>;

/// The agent that a pod stands for.
pub(super) fn agent_of(pod: &Pod) -> Option<AgentName> {
    let name = pod.annotations().get(AGENT)?;
    AgentName::ALL
        .into_iter()
        .find(|agent| agent.as_str() == name)
}

/// Makes the DaemonSets of a cluster's agents.
pub(crate) async fn show(
    client: &Client,
    cluster: &ClusterSpec,
    keeper: &Keeper,
    supervisor: &Supervisor,
) -> kube::Result<()> {
    keeper.get_or_init(|| supervisor.clone());
    let sets = Api::namespaced(client.clone(), NAMESPACE);
    for agent in cluster.agents() {
        let set = daemon_set(agent, cluster.version(agent).unwrap_or_default());
        sets.create(&PostParams::default(), &set).await?;
    }
    Ok(())
}

fn daemon_set(agent: AgentName, version: &str) -> DaemonSet {
    let name = agent.kind().daemon_set.name;
    let labels = json!({ "k8s-app": name });
    let image = format!("{agent}:v{}", version.trim_start_matches('v'));
    let set = json!({
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels, "annotations": { AGENT: agent } },
                "spec": {
                    "hostNetwork": true,
                    "priorityClassName": "system-node-critical",
                    "containers": [{ "name": name, "image": image }],
                },
            },
        },
    });
    serde_json::from_value(set).expect("a DaemonSet is a DaemonSet")
}

/// Lives as long as the pod: the agent runs, and is told to end with it.
pub(super) async fn live(
    kubelet: Arc<Kubelet>,
    node: Arc<Node>,
    pod: Pod,
    agent: AgentName,
    mut end: watch::Receiver<Ending>,
) {
    let Some(supervisor) = kubelet.keeper.get() else {
        return;
    };
    signal(&kubelet, supervisor, (agent, &node.name), Signal::Run).await;
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let id = ContainerId {
        namespace: namespace.clone(),
        pod: name.clone(),
        container: agent.kind().daemon_set.name.to_owned(),
    };
    let container = kubelet
        .containers
        .begin(id, &node.place, BTreeMap::default());
    let addresses = kubelet.world.families.addresses(node.address);
    let ready = ContainerStatus {
        state: State::Ready,
        restarts: 0,
    };
    let status = render(&pod, &addresses, &addresses, &[ready]);
    patch(&kubelet, &pod, status).await;
    let mut log = supervisor.logbook().read(agent, &node.name);
    let hear = async {
        while let Some(Ok(item)) = log.next().await {
            if let Some(entry) = item.entry() {
                entry.lines().for_each(|line| container.says(line));
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = hear => {}
        _ = end.wait_for(|end| *end != Ending::Not) => {}
    }
    signal(&kubelet, supervisor, (agent, &node.name), Signal::Stop).await;
    container.ends();
    kubelet.containers.forget(&namespace, &name);
    finalise(&kubelet, &pod).await;
}

async fn signal(
    kubelet: &Kubelet,
    supervisor: &Supervisor,
    (agent, node): (AgentName, &NodeName),
    signal: Signal,
) {
    if let Err(error) = supervisor.signal(agent, node, signal).await {
        kubelet.trouble(format!("pod of {agent} on {node}: {error}"));
    }
}
