//! The scheduler: a node for every pod without one. Among the nodes that fit it takes the one with
//! fewest pods of the same owner, then with fewest pods, then the first.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, PodSpec};
use kube::ResourceExt;

use super::{
    placement::{is_chosen, is_open},
    pods::{has_ended, is_active, node_name},
    view::{View, controller},
    write::{Object, Verb, Writes},
};

/// The scheduler a pod asks for when it asks for none.
const DEFAULT: &str = "default-scheduler";

/// Sees to all pods.
pub(super) fn reconcile(view: &View<'_>, writes: &mut Writes) {
    let waiting = |pod: &&Pod| is_active(pod) && node_name(pod).is_none() && is_ours(pod);
    let waiting: Vec<&Pod> = view.seen.pods.iter().filter(waiting).collect();
    if waiting.is_empty() {
        return;
    }
    let mut load = Load::of(view);
    for pod in waiting {
        let Some(spec) = &pod.spec else { continue };
        match load.choose(pod, spec) {
            Some(node) => {
                let mut pod = pod.clone();
                pod.spec.get_or_insert_default().node_name = Some(node);
                writes.push(Verb::Create, Object::Binding(Box::new(pod)));
            }
            None => refuse(pod, writes),
        }
    }
}

fn is_ours(pod: &Pod) -> bool {
    let asked = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduler_name.as_deref());
    asked.is_none_or(|name| name.is_empty() || name == DEFAULT)
}

/// How many pods are where.
struct Load<'a> {
    /// In the order in which people count: n2 before n10.
    nodes: Vec<&'a Node>,
    pods: BTreeMap<String, usize>,
    kin: BTreeMap<(String, String), usize>,
}

impl<'a> Load<'a> {
    fn of(view: &View<'a>) -> Self {
        let mut nodes: Vec<&Node> = view.seen.nodes.iter().collect();
        nodes.sort_by_cached_key(|node| (node.name_any().len(), node.name_any()));
        let mut load = Self {
            nodes,
            pods: BTreeMap::new(),
            kin: BTreeMap::new(),
        };
        for pod in view.seen.pods.iter().filter(|pod| !has_ended(pod)) {
            if let Some(node) = node_name(pod) {
                load.add(pod, node);
            }
        }
        load
    }

    fn add(&mut self, pod: &Pod, node: &str) {
        *self.pods.entry(node.to_owned()).or_default() += 1;
        // Those that are leaving make room for their successors.
        if let Some(owner) = controller(pod).filter(|_| is_active(pod)) {
            let kin = self
                .kin
                .entry((owner.to_owned(), node.to_owned()))
                .or_default();
            *kin += 1;
        }
    }

    fn choose(&mut self, pod: &Pod, spec: &PodSpec) -> Option<String> {
        let owner = controller(pod).unwrap_or_default();
        let fits = |node: &&&Node| is_chosen(spec, node) && is_open(spec, node);
        let load = |node: &&&Node| {
            let name = node.name_any();
            let pods = self.pods.get(&name).copied().unwrap_or(0);
            let kin = self
                .kin
                .get(&(owner.to_owned(), name))
                .copied()
                .unwrap_or(0);
            (kin, pods)
        };
        let node = self.nodes.iter().filter(fits).min_by_key(load)?.name_any();
        self.add(pod, &node);
        Some(node)
    }
}

/// Says once that there is no node for the pod.
fn refuse(pod: &Pod, writes: &mut Writes) {
    let status = pod.status.clone().unwrap_or_default();
    let condition = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(
            "no node has the labels it asks for and no taint it does not tolerate".to_owned(),
        ),
        ..PodCondition::default()
    };
    let mut conditions = status.conditions.clone().unwrap_or_default();
    if conditions.contains(&condition) {
        return;
    }
    conditions.retain(|known| known.type_ != condition.type_);
    conditions.push(condition);
    let mut pod = pod.clone();
    pod.status.get_or_insert_default().conditions = Some(conditions);
    writes.push(Verb::Status, pod);
}
