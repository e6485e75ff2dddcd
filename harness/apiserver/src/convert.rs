//! Objects between the version they are stored in and the version they are asked for. Only two
//! resources differ in more than their `apiVersion`: `EndpointSlices`, whose v1beta1 tells the node in
//! `topology` (that is where kube-proxy 1.20 looks), and events.

use serde_json::{Map, Value, json};

use crate::{kinds::Kind, object::as_map};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Core v1 names of event fields, and their names in events.k8s.io/v1.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// From the asked version to the stored one.
pub(crate) fn to_storage(kind: &Kind, mut value: Value) -> Value {
    let stored = match (&*kind.group, &*kind.version, &*kind.plural) {
        ("discovery.k8s.io", "v1beta1", _) => {
            endpoints(&mut value, endpoint_from_beta);
            "discovery.k8s.io/v1".to_owned()
        }
        ("events.k8s.io", ..) => {
            rename(
                as_map(&mut value),
                EVENT_FIELDS.map(|(core, new)| (new, core)),
            );
            "v1".to_owned()
        }
        ("crd.projectcalico.org", ..) => "projectcalico.org/v3".to_owned(),
        _ => kind.group_version(),
    };
    let map = as_map(&mut value);
    map.insert("apiVersion".to_owned(), stored.into());
    map.insert("kind".to_owned(), kind.kind.clone().into());
    value
}

/// From the stored version to the asked one; none when they are the same.
pub(crate) fn from_storage(kind: &Kind, stored: &Value) -> Option<Value> {
    let asked = kind.group_version();
    if stored["apiVersion"] == *asked {
        return None;
    }
    let mut value = stored.clone();
    match (&*kind.group, &*kind.version) {
        ("discovery.k8s.io", "v1beta1") => endpoints(&mut value, endpoint_to_beta),
        ("events.k8s.io", _) => rename(as_map(&mut value), EVENT_FIELDS),
        _ => {}
    }
    value["apiVersion"] = asked.into();
    Some(value)
}

fn rename(map: &mut Map<String, Value>, names: [(&str, &str); 7]) {
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

fn endpoints(value: &mut Value, change: fn(&mut Map<String, Value>)) {
    for endpoint in value["endpoints"].as_array_mut().into_iter().flatten() {
        change(as_map(endpoint));
    }
}

fn endpoint_to_beta(endpoint: &mut Map<String, Value>) {
    let mut topology = endpoint
        .remove("deprecatedTopology")
        .unwrap_or_else(|| json!({}));
    if let Some(node) = endpoint.get("nodeName") {
        as_map(&mut topology).insert(HOSTNAME.to_owned(), node.clone());
    }
    if let Some(zone) = endpoint.remove("zone") {
        as_map(&mut topology).insert(ZONE.to_owned(), zone);
    }
    if topology.as_object().is_some_and(|t| !t.is_empty()) {
        endpoint.insert("topology".to_owned(), topology);
    }
}

fn endpoint_from_beta(endpoint: &mut Map<String, Value>) {
    let Some(Value::Object(mut topology)) = endpoint.remove("topology") else {
        return;
    };
    if let Some(node) = topology.remove(HOSTNAME) {
        endpoint.entry("nodeName").or_insert(node);
    }
    if let Some(zone) = topology.remove(ZONE) {
        endpoint.insert("zone".to_owned(), zone);
    }
    if !topology.is_empty() {
        endpoint.insert("deprecatedTopology".to_owned(), topology.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn an_old_kube_proxy_finds_the_node_of_an_endpoint_in_its_topology() {
        let kinds = Kinds::default();
        let beta = kinds
            .find("discovery.k8s.io", "v1beta1", "endpointslices")
            .unwrap();
        let stored = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n1", "zone": "z"}],
        });
        let told = from_storage(beta, &stored).unwrap();
        assert_eq!(
            told["endpoints"][0]["topology"],
            json!({HOSTNAME: "n1", ZONE: "z"})
        );
        assert_eq!(to_storage(beta, told), stored);
    }

    #[test]
    fn an_event_of_the_new_group_is_seen_in_the_core_group() {
        let kinds = Kinds::default();
        let new = kinds.find("events.k8s.io", "v1", "events").unwrap();
        let stored = to_storage(new, json!({"note": "started", "regarding": {"name": "x"}}));
        assert_eq!(
            (&stored["message"], &stored["involvedObject"]["name"]),
            (&json!("started"), &json!("x"))
        );
        assert_eq!(from_storage(new, &stored).unwrap()["note"], "started");
    }
}
