//! What the cluster says of pods that do not become ready: their containers' states, their last log lines, and events.

use std::fmt::Write;

use k8s_openapi::api::core::v1::{ContainerState, Event, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};

use crate::logs::DaemonPod;

/// How much of each log, and how many events, are evidence.
const LAST: usize = 10;

/// Of the pods of a DaemonSet that are not ready. What cannot be had is left out.
pub(crate) async fn of_daemon_set(client: &Client, set: DaemonPod) -> String {
    let pods = Api::<Pod>::namespaced(client.clone(), set.namespace);
    let labels = ListParams::default().labels(&format!("k8s-app={}", set.name));
    let Ok(listed) = pods.list(&labels).await else {
        return String::new();
    };
    let mut text = String::new();
    for pod in listed.items.iter().filter(|pod| !is_ready(pod)) {
        of_pod(client, pod, &mut text).await;
    }
    text
}

/// Whether the pod says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Of one pod.
pub(crate) async fn of_pod(client: &Client, pod: &Pod, text: &mut String) {
    let name = pod.name_any();
    let namespace = pod.namespace().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let status = pod.status.clone().unwrap_or_default();
    let init = status.init_container_statuses.into_iter().flatten();
    for container in init.chain(status.container_statuses.into_iter().flatten()) {
        if container.ready {
            continue;
        }
        let state = container
            .state
            .as_ref()
            .map_or_else(|| "not started".to_owned(), said);
        add(
            text,
            &format!("{name}, container {}: {state}", container.name),
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
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    if let Ok(events) = Api::<Event>::namespaced(client.clone(), &namespace)
        .list(&about)
        .await
    {
        let from = events.items.len().saturating_sub(LAST);
        for event in &events.items[from..] {
            let reason = event.reason.as_deref().unwrap_or_default();
            let message = event.message.as_deref().unwrap_or_default();
            add(text, &format!("{name}, event {reason}: {message}"));
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
    if let Some(ended) = &state.terminated {
        let reason = ended.reason.as_deref().unwrap_or_default();
        return format!("ended: {reason}, exit status {}", ended.exit_code);
    }
    "running, not ready".to_owned()
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes everything");
}
