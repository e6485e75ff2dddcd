//! Stopping, starting and pausing agents that are pods of DaemonSets.
//!
//! A DaemonSet starts its pods again, wherever they may run. So that an agent can be stopped on one node, its DaemonSet
//! wants a label of ours on nodes ([`prepare`], and in clusters of ours that are kept [`always_by_label`]): taking the label away ends the agent
//! there as the kubelet ends it, and it is not started again until the label is back. A pause is SIGSTOP to the agent's process.

use std::time::Duration;

use chainbreak_engine::cluster::Signal;
use chainbreak_model::{
    case::{AgentFault, AgentSource, Case, Fault, Step},
    names::{AgentName, NodeName},
};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node as NodeObject, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    error::KindError,
    shared::{
        logs::DaemonPod,
        nodes::{self, Node, Nodes},
        pods,
    },
    wait,
};

/// What an agent may take to end or to be ready again.
const WITHIN: Duration = Duration::from_secs(25);
/// What a DaemonSet may take to bring all its pods to a new template, whose images are there.
pub(crate) const ROLLOUT: Duration = Duration::from_secs(180);

/// Sends a signal to processes of a container, by its cgroup; of those to the ones that are the agent itself: calico-node's container
/// runs several programs.
pub(crate) const KILL: &str = "for p in /proc/[0-9]*; do \
    grep -qs \"$1\" $p/cgroup || continue; \
    case $(tr '\\0' ' ' < $p/cmdline) in *kube-proxy\\ *|*calico-node\\ -felix*) kill \"$2\" ${p#/proc/};; esac; \
    done";

/// The label's value.
pub(crate) const LABELLED: &str = "yes";

/// The label of nodes on which an agent may run.
pub(crate) fn label(agent: AgentName) -> String {
    format!("chainbreak.dev/runs-{agent}")
}

/// Has agents that the case stops run only where our label is, which is on every node.
pub(crate) async fn prepare(client: &Client, case: &Case) -> Result<(), KindError> {
    for agent in AgentName::ALL {
        if !has_label(case, agent) {
            continue;
        }
        let pod = DaemonPod::of(client, agent).await?;
        if pod == DaemonPod::by_operator() {
            let why = "calico-node is the tigera operator's, which would start it again: it cannot be stopped";
            return Err(KindError::Unable(why.to_owned()));
        }
        label_everywhere(client, agent).await?;
        keep_by_label(client, agent, pod).await?;
    }
    Ok(())
}

/// Has an agent run where our label is from now on, so that no case that stops it needs other pods for that. They are renewed on all nodes at
/// a time.
pub(crate) async fn always_by_label(client: &Client, agent: AgentName) -> Result<(), KindError> {
    label_everywhere(client, agent).await?;
    let pod = DaemonPod::of(client, agent).await?;
    let at_once =
        json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": "100%" } } } });
    let doing = format!("have all of {agent} renewed at a time");
    let patched = patch(client, pod, at_once).await;
    patched.map_err(KindError::api(doing))?;
    keep_by_label(client, agent, pod).await
}

async fn keep_by_label(client: &Client, agent: AgentName, pod: DaemonPod) -> Result<(), KindError> {
    run_where_labelled(client, agent, pod).await?;
    rolled_out(client, pod, ROLLOUT).await
}

/// Has an agent that runs where our label is run on all of these nodes again: it may still be starting there when this returns.
pub(crate) async fn back_everywhere(
    client: &Client,
    nodes: &Nodes,
    agent: AgentName,
) -> Result<(), KindError> {
    label_everywhere(client, agent).await?;
    let pod = DaemonPod::of(client, agent).await?;
    for node in &nodes.0 {
        let is_there = |found: Option<&Pod>| match found {
            Some(pod) if pod.metadata.deletion_timestamp.is_none() => Ok(()),
            _ => Err("it has none yet"),
        };
        let what = format!("{agent} on {} has a pod", node.name);
        until(client, pod, &node.registered, (&what, ROLLOUT), is_there).await?;
    }
    Ok(())
}

