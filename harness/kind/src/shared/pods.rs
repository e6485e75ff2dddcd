//! Where a pod is: the node, and a process there that has the pod's network.

use std::{collections::BTreeMap, sync::Mutex};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{Api, Client};
use serde_json::Value;

use crate::{
    error::KindError,
    shared::nodes::{Node, Nodes},
};

/// Finds the processes of a container. Shells have no pipe's exit status in common: what grep found decides.
pub(crate) const FIND: &str = "grep -ls \"$1\" /proc/[0-9]*/cgroup || true";

/// Process ids in nodes, by container id.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    known: Mutex<BTreeMap<String, u32>>,
}

/// Where an object has the `spec` of its pods, if it has any (a JSON pointer).
pub(crate) fn spec_path(object: &Value) -> &'static str {
    match object["kind"].as_str() {
        Some("Pod") => "/spec",
        _ => "/spec/template/spec",
    }
}

/// Whose network a command is to have.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) node: Node,
    /// A process of the pod; none when it is on the node's network.
    pub(crate) pid: Option<u32>,
}

impl Pods {
    /// Looks the pod up in the API, and its process in the node.
    pub(crate) async fn find(
        &self,
        client: &Client,
        nodes: &Nodes,
        namespace: &str,
        name: &str,
    ) -> Result<Network, KindError> {
        let lost = |why: &str| KindError::Unable(format!("pod {namespace}/{name} {why}"));
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let doing = format!("look up pod {namespace}/{name}");
        let pod = pods.get(name).await.map_err(KindError::api(doing))?;
        let spec = pod.spec.as_ref().ok_or_else(|| lost("has no spec"))?;
        let node = spec.node_name.as_deref().unwrap_or_default();
        let node = nodes
            .registered_as(node)
            .ok_or_else(|| lost("is on no node"))?;
        let node = node.clone();
        if spec.host_network == Some(true) {
            return Ok(Network { node, pid: None });
        }
        let id = container_id(&pod).ok_or_else(|| lost("has no running container"))?;
        let pid = self.pid(&node, id).await?;
        let pid = pid.ok_or_else(|| lost("has no process on its node"))?;
        let pid = Some(pid);
        Ok(Network { node, pid })
    }

    /// The process of that container with the lowest number, by its control group: whatever container runtime the node has.
    async fn pid(&self, node: &Node, id: &str) -> Result<Option<u32>, KindError> {
        let known = self.lock().get(id).copied();
        if let Some(pid) = known {
            return Ok(Some(pid));
        }
        let found = node.run(&["sh", "-c", FIND, "sh", id]).await?;
        let pid = lowest(&found);
        if let Some(pid) = pid {
            self.lock().insert(id.to_owned(), pid);
        }
        Ok(pid)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The id of a pod's first container that runs.
fn container_id(pod: &Pod) -> Option<&str> {
    let statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
    let mut running = statuses.filter(|it| {
        let state = it.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    });
    id(running.next()?)
}

/// A container's id, without its runtime's name.
pub(crate) fn id(of: &ContainerStatus) -> Option<&str> {
    let (_runtime, id) = of.container_id.as_deref()?.split_once("://")?;
    Some(id)
}

/// Of paths `/proc/PID/cgroup`, a line each.
fn lowest(found: &str) -> Option<u32> {
    let pids = found.lines().filter_map(|path| {
        let pid = path.strip_prefix("/proc/")?.strip_suffix("/cgroup")?;
        pid.parse().ok()
    });
    pids.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_first_process_stands_for_it() {
        let found = "/proc/4712/cgroup\n/proc/4711/cgroup\n/proc/self/cgroup\n";
        assert_eq!(lowest(found), Some(4711));
        assert_eq!(lowest(""), None);
    }
}
