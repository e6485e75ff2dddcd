//! `timeline:`.

use std::{collections::BTreeSet, time::Duration};

use super::{
    cluster,
    fields::{Fields, duration, entries, items, note, number, text, word},
    name,
    traffic::World,
    words,
};
use crate::{
    case::{AgentSource, ClusterSpec, Step},
    complaint::Gathered,
    names::AgentName,
    nearest::suggest,
    yaml::{Entry, Node},
};

/// A step takes at most an hour: longer is a mistake more often than a wish.
const STEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));
/// As many as a large Deployment has.
const REPLICAS: (u64, u64) = (0, 1000);

/// Reads `timeline:`.
pub(super) fn read(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Vec<Step>> {
    let items = items(gathered, node, "timeline")?;
    if items.is_empty() {
        let message = "the timeline needs a step: promises are judged while it runs";
        note(
            gathered,
            &node.place,
            message,
            Some("write `- settle: 5s`".into()),
        );
    }
    let steps: Vec<Option<Step>> = items
        .iter()
        .map(|item| step(gathered, item, world))
        .collect();
    let steps: Option<Vec<Step>> = steps.into_iter().collect();
    distinct_marks(gathered, items, steps.as_deref()?);
    steps
}

/// A mark is one moment.
fn distinct_marks(gathered: &Gathered, items: &[Node], steps: &[Step]) {
    let mut known = BTreeSet::new();
    for (item, step) in items.iter().zip(steps) {
        if let Step::Mark(name) = step
            && !known.insert(name)
        {
            let message = format!("{:?} is marked already", name.as_str());
            note(gathered, &item.place, message, None);
        }
    }
}

fn step(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Step> {
    let (word, entry) = only_entry(gathered, node, "a step of the timeline", words::STEPS)?;
    match word {
        "settle" => duration(gathered, &entry.node, "settle", STEP).map(Step::Settle),
        "mark" => name(gathered, &entry.node, "a mark").map(|name| Step::Mark(name.into())),
        "churn" => churn(gathered, &entry.node, world),
        "slow" => slow(gathered, &entry.node, world),
        _ => {
            if world
                .cluster
                .is_some_and(|cluster| cluster.calico.is_none())
            {
                note(
                    gathered,
                    &entry.key,
                    "there is no Felix without calico",
                    None,
                );
            }
            cluster::felix_spec(gathered, &entry.node).map(Step::Felix)
        }
    }
}

/// The one entry of a mapping that says by its key what it is.
pub(super) fn only_entry<'a>(
    gathered: &Gathered,
    node: &'a Node,
    what: &str,
    known: &[&'static str],
) -> Option<(&'static str, &'a Entry)> {
    let entries = entries(gathered, node, what)?;
    let (Some((word, entry)), None) = (entries.first(), entries.get_index(1)) else {
        let second = entries
            .get_index(1)
            .map_or(&node.place, |(_, entry)| &entry.key);
        let message = format!("{what} is exactly one of {}", known.join(", "));
        note(gathered, second, message, None);
        return None;
    };
    let found = known.iter().find(|known| *known == word);
    if found.is_none() {
        let hint = suggest(word, known.iter().copied());
        note(
            gathered,
            &entry.key,
            format!("{what} cannot be {word:?}"),
            hint,
        );
    }
    Some((*found?, entry))
}

fn churn(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Step> {
    let fields = Fields::of(gathered, node, "churn", words::CHURN)?;
    let deployment = fields.need("deployment", |node| deployment(gathered, node, world));
    let replicas = fields.need("replicas", |node| {
        let items = items(gathered, node, "replicas")?;
        if items.is_empty() {
            note(gathered, &node.place, "churn needs a replica count", None);
        }
        let counts: Vec<Option<u32>> = items
            .iter()
            .map(|item| number(gathered, item, "replicas", REPLICAS))
            .collect();
        counts.into_iter().collect::<Option<Vec<u32>>>()
    });
    let every = fields.need("every", |node| duration(gathered, node, "every", STEP));
    let length = fields.need("for", |node| duration(gathered, node, "for", STEP));
    let (namespace, deployment) = deployment?;
    Some(Step::Churn {
        namespace,
        deployment,
        replicas: replicas?,
        every: every?,
        duration: length?,
    })
}

fn slow(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Step> {
    let fields = Fields::of(gathered, node, "slow", words::SLOW)?;
    let agents = AgentName::ALL.map(|agent| (agent.as_str(), agent));
    let agent = fields.need("agent", |node| {
        let agent = word(gathered, node, "agent", &agents)?;
        let absent = |cluster: &ClusterSpec| cluster.version(agent).is_none();
        if world.cluster.is_some_and(absent) {
            let message = format!("the cluster has no {agent}");
            note(gathered, &node.place, message, None);
        }
        Some(agent)
    });
    let commands: Vec<_> = words::COMMANDS.iter().map(|name| (*name, *name)).collect();
    let command = fields.need("command", |node| {
        let command = word(gathered, node, "command", &commands)?;
        if command == words::TAKING_CHANGES && !has_the_point(world, agent) {
            let message = "taking-changes is a point in kube-proxy's model, and nowhere else";
            note(gathered, &node.place, message, None);
        }
        Some(command)
    });
    let by = fields.need("by", |node| duration(gathered, node, "by", STEP));
    let length = fields.need("for", |node| duration(gathered, node, "for", STEP));
    Some(Step::Slow {
        agent: agent?,
        command: command?.to_owned(),
        by: by?,
        duration: length?,
    })
}

/// Whether the agent is the model in which changes are taken over in two steps.
fn has_the_point(world: &World<'_>, agent: Option<AgentName>) -> bool {
    let modelled = |cluster: &ClusterSpec| {
        let kube_proxy = cluster.kube_proxy.as_ref();
        kube_proxy.is_none_or(|spec| spec.source == AgentSource::Model)
    };
    agent.is_none_or(|agent| agent == AgentName::KubeProxy) && world.cluster.is_none_or(modelled)
}

fn deployment(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<(String, String)> {
    let written = text(gathered, node, "deployment")?;
    let Some((namespace, name)) = written.split_once('/') else {
        let hint = format!("write NAMESPACE/NAME, as in default/{written}");
        note(
            gathered,
            &node.place,
            format!("{written:?} names no Deployment"),
            Some(hint),
        );
        return None;
    };
    if !world.manifests.has("Deployment", namespace, name) && world.manifests.is_complete() {
        let known = world.manifests.names("Deployment");
        let hint = suggest(written, known.iter().map(String::as_str));
        note(
            gathered,
            &node.place,
            format!("unknown deployment {written:?}"),
            hint,
        );
        return None;
    }
    Some((namespace.to_owned(), name.to_owned()))
}