/// Waits until an agent's pod on a node, if it has one there, is as it is to be; else what is missing.
pub(crate) async fn until(
    client: &Client,
    set: DaemonPod,
    node: &str,
    (what, within): (&str, Duration),
    is: impl Fn(Option<&Pod>) -> Result<(), &'static str>,
) -> Result<(), KindError> {
    let look = || async {
        let found = set.on(client, node).await;
        let found = found.map_err(|error| error.to_string())?;
        is(found.as_ref()).map_err(str::to_owned)
    };
    wait::until(what, within, look, wait::nothing).await
}

/// Labels every node, also those that the case does not know of, so that the agent goes on there.
pub(crate) async fn label_everywhere(client: &Client, agent: AgentName) -> Result<(), KindError> {
    for node in nodes::list(client).await.map_err(KindError::Unable)? {
        set_label(client, &node.name_any(), &label(agent), Some(LABELLED)).await?;
    }
    Ok(())
}

/// Has an agent's DaemonSet run pods where our label is. They may still be starting when this returns.
pub(crate) async fn run_where_labelled(
    client: &Client,
    agent: AgentName,
    pod: DaemonPod,
) -> Result<(), KindError> {
    let doing = format!("have {agent} run where its label is");
    let selected = select(client, pod, &label(agent), Some(LABELLED)).await;
    selected.map_err(KindError::api(doing))
}

/// Has a DaemonSet's pods run where a label has that value, or whatever its value is.
async fn select(
    client: &Client,
    pod: DaemonPod,
    label: &str,
    value: Option<&str>,
) -> Result<(), kube::Error> {
    let selector = json!({ label: value });
    let selected = json!({ "spec": { "template": { "spec": { "nodeSelector": selector } } } });
    patch(client, pod, selected).await
}

async fn patch(client: &Client, pod: DaemonPod, with: Value) -> Result<(), kube::Error> {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), pod.namespace);
    let params = PatchParams::default();
    let patched = sets.patch(pod.name, &params, &Patch::Merge(with)).await;
    patched.map(drop)
}

/// Has agents run wherever they ran before [`prepare`], and takes our labels from every node.
pub(crate) async fn release(client: &Client) -> Result<(), KindError> {
    for agent in AgentName::ALL {
        let (pod, label) = (DaemonPod::of(client, agent).await?, label(agent));
        let sets = Api::<DaemonSet>::namespaced(client.clone(), pod.namespace);
        let doing = || KindError::api(format!("have {agent} run where it did"));
        let standing = sets.get_opt(pod.name).await.map_err(doing())?;
        let selected = standing.and_then(|it| it.spec?.template.spec?.node_selector);
        if selected.is_some_and(|it| it.contains_key(&label)) {
            let selected = select(client, pod, &label, None).await;
            selected.map_err(doing())?;
            rolled_out(client, pod, ROLLOUT).await?;
        }
        let labelled = ListParams::default().labels(&label);
        let nodes = Api::<NodeObject>::all(client.clone()).list(&labelled).await;
        for node in nodes.map_err(doing())?.items {
            set_label(client, &node.name_any(), &label, None).await?;
        }
    }
    Ok(())
}

/// What the case does to agents that are pods.
fn done_to_pods(case: &Case) -> impl Iterator<Item = (AgentName, AgentFault)> {
    case.timeline.iter().filter_map(|step| match step {
        Step::Fault {
            fault: Fault::Agent { agent, what, .. },
            ..
        } if case.cluster.source(*agent) == Some(&AgentSource::Cluster) => Some((*agent, *what)),
        _ => None,
    })
}

/// Whether the case does anything to an agent that is a pod: then labels of ours are on nodes when it ends.
pub(crate) fn touches_any(case: &Case) -> bool {
    done_to_pods(case).next().is_some()
}

/// Whether the case pauses an agent that is a pod.
pub(crate) fn pauses(case: &Case) -> bool {
    done_to_pods(case).any(|(_, what)| what == AgentFault::Pause)
}

/// Whether an agent runs where our label is, in this case: it is stopped. A restart deletes the pod.
pub(crate) fn has_label(case: &Case, agent: AgentName) -> bool {
    done_to_pods(case).any(|(whose, what)| whose == agent && what.ends())
}

