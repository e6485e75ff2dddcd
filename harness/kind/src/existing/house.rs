//! A case as it is in somebody's cluster: pure. Every namespace is one of its own, called for the run, and nodes are what Kubernetes calls
//! them where a manifest pins a pod to one.

use std::collections::BTreeSet;

use chainbreak_engine::is_cluster_scoped;
use chainbreak_model::case::Case;
use serde_json::{Value, json};

use crate::{error::KindError, existing::stay::RUN};

/// The case in namespaces of the run `run`; nodes n1, n2, … are these.
pub(super) fn house(case: &Case, run: &str, nodes: &[String]) -> Case {
    let mut housed = serde_json::to_value(case).expect("a case has string keys only");
    let mut used = BTreeSet::new();
    let count = usize::from(case.cluster.nodes).min(nodes.len());
    for list in lists(&mut housed) {
        for object in list {
            default_namespace(object);
            pin(object, nodes);
            keep(object, &nodes[..count]);
        }
    }
    rename(&mut housed, run, &mut used);
    for list in lists(&mut housed) {
        // Ours are there before anything else is.
        list.retain(|object| object["kind"] != "Namespace");
    }
    let namespaces = used.iter().map(|name| namespace(name, run));
    let manifests = housed["manifests"].as_array_mut();
    manifests
        .expect("a case has a list of manifests")
        .splice(0..0, namespaces);
    serde_json::from_value(housed).expect("namespaces and nodes are names as before")
}

/// The namespaces of a case that is housed.
pub(super) fn namespaces(case: &Case, run: &str) -> Result<Vec<String>, KindError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let made = case.manifests.iter();
    let made = made.filter(|object| object["kind"] == "Namespace");
    let names: Vec<String> = made
        .map(|object| text(&object["metadata"]["name"]))
        .collect();
    let own = |name: &String| name.starts_with(run);
    if names.iter().all(own) && !names.is_empty() {
        Ok(names)
    } else {
        let why = "the cluster could not be asked for its nodes before the case began";
        Err(KindError::Unable(why.to_owned()))
    }
}

/// The lists of objects that a case applies.
fn lists(case: &mut Value) -> Vec<&mut Vec<Value>> {
    let Value::Object(fields) = case else {
        return Vec::new();
    };
    let mut lists = Vec::new();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("manifests", Value::Array(objects)) => lists.push(objects),
            ("timeline", Value::Array(steps)) => {
                lists.extend(
                    steps
                        .iter_mut()
                        .filter_map(|step| step.get_mut("apply")?.as_array_mut()),
                );
            }
            _ => {}
        }
    }
    lists
}

/// What the API would take for granted is written out.
fn default_namespace(object: &mut Value) {
    if is_cluster_scoped(object["kind"].as_str().unwrap_or_default()) {
        return;
    }
    let metadata = &mut object["metadata"];
    if metadata["namespace"].is_null() {
        metadata["namespace"] = "default".into();
    }
}

fn pin(value: &mut Value, nodes: &[String]) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let number = value
                    .as_str()
                    .and_then(|it| it.strip_prefix('n')?.parse().ok());
                let node = number.and_then(|number: usize| nodes.get(number.checked_sub(1)?));
                match node.filter(|_| name == "nodeName") {
                    Some(node) => *value = node.as_str().into(),
                    None => pin(value, nodes),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                pin(value, nodes);
            }
        }
        _ => {}
    }
}

/// Keeps pods that choose no node by name on those of the case: the cluster may have others.
fn keep(object: &mut Value, nodes: &[String]) {
    let path = match object["kind"].as_str() {
        Some("Pod") => "/spec",
        _ => "/spec/template/spec",
    };
    let Some(pod) = object.pointer_mut(path) else {
        return;
    };
    if !pod["containers"].is_array() || pod["nodeName"].is_string() || pod["affinity"].is_object() {
        return;
    }
    // A term may have one name; a node has to fit one of the terms.
    let term = |node: &String| {
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
        json!({ "matchFields": [field] })
    };
    let terms: Vec<Value> = nodes.iter().map(term).collect();
    pod["affinity"] = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
    } });
}

/// Whatever a case says of a namespace, it says in a field of that name.
fn rename(value: &mut Value, run: &str, used: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "namespace" => {
                        *text = format!("{run}-{text}");
                        used.insert(text.clone());
                    }
                    other => rename(other, run, used),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                rename(value, run, used);
            }
        }
        _ => {}
    }
}

