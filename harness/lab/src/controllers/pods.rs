//! What controllers ask of a pod, and how they make one.

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube::Resource;

use super::seen::uid;

/// The pod's condition `Ready` holds.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The pod is on its way out.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// All containers of the pod have ended for good.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The pod counts as one of its owner's.
pub(super) fn is_active(pod: &Pod) -> bool {
    !is_terminating(pod) && !has_ended(pod)
}

/// The pod serves now and will go on.
pub(super) fn is_available(pod: &Pod) -> bool {
    is_active(pod) && is_ready(pod)
}

/// The node the pod is on.
pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    let name = pod.spec.as_ref()?.node_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

/// How many pods `holds` is true of, as Kubernetes counts.
pub(super) fn count(pods: &[&Pod], holds: impl Fn(&Pod) -> bool) -> i32 {
    let count = pods.iter().filter(|pod| holds(pod)).count();
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A reference that makes the owner an object's controller.
pub(super) fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: uid(owner),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A pod of that name, made from a template.
pub(super) fn from_template<K: Resource<DynamicType = ()>>(
    owner: &K,
    template: &PodTemplateSpec,
    name: String,
) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: owner.meta().namespace.clone(),
            owner_references: Some(vec![controlled_by(owner)]),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Sets a label that must hold in an object and in the selector that finds it.
pub(super) fn mark(meta: &mut ObjectMeta, label: &str, value: &str) {
    let labels = meta.labels.get_or_insert_default();
    labels.insert(label.to_owned(), value.to_owned());
}

/// Narrows a selector down to a label's value.
pub(super) fn narrow(selector: &mut LabelSelector, label: &str, value: &str) {
    let labels = selector.match_labels.get_or_insert_default();
    labels.insert(label.to_owned(), value.to_owned());
}
