//! Readiness: every pod is Ready, every Service has its EndpointSlices, and on every node kube-proxy
//! has programmed what the API holds and Felix has begun. Judged from the API and from the node's own rules, never from
//! what a backend claims.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use chainbreak_model::{
    case::{Case, ProxyMode},
    names::NodeName,
};
use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::Pod,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    cluster::{Cluster, Command, Place},
    log::EventLog,
    output::output,
    trouble::Trouble,
    wait,
};

mod wanted;

use wanted::{tellings, wanted};

/// Distance of two looks at a node's rules.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until the cluster is ready for traffic. To be called before the first manifest is applied by
/// `apply`: what kube-proxy writes is looked at from the beginning.
pub(crate) async fn wait(
    cluster: &dyn Cluster,
    case: &Case,
    log: &EventLog,
    deadline: Instant,
    apply: impl Future<Output = Result<(), Trouble>>,
) -> Result<(), Trouble> {
    let client = cluster.api();
    let settled = async {
        apply.await?;
        wait::until("all pods are ready", deadline, async || {
            pods_ready(&client).await
        })
        .await?;
        wait::until("every service has its endpoints", deadline, async || {
            wanted(&client, case).await
        })
        .await
    };
    let nodes = cluster.places().into_iter().map(|(place, _)| place);
    let nodes = nodes.filter_map(|place| match place {
        Place::Node(node) => Some(Written {
            node,
            looks: looks(case),
            seen: RefCell::default(),
        }),
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
        Ok(())
    };
    tokio::select! {
        ready = ready => ready,
        Err(failed) = collecting => Err(failed),
    }
}

/// What shows the rules of a node's agents. The ruleset is there also while kube-proxy's table is not.
fn looks(case: &Case) -> Vec<Command> {
    let mode = case.cluster.kube_proxy.as_ref().map(|it| it.mode);
    let words = |words: &[&str]| Command::Argv(words.iter().map(|&it| it.to_owned()).collect());
    let families = case.cluster.ip_families.iter();
    let mut looks: Vec<Command> = families
        .map(|family| words(&[&format!("{}-save", family.iptables()), "-t", "nat"]))
        .collect();
    if mode == Some(ProxyMode::Nftables) {
        looks.push(words(&["nft", "list", "ruleset"]));
    }
    looks
}

/// What was ever in a node's nat table, or in kube-proxy's own. Once is enough: somebody may be deleting what kube-proxy
/// writes, which is what the case is about.
struct Written {
    node: NodeName,
    looks: Vec<Command>,
    seen: RefCell<BTreeSet<String>>,
}

impl Written {
    /// Takes in every recorded write, and looks from time to time for writes that no recorder sees.
    async fn collect(&self, cluster: &dyn Cluster, log: &EventLog) -> Result<(), Trouble> {
        let place = Place::Node(self.node.clone());
        let mut writes = log.writes();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                write = writes.recv() => {
                    // Writes that were missed are seen at the next look, or are gone already.
                    if let Ok(write) = write && write.concerns(&self.node, &["nat"]) {
                        self.take(write.committed());
                    }
                }
                _ = ticks.tick() => for look in &self.looks {
                    self.take(&output(cluster, &place, look).await?);
                },
            }
        }
    }

    fn take(&self, rules: &str) {
        self.seen
            .borrow_mut()
            .extend(rules.lines().flat_map(tellings));
    }

    fn lacks_none_of(&self, wanted: &BTreeSet<String>) -> Result<(), String> {
        let seen = self.seen.borrow();
        wanted
            .iter()
            .find(|text| !seen.contains(*text))
            .map_or(Ok(()), |missing| {
                Err(format!("no rule with `{missing}` was seen"))
            })
    }
}

async fn list<K>(client: &Client) -> Result<Vec<K>, String>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let listed = Api::<K>::all(client.clone())
        .list(&ListParams::default())
        .await;
    listed
        .map(|list| list.items)
        .map_err(|error| error.to_string())
}

async fn pods_ready(client: &Client) -> Result<(), String> {
    for deployment in list::<Deployment>(client).await? {
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
    for daemon_set in list::<DaemonSet>(client).await? {
        let status = daemon_set.status.clone().unwrap_or_default();
        if status.observed_generation.is_none()
            || status.number_ready != status.desired_number_scheduled
        {
            return Err(format!("daemonset {} is not ready", daemon_set.name_any()));
        }
    }
    for pod in list::<Pod>(client).await? {
        if wanted::phase(&pod) == "Succeeded" {
            continue;
        }
        if !wanted::is_ready(&pod) {
            return Err(format!("pod {} is not ready", pod.name_any()));
        }
    }
    Ok(())
}
