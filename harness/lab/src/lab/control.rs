//! What is done to a world's agents and nodes.

use std::sync::Arc;

use async_trait::async_trait;
use chainbreak_engine::{
    cluster::{AgentControl, Reboots, Signal, SignalError},
    log::EventLog,
};
use chainbreak_model::{
    case::{ApiWay, ClusterSpec},
    names::{AgentName, NodeName},
};

use super::Raised;
use crate::{
    agents::readiness::felix_is_ready,
    api, cni,
    error::LabError,
    kubelet,
    world::{Node, World},
};

#[async_trait]
impl AgentControl for Raised {
    async fn signal(
        &self,
        agent: AgentName,
        node: &NodeName,
        signal: Signal,
    ) -> Result<(), SignalError> {
        self.supervisor.signal(agent, node, signal).await
    }

    async fn restart_with(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), SignalError> {
        let upgraded = Box::pin(async {
            let Some(version) = version else {
                return Ok(());
            };
            let changed = self.upgrade(agent, node, version).await;
            changed.map_err(|error| SignalError(error.to_string()))
        });
        self.supervisor.restart(agent, node, upgraded).await?;
        match self.world.node(node) {
            Some(at) if self.versions.tells_readiness(agent, node) => felix_is_ready(at).await,
            _ => Ok(()),
        }
    }

    async fn replace_pod(
        &self,
        agent: AgentName,
        node: &NodeName,
        api: Option<ApiWay>,
    ) -> Result<(), SignalError> {
        let which = (agent, node);
        let replaced = self
            .versions
            .replace_pod(&self.world, &self.log, which, api);
        replaced
            .await
            .map_err(|error| SignalError(error.to_string()))
    }
}

#[async_trait]
impl Reboots for Raised {
    async fn forget_programs(&self, node: &NodeName) -> Result<(), SignalError> {
        let lost = self.versions.lose_programs(&self.world, &self.log, node);
        lost.await.map_err(|error| SignalError(error.to_string()))
    }

    async fn begin(&self, node: &NodeName) -> Result<(), SignalError> {
        let node: Vec<_> = self.world.node(node).into_iter().collect();
        let begun = nodes_begin(&self.world, &node, &self.cluster, &self.log);
        begun.await.map_err(|error| SignalError(error.to_string()))
    }
}

impl Raised {
    /// Another version of an agent that is ended, and what its installation makes.
    async fn upgrade(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: &str,
    ) -> Result<(), LabError> {
        let which = (agent, node);
        // A DaemonSet's upgrade makes pods anew.
        let (world, log) = (&self.world, &self.log);
        self.versions.end_pod(world, log, which).await?;
        if agent == AgentName::Felix {
            api::upgrade_calico(&self.client.0, version).await?;
        }
        self.versions.change(world, log, which, version)
    }
}

/// What nodes write when they begin, before any agent: what their kubelets do, and their CNI.
pub(super) async fn nodes_begin(
    world: &World,
    nodes: &[&Arc<Node>],
    cluster: &ClusterSpec,
    log: &EventLog,
) -> Result<(), LabError> {
    kubelet::chains::make(world, nodes, cluster, log).await?;
    match &cluster.cni {
        Some(cni) => cni::write(world, nodes, cni, log).await,
        None => Ok(()),
    }
}
