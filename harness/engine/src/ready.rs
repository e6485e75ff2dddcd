//! Readiness: every pod is Ready, every Service has its EndpointSlices, and on every node kube-proxy
//! has programmed what the API holds and Felix has begun. Judged from the API and from the node's own rules, never from
//! what a backend claims.

use std::time::Duration;

use chainbreak_model::case::{Case, IpFamily};
use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::Pod,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::time::{Instant, timeout};

use crate::{
    cluster::{Cluster, Command, Place},
    evidence,
    infra_error::InfraError,
    log::EventLog,
    output::output,
    wait,
};

mod wanted;
mod written;

use wanted::wanted;
use written::Written;
pub(crate) use written::watch;

/// What the API may take to say why pods are not ready.
const EVIDENCE: Duration = Duration::from_secs(10);
/// Lists what IPVS balances, of both families.
pub(crate) const IPVS: [&str; 2] = ["cat", "/proc/net/ip_vs"];

/// Waits until the cluster is ready for traffic. To be called before the first manifest is applied by
/// `apply`: what kube-proxy writes is looked at from the beginning.
pub(crate) async fn wait(
    cluster: &dyn Cluster,
    case: &Case,
    log: &EventLog,
    deadline: Instant,
    apply: impl Future<Output = Result<(), InfraError>>,
) -> Result<(), InfraError> {
    let objects = Objects {
        client: cluster.api(),
        namespaces: cluster.namespaces(),
    };
    let settled = async {
        apply.await?;
        let pods = async || pods_ready(&objects).await;
        if let Err(trouble) = wait::until("all pods are ready", deadline, pods).await {
            return Err(trouble.with(&objects.evidence().await));
        }
        wait::until("every service has its endpoints", deadline, async || {
            wanted(&objects, case).await
        })
        .await
    };
    let nodes = cluster.places().into_iter().map(|(place, _)| place);
    let nodes = nodes.filter_map(|place| match place {
        Place::Node(node) => Some(Written::on(node, cluster, case)),
        Place::Pod { .. } | Place::Host(_) => None,
    });
    let nodes: Vec<Written> = nodes.collect();
    let collecting = try_join_all(nodes.iter().map(|node| node.collect(cluster, log)));
    let ready = async {
        let wanted = settled.await?;
        for node in &nodes {
            let what = format!("the agents have programmed node {}", node.node);
            let waited = wait::until(&what, deadline, async || node.lacks_none_of(&wanted)).await;
            waited.map_err(|trouble| trouble.with(&cluster.account(&node.node)))?;
        }
        if case.cluster.ip_families.contains(&IpFamily::V6) {
            let settled = nodes.iter().map(async |node| {
                let what = format!("node {} may use its addresses of IPv6", node.node);
                let place = Place::Node(node.node.clone());
                let look = || addresses_settled(cluster, &place);
                wait::until(&what, deadline, look).await
            });
            try_join_all(settled).await?;
        }
        Ok(())
    };
    tokio::select! {
        ready = ready => ready,
        Err(failed) = collecting => Err(failed),
    }
}

/// Whether all addresses of a node are its own. Until duplicate address detection has ended, some two seconds after a pod's interface came up, a
/// node asks nobody for a neighbour there, and what goes to the pod is lost, which may be ready long before (Linux, `ndisc_send_ns`).
async fn addresses_settled(cluster: &dyn Cluster, place: &Place) -> Result<(), String> {
    let list = ["ip", "-6", "-o", "address", "show", "tentative"];
    let listed = output(
        cluster,
        place,
        &Command::Argv(list.map(str::to_owned).to_vec()),
    )
    .await;
    match tentative(&listed.map_err(|error| error.to_string())?) {
        Some(line) => Err(format!("one is still tentative: {line}")),
        None => Ok(()),
    }
}

/// The first line of an address that is still looked for. One that somebody else has stays tentative.
fn tentative(listed: &str) -> Option<&str> {
    let mut lines = listed.lines().map(str::trim);
    lines.find(|line| !line.is_empty() && !line.contains("dadfailed"))
}

/// The objects that readiness is about.
struct Objects {
    client: Client,
    /// Only of these namespaces; all without it.
    namespaces: Option<Vec<String>>,
}

impl Objects {
    async fn list<K>(&self) -> Result<Vec<K>, String>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let all = Api::<K>::all(self.client.clone());
        let listed = all.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        Ok(self.ours(listed.items))
    }

    /// Of the pods that are not ready.
    async fn evidence(&self) -> String {
        let pods = self.list::<Pod>().await.unwrap_or_default();
        let said = timeout(EVIDENCE, evidence::of_pods(&self.client, &pods)).await;
        said.unwrap_or_default()
    }

    fn ours<K: ResourceExt>(&self, mut objects: Vec<K>) -> Vec<K> {
        if let Some(namespaces) = &self.namespaces {
            let is_ours = |object: &K| {
                object
                    .namespace()
                    .is_some_and(|it| namespaces.contains(&it))
            };
            objects.retain(is_ours);
        }
        objects
    }
}

async fn pods_ready(objects: &Objects) -> Result<(), String> {
    for deployment in objects.list::<Deployment>().await? {
        let wanted = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        let ready = deployment
            .status
            .as_ref()
            .and_then(|s| s.ready_replicas)
            .unwrap_or(0);
        if ready != wanted {
            return Err(format!(
                "deployment {}: {ready} of {wanted} pods ready",
                deployment.name_any()
            ));
        }
    }
    for daemon_set in objects.list::<DaemonSet>().await? {
        let status = daemon_set.status.clone().unwrap_or_default();
        if status.observed_generation.is_none()
            || status.number_ready != status.desired_number_scheduled
        {
            return Err(format!("daemonset {} is not ready", daemon_set.name_any()));
        }
    }
    for pod in objects.list::<Pod>().await? {
        if evidence::phase(&pod) == "Succeeded" {
            continue;
        }
        if !wanted::is_ready(&pod) {
            return Err(format!("pod {} is not ready", pod.name_any()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_looked_for_is_waited_for_and_one_that_somebody_else_has_is_not() {
        let failed = "3: veth0    inet6 fd00::1/64 scope global dadfailed tentative \\       valid_lft forever\n";
        let sought =
            "7: veth1    inet6 fe80::1/64 scope link tentative \\       valid_lft forever\n";
        assert_eq!(tentative(""), None);
        assert_eq!(tentative(failed), None);
        assert_eq!(tentative(&[failed, sought].concat()), Some(sought.trim()));
    }
}