/// Has agents go on that are paused on a node, whatever container they are in.
pub(crate) async fn go_on(node: &Node) -> Result<(), KindError> {
    let argv = ["sh", "-c", KILL, "sh", "", "-CONT"];
    node.run(&argv).await.map(drop)
}

/// Waits until every pod of the DaemonSet is of its newest template and ready.
pub(crate) async fn rolled_out(
    client: &Client,
    pod: DaemonPod,
    within: Duration,
) -> Result<(), KindError> {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), pod.namespace);
    let look = || async {
        let set = sets
            .get(pod.name)
            .await
            .map_err(|error| error.to_string())?;
        let status = set.status.unwrap_or_default();
        let wanted = status.desired_number_scheduled;
        let updated = status.updated_number_scheduled.unwrap_or(0);
        let observed = status.observed_generation == set.metadata.generation;
        if observed && wanted > 0 && updated == wanted && status.number_ready == wanted {
            return Ok(());
        }
        let ready = status.number_ready;
        Err(format!(
            "{ready} of {wanted} pods are ready, {updated} of the newest kind"
        ))
    };
    let what = format!("daemonset {} is ready on every node", pod.name);
    let evidence = || pod.evidence(client);
    wait::until(&what, within, look, evidence).await
}

/// Does it to an agent's pod on a node. It is so when this returns.
pub(crate) async fn signal(
    client: &Client,
    nodes: &Nodes,
    agent: AgentName,
    node: &NodeName,
    signal: Signal,
) -> Result<(), KindError> {
    let pod = DaemonPod::of(client, agent).await?;
    let on = nodes.get(node.as_str())?;
    let registered = &on.registered;
    match signal {
        Signal::Stop => {
            set_label(client, registered, &label(agent), None).await?;
            let is_gone = |found: Option<&Pod>| match found {
                None => Ok(()),
                Some(_) => Err("its pod is still there"),
            };
            let what = format!("{agent} on {node} has ended");
            until(client, pod, registered, (&what, WITHIN), is_gone).await
        }
        Signal::Pause => kill(client, on, pod, "-STOP").await,
        Signal::Run => {
            set_label(client, registered, &label(agent), Some(LABELLED)).await?;
            let runs = |found: Option<&Pod>| match found {
                Some(pod) if is_running(pod) => Ok(()),
                _ => Err("it has no running container"),
            };
            let what = format!("{agent} on {node} runs");
            until(client, pod, registered, (&what, WITHIN), runs).await?;
            kill(client, on, pod, "-CONT").await
        }
    }
}

fn is_running(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .iter()
        .flat_map(|it| it.container_statuses.iter().flatten());
    let mut running = statuses.filter(|it| it.state.as_ref().is_some_and(|s| s.running.is_some()));
    pod.metadata.deletion_timestamp.is_none() && running.next().is_some()
}

/// Sends a signal to the agent itself, not to what it has started.
async fn kill(client: &Client, node: &Node, pod: DaemonPod, signal: &str) -> Result<(), KindError> {
    let id = container(client, node, pod).await?;
    let argv = ["sh", "-c", KILL, "sh", &id, signal];
    node.run(&argv).await.map(drop)
}

/// The id of the container that an agent is in on a node, without its runtime's name.
pub(crate) async fn container(
    client: &Client,
    node: &Node,
    pod: DaemonPod,
) -> Result<String, KindError> {
    let lost = |why: &str| KindError::Unable(format!("{} on {} {why}", pod.name, node.name));
    let found = pod.on(client, &node.registered).await?;
    let found = found.ok_or_else(|| lost("has no pod"))?;
    let statuses = found.status.iter().flat_map(|it| &it.container_statuses);
    let found = statuses.flatten().find_map(pods::id);
    found
        .map(str::to_owned)
        .ok_or_else(|| lost("has no container"))
}

async fn set_label(
    client: &Client,
    node: &str,
    label: &str,
    value: Option<&str>,
) -> Result<(), KindError> {
    let nodes = Api::<NodeObject>::all(client.clone());
    let value = value.map_or(Value::Null, Value::from);
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
    let patched = nodes.patch(node, &PatchParams::default(), &patch).await;
    patched
        .map(drop)
        .map_err(KindError::api(format!("label {node}")))
}
