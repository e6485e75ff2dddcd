//! Daemon sets: one pod on every node that fits, whatever its taints.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus},
    core::v1::{Node, Pod, Toleration},
};
use kube::ResourceExt;

use super::{
    deployment::some,
    name_generator::{NameGenerator, template_hash},
    placement::is_chosen,
    pods::{from_template, has_ended, is_active, is_available, is_ready, mark, node_name},
    rollout::share,
    seen::{key, uid},
    view::View,
    write::{Verb, Writes},
};

/// The label that tells pods of different templates apart.
const HASH: &str = "controller-revision-hash";

/// Sees to all daemon sets.
pub(super) fn reconcile(view: &View<'_>, generator: &mut NameGenerator, writes: &mut Writes) {
    for set in view.seen.daemon_sets.iter() {
        let Some(spec) = &set.spec else { continue };
        if set.metadata.deletion_timestamp.is_none() {
            let fleet = Fleet::of(view, set, spec);
            fleet.fill(view, generator, writes);
            fleet.renew(writes);
            fleet.report(writes);
        }
    }
}

/// A daemon set and its pods by node.
struct Fleet<'a> {
    set: &'a DaemonSet,
    spec: &'a DaemonSetSpec,
    hash: String,
    /// Every node that is to have a pod, and the pods it has.
    berths: BTreeMap<String, Vec<&'a Pod>>,
    /// Pods where none is to be.
    astray: Vec<&'a Pod>,
}

impl<'a> Fleet<'a> {
    fn of(view: &View<'a>, set: &'a DaemonSet, spec: &'a DaemonSetSpec) -> Self {
        let chosen = |node: &&Node| {
            let pod = spec.template.spec.as_ref();
            pod.is_some_and(|pod| is_chosen(pod, node))
        };
        let nodes = view.seen.nodes.iter().filter(chosen);
        let mut berths: BTreeMap<_, Vec<&Pod>> =
            nodes.map(|node| (node.name_any(), Vec::new())).collect();
        let mut astray = Vec::new();
        for pod in view.pods_of(&uid(set)) {
            match node_name(pod).and_then(|node| berths.get_mut(node)) {
                Some(berth) => berth.push(pod),
                None => astray.push(*pod),
            }
        }
        Self {
            set,
            spec,
            hash: template_hash(&spec.template),
            berths,
            astray,
        }
    }

    /// A pod for every node without one. One that is on its way out has to be gone before.
    fn fill(&self, view: &View<'_>, generator: &mut NameGenerator, writes: &mut Writes) {
        for (node, pods) in &self.berths {
            if pods.is_empty() {
                let name = generator.name(&key(self.set), |key| view.seen.pods.has(key));
                writes.push(Verb::Create, self.born(name, node));
            }
            let surplus = pods.iter().filter(|pod| is_active(pod)).skip(1);
            let ended = pods.iter().filter(|pod| has_ended(pod));
            for pod in surplus.chain(ended) {
                self.dismiss(pod, writes);
            }
        }
        for pod in &self.astray {
            self.dismiss(pod, writes);
        }
    }

    fn born(&self, name: String, node: &str) -> Pod {
        let mut pod = from_template(self.set, &self.spec.template, name);
        mark(&mut pod.metadata, HASH, &self.hash);
        let spec = pod.spec.get_or_insert_default();
        spec.node_name = Some(node.to_owned());
        let everything = Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        };
        spec.tolerations.get_or_insert_default().push(everything);
        pod
    }

    #[expect(clippy::unused_self, reason = "it is the set that dismisses its pods")]
    fn dismiss(&self, pod: &Pod, writes: &mut Writes) {
        if pod.metadata.deletion_timestamp.is_none() {
            writes.push(Verb::Delete, pod.clone());
        }
    }

    /// Deletes pods of an older template, as many at a time as may be missing.
    fn renew(&self, writes: &mut Writes) {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let allowed = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let nodes = i32::try_from(self.berths.len()).unwrap_or(i32::MAX);
        let allowed = allowed.map_or(1, |allowed| share(Some(allowed), nodes, 99).max(1));
        let mut left = allowed - (nodes - self.berths_with(is_available));
        let old = self.berths.values().filter_map(|pods| self.serving(pods));
        for pod in old.filter(|pod| !self.is_current(pod)) {
            if is_available(pod) {
                if left <= 0 {
                    continue;
                }
                left -= 1;
            }
            self.dismiss(pod, writes);
        }
    }

    /// The pod that stands for a node.
    fn serving(&self, pods: &[&'a Pod]) -> Option<&'a Pod> {
        let current = pods
            .iter()
            .find(|pod| is_active(pod) && self.is_current(pod));
        current
            .or_else(|| pods.iter().find(|pod| is_active(pod)))
            .copied()
    }

    fn is_current(&self, pod: &Pod) -> bool {
        pod.labels().get(HASH) == Some(&self.hash)
    }

    fn berths_with(&self, holds: impl Fn(&Pod) -> bool) -> i32 {
        let serving = self.berths.values().filter_map(|pods| self.serving(pods));
        i32::try_from(serving.filter(|pod| holds(pod)).count()).unwrap_or(i32::MAX)
    }

    fn report(&self, writes: &mut Writes) {
        let old = self.set.status.clone().unwrap_or_default();
        let desired = i32::try_from(self.berths.len()).unwrap_or(i32::MAX);
        let available = self.berths_with(is_available);
        let status = DaemonSetStatus {
            desired_number_scheduled: desired,
            current_number_scheduled: self.berths_with(|_| true),
            number_misscheduled: i32::try_from(self.astray.len()).unwrap_or(i32::MAX),
            number_ready: self.berths_with(is_ready),
            number_available: some(available),
            number_unavailable: some(desired - available),
            updated_number_scheduled: some(self.berths_with(|pod| self.is_current(pod))),
            observed_generation: self.set.metadata.generation,
            ..old.clone()
        };
        if status != old {
            let mut set = self.set.clone();
            set.status = Some(status);
            writes.push(Verb::Status, set);
        }
    }
}
