//! A cluster of ours after its case: deleted, or kept for the next one.

use std::sync::Arc;

use async_trait::async_trait;
use chainbreak_engine::cluster::NodeUpgrades;
use kube::Client;
use serde_json::Value;

use super::{
    fitting::Fitting, hosts::Hosts, leftovers, owned_cluster::OwnedCluster, upgrades::Upgrades,
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
    /// Whether the cluster is to be as it was: not where a real Calico writes what nobody foresees.
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
        let mut errors = self.hosts.end().await;
        let gone = if self.owned.is_kept() {
            errors.extend(self.hosts.forget_routes().await.err());
            errors.extend(self.fitting.undo().await);
            errors.extend(leftovers::remove(client, &self.manifests).await.err());
            if self.is_foreseen {
                leftovers::scrub(&self.nodes).await
            } else {
                Ok(())
            }
        } else {
            self.owned.delete().await
        };
        errors.extend(gone.err());
        errors
    }
}
