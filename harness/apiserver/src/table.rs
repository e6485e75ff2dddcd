//! Tables for `kubectl get`: the columns people know, for the kinds they look at; name and age for the
//! rest. Columns of priority 1 are shown by `-o wide`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    kinds::Kind,
    object::{items, meta, text},
};

/// Column names between name and age; those with a `*` are wide.
fn names(kind: &Kind) -> &'static [&'static str] {
    match &*kind.storage {
        "pods" => &["Ready", "Status", "Restarts", "Age", "IP*", "Node*"],
        "services" => &[
            "Type",
            "Cluster-IP",
            "External-IP",
            "Port(s)",
            "Age",
            "Selector*",
        ],
        "deployments.apps" => &["Ready", "Up-to-date", "Available", "Age", "Images*"],
        "replicasets.apps" => &["Desired", "Current", "Ready", "Age"],
        "daemonsets.apps" => &[
            "Desired",
            "Current",
            "Ready",
            "Up-to-date",
            "Available",
            "Age",
        ],
        "nodes" => &["Status", "Roles", "Age", "Version", "Internal-IP*"],
        "namespaces" => &["Status", "Age"],
        "endpointslices.discovery.k8s.io" => &["AddressType", "Ports", "Endpoints", "Age"],
        "events" => &["Type", "Reason", "Object", "Message", "Age"],
        "configmaps" => &["Data", "Age"],
        _ => &["Age"],
    }
}

/// The table's head.
pub(crate) fn columns(kind: &Kind) -> Value {
    let column = |name: &str, format: &str| {
        let wide = name.ends_with('*');
        json!({"name": name.trim_end_matches('*'), "type": "string", "format": format,
               "description": "", "priority": i32::from(wide)})
    };
    let names = names(kind).iter().map(|name| column(name, ""));
    std::iter::once(column("Name", "name"))
        .chain(names)
        .collect()
}

