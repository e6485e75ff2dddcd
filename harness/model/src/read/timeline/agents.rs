//! Steps that bring agents to other versions, and Felix to another dataplane.

use indexmap::IndexMap;

use super::{
    super::{
        fields::{Fields, note, text, word},
        traffic::cluster_node,
        words::{CALICO_VERSION, KUBE_PROXY_VERSION, NODE},
    },
    There, Word, needs_felix, step,
};
use crate::{
    case::{Dataplane, Fault, Step},
    diagnostic::Gathered,
    language::{Kind, Mapping, needed, optional, words},
    names::{AgentName, NodeName},
    yaml::Node,
};

/// The field of FelixConfiguration that says which dataplane it is.
pub(super) const BPF: &str = Dataplane::FIELD;

pub(super) static STEPS: [Word; 2] = [
    step(
        "upgrade",
        Kind::SomeFields(&UPGRADE),
        "Agents are replaced by these versions, one after the other in the order in which they are written, node by node, as a DaemonSet does it. What the old one has written stays.",
        |reader, entry, there| upgrade(reader.gathered, &entry.node, there),
    ),
    step(
        "switch",
        Kind::Fields(&SWITCH),
        "Felix programs with other means from now on, on every node; it restarts for that. The step is over when all have begun their work.",
        |reader, entry, there| switch(reader.gathered, &entry.node, there),
    ),
];

static UPGRADE: Mapping = Mapping {
    called: "upgrade",
    doc: "Older ones will do as well.",
    fields: &[&[
        optional("kube-proxy", KUBE_PROXY_VERSION, "The version."),
        optional("calico", CALICO_VERSION, "The version."),
        optional(
            "kubernetes",
            KUBE_PROXY_VERSION,
            "In place of `kube-proxy`: the version of the nodes, of which kube-proxy is a part. On kind each is drained and upgraded by kubeadm, minor version after minor version.",
        ),
        optional("node", NODE, "Where; every node when not given."),
    ]],
};

static SWITCH: Mapping = Mapping {
    called: "switch",
    doc: "",
    fields: &[&[needed(
        "dataplane",
        Kind::Word(|| words(&Dataplane::ALL)),
        "`bpf`: eBPF programs, `bpfEnabled` of FelixConfiguration; `iptables`: rules.",
    )]],
};

/// `upgrade:`, in the order in which its agents are written.
fn upgrade(gathered: &Gathered, node: &Node, there: &mut There<'_>) -> Option<Step> {
    let fields = Fields::of(gathered, node, &UPGRADE)?;
    let world = there.world;
    let at = fields.maybe("node", |node| {
        let name = text(gathered, node, "node")?;
        cluster_node(gathered, node, world, name)
    });
    let at = at?;
    let mut kubernetes = false;
    let mut to: IndexMap<AgentName, Option<String>> = IndexMap::new();
    for (name, written) in fields.written() {
        let whole = name == "kubernetes";
        let mut agents = AgentName::ALL.into_iter();
        let named = agents.find(|agent| agent.product() == name);
        let Some(agent) = named.or(whole.then_some(AgentName::KubeProxy)) else {
            continue;
        };
        kubernetes |= whole;
        let version = target(gathered, written, agent, at.as_ref(), there);
        if to.insert(agent, version).is_some() {
            let message = "kube-proxy is a part of kubernetes: write one of them";
            note(gathered, &written.place, message, None);
        }
    }
    let to = to.into_iter().map(|(agent, to)| Some((agent, to?)));
    let to: IndexMap<AgentName, String> = to.collect::<Option<_>>()?;
    if to.is_empty() {
        let hint = "write `upgrade: { kube-proxy: \"1.33\" }`, or calico, or kubernetes".to_owned();
        note(
            gathered,
            &node.place,
            "which agent is upgraded?",
            Some(hint),
        );
        return None;
    }
    let fault = Fault::Upgrade {
        to,
        node: at,
        kubernetes,
    };
    Some(lasting(fault))
}

/// A version that the agent is not in yet, on one of the nodes at least.
fn target(
    gathered: &Gathered,
    node: &Node,
    agent: AgentName,
    at: Option<&NodeName>,
    there: &mut There<'_>,
) -> Option<String> {
    let written = text(gathered, node, "version")?;
    (agent.kind().check_version)(written)
        .map_err(|message| note(gathered, &node.place, message, None))
        .ok()?;
    let Some(cluster) = there.world.cluster else {
        return Some(written.to_owned());
    };
    if cluster.version(agent).is_none() {
        let message = format!("the cluster has no {}", agent.product());
        note(gathered, &node.place, message, None);
    }
    if let Some(message) = (agent.kind().unplayable)(cluster, written) {
        note(gathered, &node.place, message, None);
    }
    let nodes = cluster.node_names();
    let nodes: Vec<NodeName> = nodes.filter(|it| at.is_none_or(|at| at == it)).collect();
    let is = |node: &NodeName| there.versions.get(agent, node) == Some(written);
    if nodes.iter().all(is) {
        let message = format!("{} is {written} already", agent.product());
        note(gathered, &node.place, message, None);
    }
    for node in &nodes {
        there.versions.set(agent, node, written);
    }
    Some(written.to_owned())
}

/// `switch:`
fn switch(gathered: &Gathered, node: &Node, there: &mut There<'_>) -> Option<Step> {
    let fields = Fields::of(gathered, node, &SWITCH)?;
    needs_felix(gathered, &node.place, there.world);
    let dataplane = fields.need("dataplane", |node| {
        let dataplane = word(gathered, node, "dataplane", &Dataplane::ALL)?;
        if there.bpf == Some(dataplane == Dataplane::Bpf) {
            let message = format!("Felix's dataplane is {dataplane} already");
            note(gathered, &node.place, message, None);
        }
        Some(dataplane)
    })?;
    there.bpf = Some(dataplane == Dataplane::Bpf);
    Some(lasting(Fault::Switch { dataplane }))
}

/// Nothing undoes it.
fn lasting(fault: Fault) -> Step {
    Step::Fault {
        fault,
        duration: None,
    }
}
