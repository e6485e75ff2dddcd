//! The agents of a case's cluster: kube-proxy and Calico, as the case wants them.

use chainbreak_model::{case::ProxyMode, names::AgentName};
use futures::future::try_join;
use kube::Client;
use tokio::sync::Notify;

use crate::{
    error::KindError,
    made::{
        calico, iptables_backend, leftovers,
        raise::Raising,
        spec::Spec,
        standing::{Origin, Plan},
    },
    shared::{felix_config, iptables_backend::restart, logs::DaemonPod, nodes::Nodes, signal},
};

impl Raising<'_> {
    /// kube-proxy and Calico, each as the case wants it, and in the order in which a Felix that cleans up does not spoil it.
    pub(super) async fn have_agents(
        &self,
        client: &Client,
        nodes: &Nodes,
        origin: Origin,
        plan: Plan<'_>,
    ) -> Result<(), KindError> {
        let spec = plan.spec;
        if !spec.is_foreseen() {
            for agent in AgentName::ALL {
                signal::label_everywhere(client, agent).await?;
            }
        } else if self.options.reuse && spec.proxy.is_some() {
            // So that cases which stop it need no other pods.
            match origin {
                Origin::Made => signal::always_by_label(client, AgentName::KubeProxy).await?,
                Origin::Found => {
                    signal::back_everywhere(client, nodes, AgentName::KubeProxy).await?;
                }
            }
        }
        if origin == Origin::Found && !spec.is_foreseen() {
            // The iptables were chosen when the cluster was made.
            let gone = Notify::new();
            let configured = Box::pin(self.configure(client, nodes, origin, plan, &gone));
            let known = felix_config::get(client).await?;
            if calico::bpf(&self.case.cluster.felix) {
                configured.await?;
                return renewed(client, nodes, spec).await;
            }
            let proxy = async {
                if calico::bpf(&known) {
                    // kube-proxy writes when a Felix that deletes its rules has made way.
                    gone.notified().await;
                    return renewed(client, nodes, spec).await;
                }
                // Of other modes not all is known.
                let is_iptables = spec
                    .proxy
                    .as_ref()
                    .is_some_and(|it| it.mode == ProxyMode::Iptables.as_str());
                if !is_iptables
                    || !leftovers::standing_rules::stand(nodes, AgentName::KubeProxy).await
                {
                    return renewed(client, nodes, spec).await;
                }
                // It may have been stopped when an earlier run was killed.
                let agent = AgentName::KubeProxy;
                signal::back_everywhere(client, nodes, agent).await?;
                let pod = DaemonPod::of(client, agent).await?;
                signal::rolled_out(client, pod, signal::ROLLOUT).await
            };
            return try_join(configured, proxy).await.map(drop);
        }
        iptables_backend::choose(client, nodes, spec, origin).await?;
        self.configure(client, nodes, origin, plan, &Notify::new())
            .await
    }
}

/// kube-proxy begins anew everywhere, where there is one, and writes what is missing.
async fn renewed(client: &Client, nodes: &Nodes, spec: &Spec) -> Result<(), KindError> {
    match spec.proxy {
        Some(_) => restart(client, nodes, AgentName::KubeProxy).await,
        None => Ok(()),
    }
}
