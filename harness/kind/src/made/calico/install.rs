//! What is done to have Calico in a cluster, in order, and what is waited for.

use chainbreak_model::names::AgentName;
use kube::Client;
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use super::{
    Order, Way, anew,
    apply::{apply, definitions},
    bpf, is, operator, patch,
};
use crate::{
    error::KindError,
    made::leftovers::standing_rules,
    shared::{felix_config, logs::DaemonPod, nodes::Nodes, signal::rolled_out},
    wait::left,
};

/// What is installed, and where.
pub(crate) struct Install<'a> {
    pub(crate) client: &'a Client,
    pub(crate) order: Order<'a>,
    /// When what is waited for is given up. Images may have to be pulled.
    pub(crate) until: Instant,
}

impl Install<'_> {
    /// Applies the manifest, made fit for the case, and waits until calico-node is ready on every node.
    pub(crate) async fn apply(&self, manifest: &[Value]) -> Result<(), KindError> {
        match self.order.way {
            Way::Manifest => self.by_manifest(manifest).await,
            Way::Operator => operator::install(self, manifest).await,
        }
    }

    async fn by_manifest(&self, manifest: &[Value]) -> Result<(), KindError> {
        let others = definitions(self.client, manifest.to_vec()).await?;
        self.configure().await?;
        self.lead_to_the_api().await?;
        for object in others {
            self.fitted(object).await?;
        }
        self.rolled_out().await
    }

    /// What this case has otherwise, in a cluster that has Calico already. Felix begins anew in the pods that are there, where this case has another
    /// FelixConfiguration than the last one left, or that one did something to its rules. `gone` is told as soon as the last case's Felix has no more
    /// to write, where that is before all is done.
    pub(crate) async fn renew(
        &self,
        nodes: &Nodes,
        manifest: &[Value],
        gone: &Notify,
    ) -> Result<(), KindError> {
        if self.order.way == Way::Operator {
            return operator::install(self, manifest).await;
        }
        let is_another = self.configure().await?;
        // What its programs hold is not in rules.
        let begins = is_another
            || bpf(self.order.felix)
            || !standing_rules::stand(nodes, AgentName::Felix).await;
        if begins {
            anew::end(nodes, self.until).await?;
        }
        gone.notify_one();
        let port = self.order.felix.get("healthPort");
        let port = port.and_then(Value::as_u64).unwrap_or(anew::HEALTH_PORT);
        // One that is left alone, too: the last case may have ended it, and its rules stand.
        anew::ready(nodes, port, self.until).await?;
        self.lead_to_the_api().await?;
        let (kind, name) = Way::Manifest.heart();
        for object in manifest.iter().filter(|it| is(it, kind, name)) {
            self.fitted(object.clone()).await?;
        }
        self.rolled_out().await
    }

    async fn lead_to_the_api(&self) -> Result<(), KindError> {
        match patch::services_endpoint(&self.order, "kube-system") {
            Some(endpoint) => apply(self.client, &endpoint).await,
            None => Ok(()),
        }
    }

    async fn fitted(&self, mut object: Value) -> Result<(), KindError> {
        patch::fit(&mut object, &self.order)?;
        apply(self.client, &object).await
    }

    async fn rolled_out(&self) -> Result<(), KindError> {
        let set = DaemonPod::by_manifest(AgentName::Felix);
        rolled_out(self.client, set, left(self.until)).await
    }

    /// What Felix is to find when it starts. Returns whether its configuration is another one than before.
    pub(super) async fn configure(&self) -> Result<bool, KindError> {
        let is_another = felix_config::set(self.client, &patch::felix(&self.order)).await?;
        for pool in &self.order.pools {
            apply(self.client, pool).await?;
        }
        Ok(is_another)
    }
}
