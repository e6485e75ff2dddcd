//! Readiness: every pod is Ready, every Service has its EndpointSlices, and on every node kube-proxy
//! has programmed what the API holds. Judged from the API and from the node's own rules, never from
//! what a backend claims.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use chainbreak_model::{case::Case, names::NodeName};
use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    cluster::{Cluster, Command, Place},
    log::EventLog,
    observe,
    run::{Trouble, output},
    wait,
};

/// Distance of two looks at a node's rules without a recorded write.
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
        wait::until("every service has endpoints", deadline, async || {
            programmed(&client).await
        })
        .await
    };
    if case.cluster.kube_proxy.is_none() {
        return settled.await.map(drop);
    }
    let nodes = cluster.places().into_iter().map(|(place, _)| place);
    let nodes = nodes.filter_map(|place| match place {
        Place::Node(node) => Some(Written {
            node,
            seen: RefCell::default(),
        }),
        Place::Pod { .. } | Place::Host(_) => None,
    });
    let nodes: Vec<Written> = nodes.collect();
    let collecting = try_join_all(nodes.iter().map(|node| node.collect(cluster, log)));
    let ready = async {
        let wanted = settled.await?;
        for node in &nodes {
            let what = format!("kube-proxy has programmed node {}", node.node);
            wait::until(&what, deadline, async || node.lacks_none_of(&wanted)).await?;
        }
        Ok(())
    };
    tokio::select! {
        ready = ready => ready,
        failed = collecting => failed.map(drop),
    }
}

/// What was ever seen in a node's nat table. Seen once is enough: somebody may be deleting what
/// kube-proxy writes, which is what the case is about.
struct Written {
    node: NodeName,
    seen: RefCell<BTreeSet<String>>,
}

impl Written {
    /// Looks after every recorded write, and from time to time for writes that no recorder sees.
    async fn collect(&self, cluster: &dyn Cluster, log: &EventLog) -> Result<(), Trouble> {
        let save = Command::Argv(vec!["iptables-save".into(), "-t".into(), "nat".into()]);
        let place = Place::Node(self.node.clone());
        let mut writes = log.writes();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = observe::written(&mut writes, &self.node, &["nat"]) => ticks.reset(),
            }
            let rules = output(cluster, &place, &save).await?;
            self.seen
                .borrow_mut()
                .extend(rules.lines().filter_map(telling));
        }
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

/// The part of a rule that says that kube-proxy knows a cluster IP or an endpoint.
fn telling(rule: &str) -> Option<String> {
    let mut words = rule
        .split(' ')
        .skip_while(|word| !matches!(*word, "--to-destination" | "-d"));
    let (option, value) = (words.next()?, words.next()?);
    Some(format!(
        "{option} {}",
        value.trim_end_matches("/32").trim_end_matches("/128")
    ))
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
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let ready = |name: &str| {
            conditions.is_some_and(|all| all.iter().any(|c| c.type_ == name && c.status == "True"))
        };
        if !ready("Ready") {
            return Err(format!("pod {} is not ready", pod.name_any()));
        }
    }
    Ok(())
}

/// What each node's nat table must contain: a match on each cluster IP that has endpoints, and a DNAT
/// to each of them.
async fn programmed(client: &Client) -> Result<BTreeSet<String>, String> {
    let slices = list::<EndpointSlice>(client).await?;
    let mut wanted = BTreeSet::new();
    for service in list::<Service>(client).await? {
        let Some(spec) = service.spec.as_ref().filter(|spec| spec.selector.is_some()) else {
            continue;
        };
        let Some(cluster_ip) = spec.cluster_ip.as_deref().filter(|ip| *ip != "None") else {
            continue;
        };
        let targets = targets(&service, &slices);
        if targets.is_empty() {
            return Err(format!(
                "service {} has no ready endpoint",
                service.name_any()
            ));
        }
        wanted.insert(format!("-d {cluster_ip}"));
        wanted.extend(
            targets
                .iter()
                .map(|target| format!("--to-destination {target}")),
        );
    }
    Ok(wanted)
}

fn targets(service: &Service, slices: &[EndpointSlice]) -> BTreeSet<String> {
    let mine = |slice: &&EndpointSlice| {
        slice.namespace() == service.namespace()
            && slice.labels().get("kubernetes.io/service-name") == Some(&service.name_any())
    };
    let mut targets = BTreeSet::new();
    for slice in slices.iter().filter(mine) {
        let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
        for port in ports {
            let ready = slice.endpoints.iter().filter(|endpoint| {
                endpoint
                    .conditions
                    .as_ref()
                    .and_then(|c| c.ready)
                    .unwrap_or(true)
            });
            targets.extend(ready.flat_map(|endpoint| {
                endpoint
                    .addresses
                    .iter()
                    .map(move |address| format!("{address}:{port}"))
            }));
        }
    }
    targets
}
