//! Deployments: one replica set for each template, and rollouts from one to the next.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::apps::v1::{
        Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet,
        ReplicaSetSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use super::{
    name_generator::template_hash,
    pods::{controlled_by, count, is_active, is_available, is_ready, mark, narrow},
    rollout::{Size, Slack, step},
    seen::uid,
    view::View,
    write::{Verb, Writes},
};

/// The label that tells pods of different templates apart.
const HASH: &str = "pod-template-hash";
/// Where a replica set says which template of its deployment it has, and a deployment which is its own.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Sees to all deployments.
pub(super) fn reconcile(view: &View<'_>, writes: &mut Writes) {
    for deployment in view.seen.deployments.iter() {
        let Some(spec) = &deployment.spec else {
            continue;
        };
        if deployment.metadata.deletion_timestamp.is_none() {
            let rollout = Rollout::of(view, deployment, spec);
            rollout.resize(writes);
            rollout.number(writes);
            rollout.forget(writes);
            rollout.report(writes);
        }
    }
}

/// A deployment and its replica sets.
struct Rollout<'a> {
    view: &'a View<'a>,
    deployment: &'a Deployment,
    spec: &'a DeploymentSpec,
    desired: i32,
    slack: Slack,
    hash: String,
    newest: Option<&'a ReplicaSet>,
    /// The oldest first.
    older: Vec<&'a ReplicaSet>,
}

impl<'a> Rollout<'a> {
    fn of(view: &'a View<'a>, deployment: &'a Deployment, spec: &'a DeploymentSpec) -> Self {
        let hash = template_hash(&spec.template);
        let mut older = view
            .sets_of(deployment.metadata.uid.as_deref().unwrap_or(""))
            .to_vec();
        older.retain(|set| set.metadata.deletion_timestamp.is_none());
        older.sort_by_key(|set| revision(set));
        let mut at = older
            .iter()
            .position(|set| set.labels().get(HASH) == Some(&hash));
        if at.is_none() && spec.paused == Some(true) {
            at = older.len().checked_sub(1);
        }
        let newest = at.map(|at| older.remove(at));
        let desired = spec.replicas.unwrap_or(1);
        let rolling = spec
            .strategy
            .as_ref()
            .and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        Self {
            view,
            deployment,
            spec,
            desired,
            slack: Slack::of(surge, unavailable, desired),
            hash,
            newest,
            older,
        }
    }

    /// Makes the newest replica set and brings all closer to the size they are to have.
    fn resize(&self, writes: &mut Writes) {
        let (grown, sizes) = self.sizes();
        for (set, size) in self.older.iter().zip(sizes) {
            if wanted(set) != size {
                writes.push(Verb::Replace, sized(set, size));
            }
        }
        let last = self.older.last().map_or(0, |set| revision(set));
        match self.newest {
            Some(set) => {
                let mut set = sized(set, grown);
                if revision(&set) <= last {
                    note_revision(&mut set.metadata, last + 1);
                }
                if Some(&set) != self.newest {
                    writes.push(Verb::Replace, set);
                }
            }
            None if self.spec.paused == Some(true) => {}
            None => writes.push(Verb::Create, self.born(grown, last + 1)),
        }
    }

    fn sizes(&self) -> (i32, Vec<i32>) {
        let newest = self.newest.map_or(Size::default(), |set| self.size(set));
        let older: Vec<Size> = self.older.iter().map(|set| self.size(set)).collect();
        let strategy = self
            .spec
            .strategy
            .as_ref()
            .and_then(|strategy| strategy.type_.as_deref());
        if strategy == Some("Recreate") {
            let gone = self
                .older
                .iter()
                .all(|set| self.view.pods_of(&uid(*set)).is_empty());
            let size = if gone {
                self.desired
            } else {
                newest.wanted.min(self.desired)
            };
            return (size, vec![0; older.len()]);
        }
        step(self.desired, self.slack, newest, &older)
    }

    fn size(&self, set: &ReplicaSet) -> Size {
        let wanted = wanted(set);
        let available = count(self.view.pods_of(&uid(set)), is_available);
        Size {
            wanted,
            available: available.min(wanted),
        }
    }