fn namespace(name: &str, run: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": { RUN: run } },
    })
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::{Claim, ClusterSpec, From, IptablesVariant, To};

    use super::*;

    fn case() -> Case {
        let in_test = |kind: &str| json!({ "kind": kind, "metadata": { "namespace": "test", "name": "web" } });
        let pod = json!({ "nodeName": "n2", "containers": [] });
        let port = json!({ "service": { "namespace": "test", "name": "web" }, "port": "http", "protocol": "tcp" });
        let chain = json!({ "which": "service", "of": port });
        let case = json!({
            "scenario": "s",
            "variant": "v",
            "cell": {},
            "about": "",
            "incident": [],
            "file": "s.yaml",
            "cluster": ClusterSpec::new(2, IptablesVariant::Nft),
            "manifests": [
                { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "test" } },
                in_test("Service"),
                { "kind": "Pod", "metadata": { "name": "client" }, "spec": pod },
                { "kind": "IPPool", "metadata": { "name": "pool" } },
            ],
            "traffic": { "shop": {
                "from": { "pod": { "namespace": "default", "name": "client" } },
                "to": { "service": { "namespace": "test", "name": "web" } },
                "port": 80,
                "every": { "secs": 1, "nanos": 0 },
                "connections": "new",
                "timeout": { "secs": 1, "nanos": 0 },
            } },
            "timeline": [
                { "apply": [in_test("Service")] },
                { "delete": { "api-version": "v1", "kind": "Service", "namespace": "test", "name": "web" } },
            ],
            "promises": { "chosen": { "has-rule": { "rule": { "table": "nat", "chain": chain }, "always": true } } },
            "expect": "healthy",
            "seed": 1,
        });
        serde_json::from_value(case).expect("it is a case")
    }

    #[test]
    fn pods_stay_on_the_nodes_of_the_case_however_many_the_cluster_has() {
        let mut case = case();
        case.cluster.nodes = 1;
        let pod = json!({ "containers": [] });
        let set = json!({ "kind": "DaemonSet", "metadata": { "name": "set" }, "spec": { "template": { "spec": pod } } });
        case.manifests.push(set);
        let housed = house(&case, "chainbreak-0f", &["a".to_owned(), "b".to_owned()]);
        let kept = |kind: &str| {
            let object = housed.manifests.iter().find(|it| it["kind"] == kind);
            object.unwrap().to_string()
        };
        let set = kept("DaemonSet");
        assert!(
            set.contains(r#""values":["a"]"#) && !set.contains(r#""b""#),
            "{set}"
        );
        // It says itself where it is.
        assert!(!kept("Pod").contains("affinity"));
        assert!(!kept("Service").contains("affinity"));
        assert!(!kept("Service").contains("template"));
    }

    #[test]
    fn a_case_is_wholly_in_namespaces_of_its_run_and_its_pods_on_the_clusters_nodes() {
        let nodes = ["ip-10-0-0-1".to_owned(), "ip-10-0-0-2".to_owned()];
        let housed = house(&case(), "chainbreak-0f", &nodes);
        let names = namespaces(&housed, "chainbreak-0f").unwrap();
        assert_eq!(names, ["chainbreak-0f-default", "chainbreak-0f-test"]);
        let namespace_of = |name: &str| {
            let mut objects = housed.manifests.iter();
            let object = objects.find(|it| it["metadata"]["name"] == name).unwrap();
            object["metadata"]["namespace"].as_str().unwrap().to_owned()
        };
        assert_eq!(namespace_of("web"), "chainbreak-0f-test");
        // Its manifest names none.
        assert_eq!(namespace_of("client"), "chainbreak-0f-default");
        let client = housed.manifests.iter().find(|it| it["kind"] == "Pod");
        assert_eq!(client.unwrap()["spec"]["nodeName"], "ip-10-0-0-2");
        let pool = housed.manifests.iter().find(|it| it["kind"] == "IPPool");
        assert_eq!(pool.unwrap()["metadata"], json!({ "name": "pool" }));
        let traffic = &housed.traffic[0];
        let namespace = |it: &str| it.to_owned();
        assert_eq!(
            traffic.from,
            From::Pod {
                namespace: namespace("chainbreak-0f-default"),
                name: "client".to_owned()
            }
        );
        assert_eq!(
            traffic.to,
            To::Service {
                namespace: namespace("chainbreak-0f-test"),
                name: "web".to_owned()
            }
        );
        let steps = serde_json::to_string(&housed.timeline).unwrap();
        assert_eq!(steps.matches("chainbreak-0f-test").count(), 2, "{steps}");
        assert_eq!(housed.id(), case().id());
    }

    #[test]
    fn a_services_chain_is_that_of_the_service_in_its_new_namespace() {
        let housed = house(&case(), "chainbreak-0f", &["a".to_owned()]);
        let Claim::HasRule { rule, .. } = &housed.promises[0].claim else {
            panic!("{:?}", housed.promises)
        };
        assert_eq!(rule.to_string(), "nat KUBE-SVC-TCVZVEITWSHQTTCJ");
    }

    #[test]
    fn a_case_that_was_not_housed_is_refused() {
        assert!(namespaces(&case(), "chainbreak-0f").is_err());
    }
}
