//! What a cluster says of pods that do not become ready: what became of them, their containers' states and last log lines, events,
//! and nodes that lack memory, disk or process ids. What cannot be had is left out.

use std::fmt::Write;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, Event, Node, NodeCondition, Pod,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};

/// How much of each log, and how many events of each object, are evidence.
const LAST: usize = 10;
/// Of how many pods: those of one kind mostly fail alike.
const PODS: usize = 5;

/// Of the pods among these that are not ready, and of nodes under pressure.
pub async fn of_pods(client: &Client, pods: &[Pod]) -> String {
    let mut text = String::new();
    let waiting = pods.iter().filter(|pod| is_to_be_ready(pod));
    for pod in waiting.take(PODS) {
        of_pod(client, pod, &mut text).await;
    }
    of_nodes(client, &mut text).await;
    text
}

/// [`of_pods`] of a namespace that have this label `k8s-app`.
pub async fn of_labelled(client: &Client, namespace: &str, app: &str) -> String {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let labels = ListParams::default().labels(&format!("k8s-app={app}"));
    match pods.list(&labels).await {
        Ok(listed) => of_pods(client, &listed.items).await,
        Err(_unknown) => String::new(),
    }
}

/// Whether the pod says that it is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Whether it does not, and is not over.
pub fn is_to_be_ready(pod: &Pod) -> bool {
    !is_ready(pod) && phase(pod) != "Succeeded"
}

/// `Running`, `Succeeded`, …; empty while nobody said.
pub(crate) fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    phase.unwrap_or_default()
}

/// Of one pod.
pub async fn of_pod(client: &Client, pod: &Pod, text: &mut String) {
    let name = pod.name_any();
    let namespace = pod.namespace().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let status = pod.status.clone().unwrap_or_default();
    if phase(pod) != "Running" {
        // Evicted, say, and why.
        let words = [status.phase, status.reason, status.message];
        let words: Vec<String> = words.into_iter().flatten().collect();
        add(text, &format!("{name}: {}", words.join(" ")));
    }
    let mut conditions = status.conditions.into_iter().flatten();
    let unscheduled = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False");
    if let Some(why) = unscheduled.and_then(|it| it.message) {
        add(text, &format!("{name} is on no node: {why}"));
    }
    let init = status.init_container_statuses.into_iter().flatten();
    for container in init.chain(status.container_statuses.into_iter().flatten()) {
        if container.ready {
            continue;
        }
        let state = container
            .state
            .as_ref()
            .map_or_else(|| "not started".to_owned(), said);
        // What waits to be started once more says nothing of why it ended.
        let last = container.last_state.as_ref();
        let last = last.and_then(|it| it.terminated.as_ref()).map(ended);
        let last = last.map_or_else(String::new, |last| format!(" (before that {last})"));
        add(
            text,
            &format!("{name}, container {}: {state}{last}", container.name),
        );
        let params = LogParams {
            container: Some(container.name.clone()),
            tail_lines: Some(i64::try_from(LAST).unwrap_or(i64::MAX)),
            ..LogParams::default()
        };
        if let Ok(log) = pods.logs(&name, &params).await {
            log.lines().for_each(|line| add(text, &format!("  {line}")));
        }
    }
    of_events(client, &namespace, &name, text).await;
}

/// The last events about an object of that name.
pub async fn of_events(client: &Client, namespace: &str, name: &str, text: &mut String) {
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    let Ok(events) = events.list(&about).await else {
        return;
    };
    let from = events.items.len().saturating_sub(LAST);
    for event in &events.items[from..] {
        let reason = event.reason.as_deref().unwrap_or_default();
        let message = event.message.as_deref().unwrap_or_default();
        add(text, &format!("{name}, event {reason}: {message}"));
    }
}

/// What nodes lack: `MemoryPressure`, `DiskPressure`, `PIDPressure`, as their kubelets say.
async fn of_nodes(client: &Client, text: &mut String) {
    let nodes = Api::<Node>::all(client.clone());
    let Ok(nodes) = nodes.list(&ListParams::default()).await else {
        return;
    };
    for node in &nodes {
        let status = node.status.iter();
        let conditions = status.flat_map(|status| status.conditions.iter().flatten());
        let under = |it: &&NodeCondition| it.type_.ends_with("Pressure") && it.status == "True";
        for condition in conditions.filter(under) {
            let why = condition.message.as_deref().unwrap_or_default();
            add(
                text,
                &format!("node {}, {}: {why}", node.name_any(), condition.type_),
            );
        }
    }
}

/// `waiting: ImagePullBackOff, Back-off pulling image …`.
fn said(state: &ContainerState) -> String {
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        return format!("waiting: {reason} {message}").trim_end().to_owned();
    }
    match &state.terminated {
        Some(terminated) => ended(terminated),
        None => "running, not ready".to_owned(),
    }
}

/// `ended: Error, exit status 3`.
fn ended(state: &ContainerStateTerminated) -> String {
    let reason = state.reason.as_deref().unwrap_or_default();
    format!("ended: {reason}, exit status {}", state.exit_code)
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes everything");
}
