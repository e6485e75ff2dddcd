//! Where a pod is: the node's container, and a process there that has the pod's network.

use std::{collections::BTreeMap, sync::Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

use crate::{docker::in_node, error::KindError, nodes::Nodes};

/// Process ids in nodes, by container id.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    known: Mutex<BTreeMap<String, u32>>,
}

/// Whose network a command is to have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// The node's container.
    pub(crate) container: String,
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
        let node = nodes.named(node).ok_or_else(|| lost("is on no node"))?;
        let container = node.container.clone();
        if spec.host_network == Some(true) {
            return Ok(Network {
                container,
                pid: None,
            });
        }
        let id = container_id(&pod).ok_or_else(|| lost("has no running container"))?;
        let pid = self.pid(&container, id).await?;
        let pid = pid.ok_or_else(|| lost("has no process on its node"))?;
        Ok(Network {
            container,
            pid: Some(pid),
        })
    }

    async fn pid(&self, container: &str, id: &str) -> Result<Option<u32>, KindError> {
        let known = |pods: &Self| pods.lock().get(id).copied();
        if let Some(pid) = known(self) {
            return Ok(Some(pid));
        }
        let list = ["ctr", "--namespace", "k8s.io", "tasks", "list"];
        let tasks = in_node(container, &list).await?;
        self.lock().extend(tasks_of(&tasks));
        Ok(known(self))
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
    let id = running.next()?.container_id.as_deref()?;
    id.strip_prefix("containerd://")
}

/// The running ones of `ctr tasks list`: id, process id and state, a line each.
fn tasks_of(listed: &str) -> impl Iterator<Item = (String, u32)> {
    listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (id, pid, state) = (words.next()?, words.next()?, words.next()?);
        let pid = pid.parse().ok().filter(|_| state == "RUNNING")?;
        Some((id.to_owned(), pid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_tasks_have_a_process() {
        let listed = "TASK    PID     STATUS    \n\
                      0f0e    4711    RUNNING\n\
                      0d0c    0       STOPPED\n";
        let tasks: Vec<_> = tasks_of(listed).collect();
        assert_eq!(tasks, [("0f0e".to_owned(), 4711)]);
    }
}
