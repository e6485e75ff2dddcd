//! What Kubernetes does and the lab does not: said before a run, so that no promise is judged on
//! something that never was there.

use super::super::fields::note;
use crate::{
    diagnostic::Gathered,
    yaml::{Node, Value},
};

/// Fields of a container, each with what there is instead.
const CONTAINER: [(&str, &str); 4] = [
    ("readinessProbe", READY),
    (
        "livenessProbe",
        "a container is started again when its process ends",
    ),
    ("startupProbe", READY),
    (
        "envFrom",
        "write the variables under env, each with its value",
    ),
];
const READY: &str = "leave it out: a container is ready when its TCP ports accept connections";

/// Where a variable's value may come from.
const FIELDS: [&str; 6] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "status.hostIP",
    "status.podIP",
];

/// Looks through the spec of a pod or of a template.
pub(super) fn pod(gathered: &Gathered, spec: &Node) {
    if let Some(first) = spec.get("initContainers").filter(|list| list.len() > 0) {
        unable(
            gathered,
            first,
            "initContainers",
            "start with what they would have done",
        );
    }
    for one in list(spec, "containers") {
        container(gathered, spec, one);
    }
}

fn container(gathered: &Gathered, spec: &Node, container: &Node) {
    for (field, hint) in CONTAINER {
        if let Some(node) = container.get(field) {
            unable(gathered, node, field, hint);
        }
    }
    if let Some(hook) = container
        .get("lifecycle")
        .and_then(|all| all.get("postStart"))
    {
        unable(
            gathered,
            hook,
            "postStart",
            "do it in the container's command",
        );
    }
    for port in list(container, "ports") {
        if let Some(node) = port.get("hostPort") {
            unable(
                gathered,
                node,
                "hostPort",
                "a Service of type NodePort is served",
            );
        }
    }
    for variable in list(container, "env") {
        if let Some(from) = variable.get("valueFrom").filter(|from| !is_field(from)) {
            let hint = format!("write its value, or a fieldRef: {}", FIELDS.join(", "));
            unable(gathered, from, "valueFrom", &hint);
        }
    }
    for mount in list(container, "volumeMounts") {
        if !is_there(spec, mount) {
            let hint = "without images a container sees its node's files: only a hostPath mounted where it is is there";
            unable(gathered, mount, "volumeMounts", hint);
        }
    }
}

fn is_field(from: &Node) -> bool {
    let field = from
        .get("fieldRef")
        .and_then(|field| field.get("fieldPath"));
    field
        .and_then(Node::text)
        .is_some_and(|path| FIELDS.contains(&path))
}

/// Whether the mount shows what a container sees there anyway.
fn is_there(spec: &Node, mount: &Node) -> bool {
    let text = |node: &Node, key: &str| node.get(key).and_then(Node::text).map(str::to_owned);
    let name = text(mount, "name");
    let mut volumes = list(spec, "volumes").iter();
    let volume = volumes.find(|volume| text(volume, "name") == name);
    let path = volume
        .and_then(|volume| volume.get("hostPath"))
        .and_then(|host| text(host, "path"));
    path.is_some() && path == text(mount, "mountPath") && mount.get("subPath").is_none()
}

fn list<'a>(node: &'a Node, key: &str) -> &'a [Node] {
    match node.get(key).map(|node| &node.value) {
        Some(Value::Seq(items)) => items,
        _ => &[],
    }
}

pub(super) fn unable(gathered: &Gathered, node: &Node, field: &str, hint: &str) {
    let message = format!("the lab cannot do {field} yet");
    note(gathered, &node.place, message, Some(hint.to_owned()));
}
