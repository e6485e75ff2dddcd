//! Defaults and checks of what is written. Defaults are those that clients of the lab read; a field
//! nobody reads is left as it was sent.

use serde_json::{Map, Value, json};

use crate::{
    error::{ApiError, Cause},
    kinds::Kind,
    object::{as_map, default, items, map_at, meta, text},
};

/// The service account of pods that ask for none, in each namespace.
pub(crate) const ACCOUNT: &str = "default";

/// Fills in what Kubernetes fills in.
pub(crate) fn defaults(kind: &Kind, value: &mut Value) {
    match &*kind.storage {
        "pods" => {
            let spec = map_at(value, "spec");
            pod_spec(spec);
            // What it was called once.
            let alias = spec.get("serviceAccount").filter(|it| *it != "").cloned();
            default(
                spec,
                "serviceAccountName",
                alias.unwrap_or_else(|| ACCOUNT.into()),
            );
        }
        "deployments.apps" => {
            let spec = map_at(value, "spec");
            default(spec, "replicas", 1);
            default(spec, "revisionHistoryLimit", 10);
            default(spec, "progressDeadlineSeconds", 600);
            default(
                spec,
                "strategy",
                json!({"type": "RollingUpdate",
                       "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
            );
            template(spec);
        }
        "replicasets.apps" | "statefulsets.apps" | "replicationcontrollers" => {
            let spec = map_at(value, "spec");
            default(spec, "replicas", 1);
            template(spec);
        }
        "daemonsets.apps" => {
            let spec = map_at(value, "spec");
            default(spec, "revisionHistoryLimit", 10);
            default(
                spec,
                "updateStrategy",
                json!({"type": "RollingUpdate",
                       "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
            );
            template(spec);
        }
        "namespaces" => {
            let name = meta(value, "name").to_owned();
            map_at(map_value(value, "metadata"), "labels")
                .insert("kubernetes.io/metadata.name".to_owned(), name.into());
            default(map_at(value, "spec"), "finalizers", json!(["kubernetes"]));
        }
        _ => {}
    }
}

fn map_value<'a>(value: &'a mut Value, field: &str) -> &'a mut Value {
    map_at(value, field);
    &mut value[field]
}

fn template(spec: &mut Map<String, Value>) {
    let template = spec.entry("template").or_insert_with(|| json!({}));
    pod_spec(map_at(template, "spec"));
}

fn pod_spec(spec: &mut Map<String, Value>) {
    default(spec, "restartPolicy", "Always");
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    for list in ["initContainers", "containers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let container = as_map(container);
            default(container, "imagePullPolicy", "IfNotPresent");
            for port in container
                .get_mut("ports")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                default(as_map(port), "protocol", "TCP");
            }
        }
    }
}

/// The status an object is born with, where Kubernetes gives one.
pub(crate) fn first_status(kind: &Kind, value: &mut Value) {
    if kind.status && !kind.status_at_birth {
        as_map(value).remove("status");
    }
    let status = match &*kind.storage {
        "pods" => json!({"phase": "Pending", "qosClass": "BestEffort"}),
        "namespaces" => json!({"phase": "Active"}),
        "services" => json!({"loadBalancer": {}}),
        _ if kind.status && !kind.custom && !kind.status_at_birth => json!({}),
        _ => return,
    };
    value["status"] = status;
}

/// Refuses what Kubernetes refuses.
pub(crate) fn check(kind: &Kind, value: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    check_name(kind, value, &mut causes);
    match &*kind.storage {
        "pods" => check_pod_spec("spec", &value["spec"], &mut causes),
        "deployments.apps" | "replicasets.apps" | "daemonsets.apps" | "statefulsets.apps" => {
            check_workload(value, &mut causes);
        }
        _ => {}
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = meta(value, "name").to_owned();
    Err(ApiError::Invalid {
        kind: kind.qualified_kind(),
        name,
        causes,
    })
}

fn check_name(kind: &Kind, value: &Value, causes: &mut Vec<Cause>) {
    let name = meta(value, "name");
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
        return;
    }
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = |s: &str| s.starts_with(lower) && s.ends_with(lower);
    let label = |s: &str| ends(s) && s.len() <= 63 && s.chars().all(|c| lower(c) || c == '-');
    let wrong = match &*kind.storage {
        "services" if !label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) => {
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character"
        }
        "namespaces" if !label(name) => {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character"
        }
        storage if storage.contains("rbac.authorization") => return,
        _ if name.len() > 253 || !name.split('.').all(label) => {
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character"
        }
        _ => return,
    };
    causes.push(Cause::invalid("metadata.name", &name.into(), wrong));
}

fn check_pod_spec(field: &str, spec: &Value, causes: &mut Vec<Cause>) {
    let containers = items(spec, "/containers");
    if containers.is_empty() {
        causes.push(Cause::required(&format!("{field}.containers"), ""));
    }
    for (i, container) in containers.iter().enumerate() {
        for required in ["name", "image"] {
            if text(container, &format!("/{required}")).is_empty() {
                causes.push(Cause::required(
                    &format!("{field}.containers[{i}].{required}"),
                    "",
                ));
            }
        }
    }
}

fn check_workload(value: &Value, causes: &mut Vec<Cause>) {
    let selector = &value["spec"]["selector"];
    if selector["matchLabels"]
        .as_object()
        .is_none_or(Map::is_empty)
        && items(selector, "/matchExpressions").is_empty()
    {
        causes.push(Cause::required("spec.selector", ""));
    }
    let labels = &value["spec"]["template"]["metadata"]["labels"];
    let selected = selector["matchLabels"].as_object().into_iter().flatten();
    if selected
        .into_iter()
        .any(|(key, wanted)| labels[key] != *wanted)
    {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    if value["spec"]["replicas"]
        .as_i64()
        .is_some_and(|replicas| replicas < 0)
    {
        causes.push(Cause::invalid(
            "spec.replicas",
            &value["spec"]["replicas"],
            "must be greater than or equal to 0",
        ));
    }
    check_pod_spec(
        "spec.template.spec",
        &value["spec"]["template"]["spec"],
        causes,
    );
}