/// One object's row.
pub(crate) fn row(kind: &Kind, value: &Value, now: Timestamp) -> Value {
    let cell = |name: &&str| {
        if *name == "Age" {
            age(value, now)
        } else {
            cell(kind, value, name)
        }
    };
    let name = meta(value, "name").to_owned();
    let cells: Vec<String> = std::iter::once(name)
        .chain(names(kind).iter().map(cell))
        .collect();
    json!({"cells": cells, "object": {"kind": "PartialObjectMetadata",
           "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]}})
}

fn cell(kind: &Kind, value: &Value, column: &str) -> String {
    match &*kind.storage {
        "pods" => pod(value, column),
        "services" => service(value, column),
        "nodes" => node(value, column),
        "deployments.apps" | "replicasets.apps" | "daemonsets.apps" => workload(value, column),
        "namespaces" => text(value, "/status/phase").to_owned(),
        "configmaps" => value["data"]
            .as_object()
            .map_or(0, serde_json::Map::len)
            .to_string(),
        "events" => event(value, column),
        _ => slice(value, column),
    }
}

fn pod(value: &Value, column: &str) -> String {
    let statuses = items(value, "/status/containerStatuses");
    match column {
        "Ready" => {
            let ready = statuses.iter().filter(|s| s["ready"] == true).count();
            format!("{ready}/{}", items(value, "/spec/containers").len())
        }
        "Status" if !meta(value, "deletionTimestamp").is_empty() => "Terminating".to_owned(),
        "Status" => text(value, "/status/phase").to_owned(),
        "Restarts" => statuses
            .iter()
            .filter_map(|s| s["restartCount"].as_i64())
            .sum::<i64>()
            .to_string(),
        "IP*" => or_none(text(value, "/status/podIP")),
        _ => or_none(text(value, "/spec/nodeName")),
    }
}

fn service(value: &Value, column: &str) -> String {
    match column {
        "Type" => text(value, "/spec/type").to_owned(),
        "Cluster-IP" => or_none(text(value, "/spec/clusterIP")),
        "External-IP" => {
            let balanced = items(value, "/status/loadBalancer/ingress").iter();
            let ips = balanced.map(|i| text(i, "/ip")).chain(
                items(value, "/spec/externalIPs")
                    .iter()
                    .filter_map(Value::as_str),
            );
            or_none(&ips.collect::<Vec<_>>().join(","))
        }
        "Port(s)" => {
            let port = |p: &Value| match p["nodePort"].as_u64() {
                Some(node) => format!("{}:{node}/{}", p["port"], text(p, "/protocol")),
                None => format!("{}/{}", p["port"], text(p, "/protocol")),
            };
            or_none(
                &items(value, "/spec/ports")
                    .iter()
                    .map(port)
                    .collect::<Vec<_>>()
                    .join(","),
            )
        }
        _ => labels(&value["spec"]["selector"]),
    }
}

fn node(value: &Value, column: &str) -> String {
    let found = |pointer: &str, kind: &str| {
        items(value, pointer)
            .iter()
            .find(|item| item["type"] == kind)
            .cloned()
            .unwrap_or_default()
    };
    match column {
        "Status" if found("/status/conditions", "Ready")["status"] == "True" => "Ready".to_owned(),
        "Status" => "NotReady".to_owned(),
        "Roles" => "<none>".to_owned(),
        "Version" => text(value, "/status/nodeInfo/kubeletVersion").to_owned(),
        _ => or_none(text(&found("/status/addresses", "InternalIP"), "/address")),
    }
}

fn workload(value: &Value, column: &str) -> String {
    let (spec, status) = (&value["spec"], &value["status"]);
    let number = |field: &Value| field.as_i64().unwrap_or_default().to_string();
    let daemon = value["kind"] == "DaemonSet";
    match column {
        "Ready" if daemon => number(&status["numberReady"]),
        "Ready" if value["kind"] == "Deployment" => {
            format!(
                "{}/{}",
                number(&status["readyReplicas"]),
                number(&spec["replicas"])
            )
        }
        "Ready" => number(&status["readyReplicas"]),
        "Desired" if daemon => number(&status["desiredNumberScheduled"]),
        "Desired" => number(&spec["replicas"]),
        "Current" if daemon => number(&status["currentNumberScheduled"]),
        "Current" => number(&status["replicas"]),
        "Up-to-date" if daemon => number(&status["updatedNumberScheduled"]),
        "Up-to-date" => number(&status["updatedReplicas"]),
        "Available" if daemon => number(&status["numberAvailable"]),
        "Available" => number(&status["availableReplicas"]),
        _ => {
            let containers = items(spec, "/template/spec/containers").iter();
            containers
                .map(|c| text(c, "/image"))
                .collect::<Vec<_>>()
                .join(",")
        }
    }
}

fn slice(value: &Value, column: &str) -> String {
    match column {
        "AddressType" => text(value, "/addressType").to_owned(),
        "Ports" => {
            let ports = items(value, "/ports").iter().map(|p| p["port"].to_string());
            or_none(&ports.collect::<Vec<_>>().join(","))
        }
        _ => {
            let endpoints = items(value, "/endpoints").iter();
            let addresses = endpoints
                .flat_map(|e| items(e, "/addresses"))
                .filter_map(Value::as_str);
            or_none(&addresses.collect::<Vec<_>>().join(","))
        }
    }
}

fn event(value: &Value, column: &str) -> String {
    match column {
        "Type" => text(value, "/type").to_owned(),
        "Reason" => text(value, "/reason").to_owned(),
        "Message" => text(value, "/message").to_owned(),
        _ => {
            let about = &value["involvedObject"];
            format!(
                "{}/{}",
                text(about, "/kind").to_lowercase(),
                text(about, "/name")
            )
        }
    }
}

fn labels(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let told = labels.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()));
    or_none(&told.collect::<Vec<_>>().join(","))
}

fn or_none(text: &str) -> String {
    if text.is_empty() {
        "<none>".to_owned()
    } else {
        text.to_owned()
    }
}

/// As kubectl tells ages: two units while they matter.
fn age(value: &Value, now: Timestamp) -> String {
    let Ok(born) = meta(value, "creationTimestamp").parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = now.as_second().saturating_sub(born.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0..=1) => format!("{seconds}s"),
        (0, 0, 2..=9) if seconds % 60 > 0 => format!("{minutes}m{}s", seconds % 60),
        (0, 0..=2, _) => format!("{minutes}m"),
        (0, 3..=7, _) if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        (0..=1, ..) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn every_kind_has_as_many_cells_as_columns() {
        for kind in Kinds::default().iter() {
            let cells = row(
                kind,
                &json!({"metadata": {"name": "x"}}),
                Timestamp::UNIX_EPOCH,
            );
            let columns = columns(kind);
            assert_eq!(
                cells["cells"].as_array().unwrap().len(),
                columns.as_array().unwrap().len()
            );
        }
    }

    #[test]
    fn a_pod_on_its_way_out_is_told_as_terminating() {
        let kinds = Kinds::default();
        let pods = kinds.find("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"name": "x", "creationTimestamp": "1970-01-01T00:00:00Z",
            "deletionTimestamp": "1970-01-01T00:00:30Z"}, "spec": {"containers": [{}]}});
        let now = Timestamp::from_second(125).unwrap();
        assert_eq!(
            row(pods, &pod, now)["cells"],
            json!(["x", "0/1", "Terminating", "0", "2m5s", "<none>", "<none>"])
        );
    }
}
