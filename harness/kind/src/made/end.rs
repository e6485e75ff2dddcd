//! A cluster of ours after its case: deleted, or kept for the next one.

use std::sync::Arc;

use async_trait::async_trait;
use chainbreak_engine::cluster::NodeUpgrades;
use futures::future::join5;
use kube::Client;
use serde_json::Value;

use super::{
    fitting::Fitting, hosts::Hosts, leftovers, owned_cluster::OwnedCluster, running::Running,
    upgrades::Upgrades,
};
use crate::{
    error::KindError,
    shared::{cluster::End, nodes::Nodes},
};

/// See the module.
pub(super) struct EndOfCase {
    pub(super) owned: Arc<OwnedCluster>,
    pub(super) hosts: Hosts,
    pub(super) nodes: Nodes,
    pub(super) upgrades: Upgrades,
    /// What was done to them.
    pub(super) fitting: Fitting,
    /// Whether all rules are to be as they were: not where a real Calico writes what nobody foresees.
    pub(super) is_foreseen: bool,
    /// The case's objects, which go from a cluster that is kept.
    pub(super) manifests: Vec<Value>,
}

#[async_trait]
impl End for EndOfCase {
    fn before_upgrade(&self) -> Result<(), KindError> {
        // It is no longer what the next case that asks for it would get.
        self.owned.keep_no_longer();
        Ok(())
    }

    fn node_upgrades(&self) -> Option<&dyn NodeUpgrades> {
        Some(&self.upgrades)
    }

    async fn after_case(&self, client: &Client) -> Vec<KindError> {
        if !self.owned.is_kept() {
            let mut errors = self.hosts.end().await;
            errors.extend(self.owned.delete().await.err());
            return errors;
        }
        let running = Running::of(client, &self.manifests).await;
        let hastened = async {
            if let Err(error) = running?.end(&self.nodes).await {
                // They end by themselves, later.
                tracing::debug!(%error, "no container was hurried");
            }
            Ok(())
        };
        let (mut errors, forgotten, unfit, removed, listed) = join5(
            self.hosts.end(),
            self.hosts.forget_routes(),
            self.fitting.undo(),
            leftovers::remove(client, &self.manifests),
            hastened,
        )
        .await;
        errors.extend(forgotten.err());
        errors.extend(unfit);
        errors.extend(removed.err());
        errors.extend(listed.err());
        // What connections of the above are left is known only now.
        let scrubbed = leftovers::scrub(&self.nodes, self.is_foreseen).await;
        errors.extend(scrubbed.err());
        errors
    }
}
