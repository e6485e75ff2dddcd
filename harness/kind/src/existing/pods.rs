//! The pods on the nodes of an existing cluster: privileged, with the node's process ids, so that a command gets from them into the
//! node's own namespaces. This program is in a volume of theirs, and goes with them.

use std::time::Duration;

use chainbreak_engine::evidence;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod, Taint};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{
    error::KindError,
    shared::{
        nodes::{self, Node, Nodes},
        program,
    },
    wait,
};

/// What a pod may take to run, its image included.
const RUNS: Duration = Duration::from_secs(120);
/// What a pod that runs may take to answer, or its kubelet to say that it has ended.
const ANSWERS: Duration = Duration::from_secs(20);
/// Where the volume is in the pod.
const VOLUME: &str = "/chainbreak";
/// The node's own programs are meant: `nsenter` of `BusyBox`, as Debian builds it, runs an `ip` of its own where none has a path.
const ENV: &str = "/usr/bin/env";
/// The pod's first process notes its id, which is that of the node, and stays. Kubernetes makes one dollar of two.
const STAY: &str = "echo $$$$ > /chainbreak/pid && exec sleep 2147483647";

/// What it may, in words.
pub(super) const RIGHTS: &str = "privileged, with the node's network and process ids";

/// Its id, as soon as it is noted: a pod runs some moments before.
pub(super) const NOTED: &str =
    "until [ -s /chainbreak/pid ]; do sleep 0.1; done; cat /chainbreak/pid";

/// The nodes that pods may run on without being told, by name; not yet with a way in.
pub(super) async fn fit(client: &Client) -> Result<Vec<Node>, KindError> {
    let listed = nodes::list(client).await.map_err(KindError::Unable)?;
    let mut fit: Vec<&NodeObject> = listed.iter().filter(|node| takes_pods(node)).collect();
    fit.sort_by_key(|node| node.name_any());
    let known = fit.into_iter().zip(1..).filter_map(|(node, number)| {
        Some(Node {
            name: format!("n{number}").into(),
            registered: node.name_any(),
            address: nodes::address(node)?,
            entry: Vec::new(),
            program: String::new(),
            shells: None,
        })
    });
    Ok(known.collect())
}

fn takes_pods(node: &NodeObject) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    // That it is not ready its condition says, and sooner.
    let keeps_off = |taint: &Taint| {
        taint.effect != "PreferNoSchedule" && taint.key != "node.kubernetes.io/not-ready"
    };
    let mut taints = spec.taints.iter().flatten();
    nodes::not_ready(node).is_none() && spec.unschedulable != Some(true) && !taints.any(keeps_off)
}

/// As many as the case has.
pub(super) fn choose(mut fit: Vec<Node>, count: u16) -> Result<Vec<Node>, KindError> {
    if fit.len() < usize::from(count) {
        let names: Vec<&str> = fit.iter().map(|node| node.registered.as_str()).collect();
        let names = names.join(", ");
        return Err(KindError::Unable(format!(
            "the case is about {count} nodes, and pods run on {} of the cluster's: {names}",
            fit.len()
        )));
    }
    fit.truncate(usize::from(count));
    Ok(fit)
}

/// Starts a pod on each of the nodes, and returns them with a way in.
pub(super) async fn on(
    client: &Client,
    run: &str,
    image: &str,
    nodes: Vec<Node>,
    kubectl: &[String],
) -> Result<Nodes, KindError> {
    let pods = Api::<Pod>::namespaced(client.clone(), run);
    for node in &nodes {
        let doing = format!("start a pod on {}", node.registered);
        let made = pods.create(&PostParams::default(), &pod(node, image)).await;
        made.map_err(KindError::api(doing))?;
    }
    let mut entered = Vec::new();
    for node in nodes {
        runs(client, &pods, node.name.as_str()).await?;
        entered.push(enter(node, kubectl).await?);
    }
    Ok(Nodes(entered))
}