    fn born(&self, replicas: i32, revision: i64) -> ReplicaSet {
        let mut template = self.spec.template.clone();
        mark(template.metadata.get_or_insert_default(), HASH, &self.hash);
        let mut selector = self.spec.selector.clone();
        narrow(&mut selector, HASH, &self.hash);
        let labels = template
            .metadata
            .as_ref()
            .and_then(|meta| meta.labels.clone());
        let mut metadata = ObjectMeta {
            name: Some(format!("{}-{}", self.deployment.name_any(), self.hash)),
            namespace: self.deployment.namespace(),
            labels,
            owner_references: Some(vec![controlled_by(self.deployment)]),
            ..ObjectMeta::default()
        };
        note_revision(&mut metadata, revision);
        ReplicaSet {
            metadata,
            spec: Some(ReplicaSetSpec {
                replicas: Some(replicas),
                selector,
                template: Some(template),
                min_ready_seconds: self.spec.min_ready_seconds,
            }),
            status: None,
        }
    }

    /// Says in the deployment which revision is its newest, without which `kubectl rollout undo` fails.
    fn number(&self, writes: &mut Writes) {
        let Some(newest) = self.newest.map(revision) else {
            return;
        };
        let mut deployment = self.deployment.clone();
        note_revision(&mut deployment.metadata, newest);
        if deployment != *self.deployment {
            writes.push(Verb::Replace, deployment);
        }
    }

    /// Deletes the oldest of the empty replica sets that nobody needs to keep for a way back.
    fn forget(&self, writes: &mut Writes) {
        let empty =
            |set: &&ReplicaSet| wanted(set) == 0 && self.view.pods_of(&uid(*set)).is_empty();
        let idle: Vec<&ReplicaSet> = self.older.iter().copied().filter(empty).collect();
        let kept = usize::try_from(self.spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
        for set in idle.iter().take(idle.len().saturating_sub(kept)) {
            writes.push(Verb::Delete, (*set).clone());
        }
    }

    fn report(&self, writes: &mut Writes) {
        let old = self.deployment.status.clone().unwrap_or_default();
        let status = self.status(&old);
        if status != old {
            let mut deployment = self.deployment.clone();
            deployment.status = Some(status);
            writes.push(Verb::Status, deployment);
        }
    }

    fn status(&self, old: &DeploymentStatus) -> DeploymentStatus {
        let all = self.older.iter().copied().chain(self.newest);
        let all: Vec<_> = all
            .flat_map(|set| self.view.pods_of(&uid(set)).to_vec())
            .collect();
        let newest = self
            .newest
            .map_or(Vec::new(), |set| self.view.pods_of(&uid(set)).to_vec());
        let (replicas, available) = (count(&all, is_active), count(&all, is_available));
        let updated = count(&newest, is_active);
        let done = updated == self.desired && replicas == updated && available == updated;
        let enough = available >= self.desired - self.slack.unavailable;
        DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: some(replicas),
            updated_replicas: some(updated),
            ready_replicas: some(count(&all, |pod| is_active(pod) && is_ready(pod))),
            available_replicas: some(available),
            unavailable_replicas: some((self.desired.max(replicas) - available).max(0)),
            conditions: Some(vec![available_condition(enough), progress_condition(done)]),
            ..old.clone()
        }
    }
}

/// Kubernetes leaves a zero out.
pub(super) fn some(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

fn wanted(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

fn sized(set: &ReplicaSet, size: i32) -> ReplicaSet {
    let mut set = set.clone();
    set.spec.get_or_insert_default().replicas = Some(size);
    set
}

fn revision(set: &ReplicaSet) -> i64 {
    let text = set.annotations().get(REVISION);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn note_revision(metadata: &mut ObjectMeta, revision: i64) {
    let annotations: &mut BTreeMap<_, _> = metadata.annotations.get_or_insert_default();
    annotations.insert(REVISION.to_owned(), revision.to_string());
}

fn available_condition(enough: bool) -> DeploymentCondition {
    let (status, reason, message) = if enough {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    condition("Available", status, reason, message)
}

fn progress_condition(done: bool) -> DeploymentCondition {
    let (reason, message) = if done {
        (
            "NewReplicaSetAvailable",
            "The newest replica set has all its pods.",
        )
    } else {
        (
            "ReplicaSetUpdated",
            "The newest replica set is progressing.",
        )
    };
    condition("Progressing", "True", reason, message)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..DeploymentCondition::default()
    }
}
