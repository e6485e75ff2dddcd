//! How a pod is, as the API is told.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// How a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Not started yet, or to be started again.
    Waiting(&'static str),
    /// Started, but its port does not accept connections yet.
    Started,
    /// Does its work.
    Ready,
    /// Ended with that code.
    Exited(i32),
}

/// A container's past and present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerStatus {
    pub(super) state: State,
    pub(super) restarts: u32,
}

impl ContainerStatus {
    pub(super) fn new() -> Self {
        Self {
            state: State::Waiting("ContainerCreating"),
            restarts: 0,
        }
    }
}

/// The `status` of a pod, as a merge patch.
pub(super) fn render(
    pod: &Pod,
    node: &[IpAddr],
    addresses: &[IpAddr],
    containers: &[ContainerStatus],
) -> Value {
    let all = |wanted: fn(&State) -> bool| containers.iter().all(|one| wanted(&one.state));
    let ready = all(|state| *state == State::Ready);
    let phase = if all(|state| *state == State::Exited(0)) {
        "Succeeded"
    } else if all(|state| matches!(state, State::Exited(_))) {
        "Failed"
    } else if all(|state| matches!(state, State::Waiting("ContainerCreating"))) {
        "Pending"
    } else {
        "Running"
    };
    let specs = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses: Vec<Value> = specs
        .zip(containers)
        .map(|(spec, one)| container(spec, one))
        .collect();
    let condition = |kind: &str, holds: bool| json!({ "type": kind, "status": if holds { "True" } else { "False" } });
    let list =
        |all: &[IpAddr]| -> Vec<Value> { all.iter().map(|ip| json!({ "ip": ip })).collect() };
    json!({ "status": {
        "phase": phase,
        "hostIP": node.first(),
        "hostIPs": list(node),
        "podIP": addresses.first(),
        "podIPs": list(addresses),
        "conditions": [
            condition("PodScheduled", true),
            condition("Initialized", true),
            condition("ContainersReady", ready),
            condition("Ready", ready),
        ],
        "containerStatuses": statuses,
    }})
}

fn container(spec: &Container, status: &ContainerStatus) -> Value {
    let running = matches!(status.state, State::Started | State::Ready);
    let state = match &status.state {
        State::Waiting(reason) => json!({ "waiting": { "reason": reason } }),
        State::Started | State::Ready => json!({ "running": {} }),
        State::Exited(code) => json!({ "terminated": {
            "exitCode": code,
            "reason": if *code == 0 { "Completed" } else { "Error" },
        }}),
    };
    json!({
        "name": spec.name,
        "image": spec.image,
        "imageID": "",
        "ready": status.state == State::Ready,
        "started": running,
        "restartCount": status.restarts,
        "state": state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(containers: usize) -> Pod {
        let mut pod = Pod::default();
        let spec = pod.spec.get_or_insert_default();
        spec.containers = vec![Container::default(); containers];
        pod
    }

    fn status(states: &[State]) -> Value {
        let one = |state: &State| ContainerStatus {
            state: state.clone(),
            restarts: 0,
        };
        let containers: Vec<_> = states.iter().map(one).collect();
        let node = ["10.0.1.1".parse().unwrap()];
        render(&pod(states.len()), &node, &node, &containers)
    }

    #[test]
    fn a_pod_is_ready_only_when_each_of_its_containers_is() {
        let both = status(&[State::Ready, State::Ready]);
        assert_eq!(both["status"]["conditions"][3]["status"], "True");
        let one = status(&[State::Ready, State::Started]);
        assert_eq!(one["status"]["conditions"][3]["status"], "False");
        assert_eq!(one["status"]["phase"], "Running");
    }

    #[test]
    fn a_pods_phase_follows_its_containers() {
        let phase = |states: &[State]| status(states)["status"]["phase"].clone();
        assert_eq!(phase(&[State::Waiting("ContainerCreating")]), "Pending");
        assert_eq!(phase(&[State::Exited(0), State::Exited(0)]), "Succeeded");
        assert_eq!(phase(&[State::Exited(0), State::Exited(1)]), "Failed");
        assert_eq!(phase(&[State::Waiting("CrashLoopBackOff")]), "Running");
    }
}