/// Into the node of a run's pod, also of one that has ended: then through another one of the same image.
pub(super) async fn again(
    client: &Client,
    run: &str,
    pod: Pod,
    kubectl: &[String],
) -> Result<Node, KindError> {
    let (name, status) = (pod.name_any(), pod.status.unwrap_or_default());
    let spec = pod.spec.unwrap_or_default();
    let address = status.host_ip.and_then(|it| it.parse().ok());
    let node = Node {
        name: name.as_str().into(),
        registered: spec.node_name.unwrap_or_default(),
        address: address.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into()),
        entry: Vec::new(),
        program: String::new(),
        shells: None,
    };
    let pods = Api::<Pod>::namespaced(client.clone(), run);
    // A kubelet that has just begun may not have said yet that it has ended.
    let look = || async {
        let pod = pods.get(&name).await.map_err(|error| error.to_string())?;
        if phase(&pod) != "Running" {
            return Ok(None);
        }
        let entered = enter(node.clone(), kubectl).await;
        entered.map(Some).map_err(|error| error.to_string())
    };
    let what = format!("the pod on {} answers", node.registered);
    let standing = wait::until(&what, ANSWERS, look, wait::nothing).await?;
    if let Some(entered) = standing {
        return Ok(entered);
    }
    remove(&pods, &name).await?;
    let image = spec.containers.into_iter().find_map(|it| it.image);
    let image = image.unwrap_or_default();
    let nodes = Box::pin(on(client, run, &image, vec![node], kubectl)).await?;
    Box::pin(program::place(&nodes)).await?;
    let Nodes(mut nodes) = nodes;
    Ok(nodes.swap_remove(0))
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|it| it.phase.as_deref())
        .unwrap_or("unknown to its node")
}

/// Deletes a pod that has ended, and waits until it is gone.
async fn remove(pods: &Api<Pod>, name: &str) -> Result<(), KindError> {
    let now = DeleteParams::default().grace_period(0);
    let deleted = pods.delete(name, &now).await;
    deleted.map_err(KindError::api(format!("delete the pod {name}")))?;
    let gone = || async {
        match pods.get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("it is still there".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let what = format!("the pod {name} that has ended is gone");
    wait::until(&what, RUNS, gone, wait::nothing).await
}

/// The node, entered through its pod, which runs.
async fn enter(node: Node, kubectl: &[String]) -> Result<Node, KindError> {
    let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let into_pod = [kubectl, &words(&[node.name.as_str(), "--"])].concat();
    let in_pod = Node {
        entry: into_pod.clone(),
        ..node
    };
    let pid = in_pod.run(&["sh", "-c", NOTED]).await?;
    let pid = pid.trim();
    // It has the node's network and process ids as it is.
    let into_node = words(&["nsenter", "-t", "1", "-m", "-u", "-i", "-n", "--", ENV]);
    Ok(Node {
        entry: [into_pod, into_node].concat(),
        program: format!("/proc/{pid}/root{VOLUME}/chainbreak"),
        ..in_pod
    })
}

fn pod(node: &Node, image: &str) -> Pod {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": node.name },
        "spec": {
            "nodeName": node.registered,
            "hostPID": true,
            "hostNetwork": true,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "node",
                "image": image,
                "command": ["sh", "-c", STAY],
                "securityContext": { "privileged": true },
                "volumeMounts": [{ "name": "chainbreak", "mountPath": VOLUME }],
            }],
            "volumes": [{ "name": "chainbreak", "emptyDir": {} }],
        },
    });
    serde_json::from_value(pod).expect("it is a pod")
}

async fn runs(client: &Client, pods: &Api<Pod>, name: &str) -> Result<(), KindError> {
    let look = || async {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        match phase(&pod) {
            "Running" => Ok(()),
            phase => Err(format!("it is {phase}")),
        }
    };
    let evidence = || async {
        let mut text = String::new();
        if let Ok(pod) = pods.get(name).await {
            evidence::of_pod(client, &pod, &mut text).await;
        }
        text
    };
    let what = format!("the pod on {name} runs");
    wait::until(&what, RUNS, look, evidence).await
}
