//! Readiness: every pod is Ready, every Service has its EndpointSlices, and on every node kube-proxy
//! has programmed what the API holds. Judged from the API and from the node's own rules, never from
//! what a backend claims.

use std::collections::BTreeSet;

use chainbreak_model::case::Case;
use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::time::Instant;

use crate::{
    cluster::{Cluster, Command, Place},
    run::{Trouble, output},
    wait,
};

/// Waits until the cluster is ready for traffic.
pub(crate) async fn wait(
    cluster: &dyn Cluster,
    case: &Case,
    deadline: Instant,
) -> Result<(), Trouble> {
    let client = cluster.api();
    wait::until("all pods are ready", deadline, async || {
        pods_ready(&client).await
    })
    .await?;
    if case.cluster.kube_proxy.is_none() {
        return Ok(());
    }
    let wanted = wait::until("every service has endpoints", deadline, async || {
        programmed(&client).await
    })
    .await?;
    let nodes = cluster.places().into_iter().map(|(place, _)| place);
    let nodes = nodes.filter(|place| matches!(place, Place::Node(_)));
    let programmed = nodes.map(|node| programmed_on(cluster, node, wanted.clone(), deadline));
    try_join_all(programmed).await.map(drop)
}

/// Waits until kube-proxy has written everything wanted on a node. Each rule needs to be seen once:
/// somebody may be deleting what it writes, which is what the case is about.
async fn programmed_on(
    cluster: &dyn Cluster,
    node: Place,
    mut wanted: BTreeSet<String>,
    deadline: Instant,
) -> Result<(), Trouble> {
    let what = format!("kube-proxy has programmed {node}");
    let save = Command::Argv(vec!["iptables-save".into(), "-t".into(), "nat".into()]);
    wait::until(&what, deadline, async || {
        let rules = output(cluster, &node, &save)
            .await
            .map_err(|error| error.to_string())?;
        wanted.retain(|text| !rules.contains(text.as_str()));
        match wanted.first() {
            Some(missing) => Err(format!("no rule with `{missing}` was seen")),
            None => Ok(()),
        }
    })
    .await
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
        wanted.insert(format!("-d {cluster_ip}/"));
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
