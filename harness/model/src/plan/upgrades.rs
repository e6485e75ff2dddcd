//! Upgrades that a case cannot make, as its matrix and the chosen agents have it.

use indexmap::IndexMap;

use crate::{
    case::{AgentSource, Case, Fault, Step, Versions},
    names::{AgentName, NodeName},
};

/// The upgrades of a timeline: agents with their new versions, and where.
pub(super) fn all(
    case: &Case,
) -> impl Iterator<Item = (&IndexMap<AgentName, String>, Option<&NodeName>)> {
    case.timeline.iter().filter_map(|step| match step {
        Step::Fault {
            fault: Fault::Upgrade { to, node, .. },
            ..
        } => Some((to, node.as_ref())),
        _ => None,
    })
}

/// The versions that kube-proxy is upgraded to, and whether its nodes are with it.
pub(super) fn of_kubernetes(case: &Case) -> impl Iterator<Item = (&str, bool)> {
    case.timeline.iter().filter_map(|step| match step {
        Step::Fault {
            fault: Fault::Upgrade { to, kubernetes, .. },
            ..
        } => Some((to.get(&AgentName::KubeProxy)?.as_str(), *kubernetes)),
        _ => None,
    })
}

/// Why the case cannot make one of its upgrades.
pub(super) fn cannot_be(case: &Case) -> Vec<String> {
    let mut versions = Versions::of(&case.cluster);
    let mut why = Vec::new();
    for (to, node) in all(case) {
        for (agent, version) in to {
            why.extend(beyond(case, *agent, version));
            let nodes = case.cluster.node_names();
            let nodes = nodes.filter(|it| node.is_none_or(|node| node == it));
            let mut changes = false;
            for node in nodes {
                changes |= versions.get(*agent, &node) != Some(version);
                versions.set(*agent, &node, version);
            }
            if !changes {
                why.push(format!(
                    "upgrades {} to {version}, which it is already",
                    agent.product()
                ));
            }
        }
    }
    why
}

fn beyond(case: &Case, agent: AgentName, version: &str) -> Option<String> {
    let product = agent.product();
    match case.cluster.source(agent) {
        None => Some(format!("upgrades {product}, which is not there")),
        Some(AgentSource::Path(_)) => Some(format!(
            "upgrades {product} to {version}, this is a real one, of which only one version is given"
        )),
        Some(AgentSource::Image(_)) => Some(format!(
            "upgrades {product} to {version}, this is a real one in the root of its image, which has only that version"
        )),
        Some(AgentSource::Model | AgentSource::Cluster | AgentSource::Build) => {
            (agent.kind().unplayable)(&case.cluster, version)
        }
    }
}
