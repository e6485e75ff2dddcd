//! What a case does to an existing cluster, told before it is done: every object that the run makes or changes itself, and every command that
//! it runs there. What controllers make of its objects is theirs.

use chainbreak_engine::{backend::Doing, cluster::Place, rehearsal};
use chainbreak_model::{
    case::{AgentFault, AgentSource, Case, Fault, Step},
    names::AgentName,
};
use serde_json::Value;

use super::{pods, run_namespace, sets_felix};
use crate::{
    error::KindError,
    shared::{first_sync, nodes::Node, pods::FIND, program, signal, telling},
};

/// Of a case that is rewritten, on these nodes.
pub(super) fn doings(
    case: &Case,
    run: &str,
    nodes: &[Node],
    image: &str,
    alone: bool,
) -> Vec<Doing> {
    let mut doings = Vec::new();
    if alone {
        let how = "so that no other run is there meanwhile";
        doings.push(doing(
            "makes",
            format!("Namespace {}", run_namespace::ALONE),
            how,
        ));
    }
    let how = "in which is noted what is to be undone";
    doings.push(doing("makes", format!("Namespace {run}"), how));
    for node in nodes {
        let how = format!("on {}, {}, {image}", node.registered, pods::RIGHTS);
        doings.push(doing("makes", format!("Pod {run}/{}", node.name), how));
    }
    if sets_felix(case) {
        doings.extend(felix());
    }
    let stopped = AgentName::ALL.into_iter();
    for agent in stopped.filter(|agent| signal::has_label(case, *agent)) {
        doings.extend(labels(agent));
    }
    let objects = telling::dress(&case.manifests, &case.cluster.ip_families);
    doings.extend(
        objects
            .iter()
            .map(|object| doing("makes", named(object), "of the scenario")),
    );
    doings.extend(case.timeline.iter().flat_map(|step| of_step(step, case)));
    doings.extend(before(nodes));
    doings.extend(commands(case));
    let how = "where something went wrong: asks each node whether it is still there";
    doings.push(doing("runs", "true".to_owned(), how));
    let outside = run_namespace::outside(case).into_iter();
    doings.extend(outside.map(|it| {
        doing(
            "deletes",
            format!("{} {}", it.kind, it.name),
            "made by the case",
        )
    }));
    let how = "with all that is in them, when the case is over";
    doings.push(doing(
        "deletes",
        "every Namespace that it makes".to_owned(),
        how,
    ));
    doings
}

/// Of a case that the cluster is too small for.
pub(super) fn nothing(why: &KindError) -> Doing {
    doing("cannot", "begin".to_owned(), why.to_string())
}

fn doing(does: &'static str, what: String, how: impl Into<String>) -> Doing {
    let how = how.into();
    Doing { does, what, how }
}

fn felix() -> [Doing; 2] {
    [
        doing(
            "changes",
            "FelixConfiguration default".to_owned(),
            "as the scenario says, and back",
        ),
        doing(
            "deletes",
            format!("Pod of {} on each node of the case", AgentName::Felix),
            "so that it begins with that",
        ),
    ]
}

/// What stopping an agent takes: it runs where a label is.
fn labels(agent: AgentName) -> [Doing; 2] {
    let label = signal::label(agent);
    let how = format!("label {label}, gone after the case; without it {agent} is stopped there");
    let how_set = format!(
        "nodeSelector {label}, gone after the case: all its pods are made anew for it, twice"
    );
    [
        doing("changes", "Node, each of the cluster".to_owned(), how),
        doing("changes", format!("DaemonSet of {agent}"), how_set),
    ]
}

/// `Service test/web`.
fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", text(&metadata["name"])),
        None => format!("{kind} {}", text(&metadata["name"])),
    }
}

fn of_step(step: &Step, case: &Case) -> Vec<Doing> {
    match step {
        Step::Settle(_) | Step::At(_) | Step::Mark(_) | Step::Rollout { .. } | Step::Felix(_) => {
            Vec::new()
        }
        Step::MoveApi => vec![doing("changes", "the API's endpoint".to_owned(), "")],
        Step::Churn {
            namespace,
            deployment,
            replicas,
            ..
        } => {
            let what = format!("Deployment {namespace}/{deployment}");
            vec![doing("changes", what, format!("replicas {replicas:?}"))]
        }
        Step::Apply(objects) => {
            let objects = telling::dress(objects, &case.cluster.ip_families);
            let applied = objects
                .iter()
                .map(|it| doing("changes", named(it), "or makes it"));
            applied.collect()
        }
        Step::Delete(object) => {
            let namespace = object.namespace.iter().map(|it| format!("{it}/"));
            let place: String = namespace.collect();
            let what = format!("{} {place}{}", object.kind, object.name);
            vec![doing("deletes", what, "of the scenario")]
        }
        Step::Fault { fault, .. } => of_fault(fault, case),
    }
}

fn of_fault(fault: &Fault, case: &Case) -> Vec<Doing> {
    let Fault::Agent { agent, node, what } = fault else {
        return Vec::new();
    };
    if case.cluster.source(*agent) != Some(&AgentSource::Cluster) {
        return Vec::new();
    }
    let node = node
        .as_ref()
        .map_or("each node of the case", |node| node.as_str());
    let kill = |signal: &str| {
        let what = format!("sh -c '{}' sh … {signal}", signal::KILL);
        doing("runs", what, format!("on {node}: tells {agent}"))
    };
    match what {
        AgentFault::Restart => {
            let pod = format!("Pod of {agent} on {node}");
            let deletes = doing("deletes", pod, "so that it begins anew");
            let asks = (*agent == AgentName::KubeProxy).then(|| {
                let what = format!("bash -c '{}'", first_sync::ASK);
                doing("runs", what, format!("on {node}: whether it has synced"))
            });
            std::iter::once(deletes).chain(asks).collect()
        }
        AgentFault::Pause => {
            let [label, _] = labels(*agent);
            vec![kill("-STOP"), label, kill("-CONT")]
        }
        AgentFault::Stop | AgentFault::Recreate { .. } => vec![kill("-CONT")],
    }
}

/// What is run on nodes before the case.
fn before(nodes: &[Node]) -> Vec<Doing> {
    let on = |what: &str, how: &str| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        doing(
            "runs",
            what.to_owned(),
            format!("on {}: {how}", names.join(", ")),
        )
    };
    vec![
        on("iptables --version", "which iptables are the node's own"),
        on(
            "iptables-legacy-save -t nat",
            "which kube-proxy writes through",
        ),
        on(
            "iptables-nft-save -t nat",
            "which kube-proxy writes through",
        ),
        on(
            &format!("sh -c '{}'", pods::NOTED),
            "reads in the pod which process it is",
        ),
        on(
            &format!("sh -c '{}' sh …", program::PUT),
            "copies this program into the pod's own volume",
        ),
        on("chainbreak --version", "tries it"),
        on(
            &format!("sh -c '{FIND}' sh …"),
            "finds the process of a pod whose network a command below is to have",
        ),
        on(
            "sh",
            "reads the commands below that look, so that not each of them takes an `exec`",
        ),
    ]
}

fn commands(case: &Case) -> Vec<Doing> {
    let orders = rehearsal::orders(case).into_iter();
    let doings = orders.map(|order| {
        let at = match &order.at {
            Some(Place::Node(node)) => node.to_string(),
            Some(place) => place.to_string(),
            None => "each node of the case".to_owned(),
        };
        doing("runs", order.to_string(), format!("on {at}: {}", order.why))
    });
    doings.collect()
}
