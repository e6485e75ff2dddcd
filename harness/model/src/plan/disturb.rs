//! What a case would do to a whole cluster, which is nobody's to do to a cluster that others use.

use serde_json::Value;

use crate::case::{AgentSource, Case, Step};

/// Why the case does not run on that cluster without leave; `None` when it keeps to its own namespaces.
pub(super) fn refused(case: &Case, cluster: &str) -> Option<String> {
    let mut disruptions = disruptions(case);
    disruptions.dedup();
    (!disruptions.is_empty()).then(|| {
        let disruptions = disruptions.join(", ");
        format!("it {disruptions}, which concerns all of the cluster: --allow-disruption {cluster}")
    })
}

fn disruptions(case: &Case) -> Vec<&'static str> {
    let cluster = &case.cluster;
    let model = cluster.calico.as_ref().map(|it| &it.source) == Some(&AgentSource::Model);
    let settled = [
        (!cluster.felix.is_empty(), "sets FelixConfiguration"),
        (model, "runs Felix's model on the nodes"),
    ];
    let settled = settled.into_iter().filter(|(does, _)| *does);
    let settled = settled.map(|(_, disruption)| disruption);
    let objects = case.manifests.iter().filter_map(object);
    let steps = case.timeline.iter().flat_map(step);
    settled.chain(objects).chain(steps).collect()
}

fn step(step: &Step) -> Vec<&'static str> {
    match step {
        Step::Settle(_)
        | Step::At(_)
        | Step::Mark(_)
        | Step::Churn { .. }
        | Step::Rollout { .. } => Vec::new(),
        Step::Felix(_) => vec!["sets FelixConfiguration"],
        Step::MoveApi => vec!["moves the API's endpoint"],
        Step::Apply(objects) => objects.iter().filter_map(object).collect(),
        Step::Delete(object) => {
            let shared = object.namespace.is_none() && object.kind != "Namespace";
            let disruption = "deletes objects outside namespaces";
            shared.then_some(disruption).into_iter().collect()
        }
        Step::Fault { fault, .. } => fault.disruption().into_iter().collect(),
    }
}

/// What an object is to others than its own namespace.
fn object(object: &Value) -> Option<&'static str> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let namespaced = [
        "ConfigMap",
        "DaemonSet",
        "Deployment",
        "Endpoints",
        "EndpointSlice",
        "Namespace",
        "NetworkPolicy",
        "Pod",
        "Service",
        "ServiceAccount",
    ];
    if !namespaced.contains(&kind) {
        return Some("makes objects that may be outside namespaces");
    }
    let pod = match kind {
        "Pod" => &object["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    let host = ["hostNetwork", "hostPID", "hostIPC"].iter();
    let mut host = host.map(|field| pod[field] == true);
    let lists = ["initContainers", "containers"].map(|list| pod[list].as_array());
    let mut containers = lists.into_iter().flatten().flatten();
    let privileged = containers.any(|it| it["securityContext"]["privileged"] == true);
    (privileged || host.any(|it| it)).then_some("has pods with the nodes' rights or network")
}
