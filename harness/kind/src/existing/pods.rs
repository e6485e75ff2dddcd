//! The pods on the nodes of an existing cluster: privileged, with the node's process ids, so that a command gets from them into the
//! node's own namespaces. This program is in a volume of theirs, and goes with them.

use std::time::Duration;

use chainbreak_engine::evidence;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod, Taint};
use kube::{Api, Client, ResourceExt, api::PostParams};
use serde_json::json;

use crate::{
    error::KindError,
    shared::nodes::{self, Node, Nodes},
    wait,
};

/// What a pod may take to run, its image included.
const RUNS: Duration = Duration::from_secs(120);
/// Where the volume is in the pod.
const VOLUME: &str = "/chainbreak";
/// The pod's first process notes its id, which is that of the node, and stays. Kubernetes makes one dollar of two.
const STAY: &str = "echo $$$$ > /chainbreak/pid && exec sleep 2147483647";

/// Its id, as soon as it is noted: a pod runs some moments before.
const NOTED: &str = "until [ -s /chainbreak/pid ]; do sleep 0.1; done; cat /chainbreak/pid";

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
        let name = node.name.as_str();
        runs(client, &pods, name).await?;
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let into_pod = [kubectl, &words(&[name, "--"])].concat();
        let in_pod = Node {
            entry: into_pod.clone(),
            ..node
        };
        let pid = in_pod.run(&["sh", "-c", NOTED]).await?;
        let pid = pid.trim();
        // It has the node's network and process ids as it is.
        let into_node = words(&["nsenter", "-t", "1", "-m", "-u", "-i", "-n", "--"]);
        entered.push(Node {
            entry: [into_pod, into_node].concat(),
            program: format!("/proc/{pid}/root{VOLUME}/chainbreak"),
            ..in_pod
        });
    }
    Ok(Nodes(entered))
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
        match pod.status.and_then(|status| status.phase).as_deref() {
            Some("Running") => Ok(()),
            phase => Err(format!("it is {}", phase.unwrap_or("unknown to its node"))),
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
