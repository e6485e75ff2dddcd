//! Replica sets: as many pods of one template as are wanted.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;

use super::{
    deployment::some,
    name_generator::NameGenerator,
    pods::{count, from_template, is_active, is_available, is_ready, node_name},
    seen::key,
    view::View,
    write::{Verb, Writes},
};

/// Says in numbers how dear a pod is: those that cost less go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sees to all replica sets.
pub(super) fn reconcile(view: &View<'_>, generator: &mut NameGenerator, writes: &mut Writes) {
    for set in view.seen.replica_sets.iter() {
        let Some(spec) = &set.spec else { continue };
        if set.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let pods = view.pods_of(set.metadata.uid.as_deref().unwrap_or(""));
        let active: Vec<&Pod> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        for _ in active.len()..wanted {
            if let Some(pod) = born(set, spec, view, generator) {
                writes.push(Verb::Create, pod);
            }
        }
        let many = active.len().saturating_sub(wanted);
        for pod in in_order_of_leaving(active, generator)
            .into_iter()
            .take(many)
        {
            writes.push(Verb::Delete, pod.clone());
        }
        report(set, pods, writes);
    }
}

fn born(
    set: &ReplicaSet,
    spec: &ReplicaSetSpec,
    view: &View<'_>,
    generator: &mut NameGenerator,
) -> Option<Pod> {
    let template = spec.template.as_ref()?;
    let name = generator.name(&key(set), |key| view.seen.pods.has(key));
    Some(from_template(set, template, name))
}

/// Who goes first when there are too many, as in Kubernetes: who has no node, who is not ready, who
/// costs least, who shares a node with most others, who is youngest.
fn in_order_of_leaving<'a>(pods: Vec<&'a Pod>, generator: &NameGenerator) -> Vec<&'a Pod> {
    let mut on_node: BTreeMap<String, usize> = BTreeMap::new();
    for node in pods.iter().filter_map(|pod| node_name(pod)) {
        *on_node.entry(node.to_owned()).or_default() += 1;
    }
    let mut sorted = pods;
    sorted.sort_by_cached_key(|pod| {
        let node = node_name(pod);
        let company = node.and_then(|node| on_node.get(node)).copied();
        let born = pod
            .metadata
            .creation_timestamp
            .clone()
            .map(|Time(time)| time);
        (
            node.is_some(),
            is_ready(pod),
            cost(pod),
            Reverse(company),
            Reverse((generator.order(&key(*pod)), born, pod.name_any())),
        )
    });
    sorted
}

fn cost(pod: &Pod) -> i32 {
    let text = pod.annotations().get(DELETION_COST);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn report(set: &ReplicaSet, pods: &[&Pod], writes: &mut Writes) {
    let old = set.status.clone().unwrap_or_default();
    let replicas = count(pods, is_active);
    let status = ReplicaSetStatus {
        replicas,
        fully_labeled_replicas: some(replicas),
        ready_replicas: some(count(pods, |pod| is_active(pod) && is_ready(pod))),
        available_replicas: some(count(pods, is_available)),
        observed_generation: set.metadata.generation,
        ..old.clone()
    };
    if status != old {
        let mut set = set.clone();
        set.status = Some(status);
        writes.push(Verb::Status, set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::{placed, pod, ready};

    fn leaving(pods: &[Pod]) -> Vec<String> {
        let generator = NameGenerator::new(0);
        let sorted = in_order_of_leaving(pods.iter().collect(), &generator);
        sorted.iter().map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn what_serves_least_goes_first() {
        let homeless = pod("homeless");
        let unready = placed(pod("unready"), "n1");
        let mut cheap = ready(placed(pod("cheap"), "n2"), "10.20.2.2");
        cheap
            .annotations_mut()
            .insert(DELETION_COST.to_owned(), "-1".to_owned());
        let crowded = ready(placed(pod("crowded"), "n1"), "10.20.1.2");
        let lonely = ready(placed(pod("lonely"), "n3"), "10.20.3.2");
        let all = [lonely, crowded, cheap, unready, homeless];
        assert_eq!(
            leaving(&all),
            ["homeless", "unready", "cheap", "crowded", "lonely"]
        );
    }

    #[test]
    fn the_youngest_goes_first_among_equals() {
        let mut generator = NameGenerator::new(3);
        let owner = (String::new(), "nginx".to_owned());
        let names: Vec<String> = (0..5).map(|_| generator.name(&owner, |_| false)).collect();
        let mut pods: Vec<Pod> = names.iter().map(|name| pod(name)).collect();
        for pod in &mut pods {
            pod.metadata.namespace = None;
        }
        let sorted = in_order_of_leaving(pods.iter().collect(), &generator);
        let sorted: Vec<String> = sorted.iter().map(|pod| pod.name_any()).collect();
        assert_eq!(sorted, names.into_iter().rev().collect::<Vec<_>>());
    }
}
