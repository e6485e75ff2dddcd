//! A case as it is in an existing cluster: pure. Every namespace is one of the run's own, called for it, and nodes are what Kubernetes
//! calls them where a manifest pins a pod to one.

mod objects;

use std::sync::Arc;

use chainbreak_model::case::{Case, Step};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{error::KindError, shared::pods::spec_path};
use objects::Namespaces;

/// The case in namespaces of the run `run`; nodes n1, n2, … are these.
pub(super) fn rewrite(case: &Case, run: &str, nodes: &[String]) -> Case {
    let mut case = case.clone();
    let mut namespaces = Namespaces::of(run);
    let count = usize::from(case.cluster.nodes).min(nodes.len());
    let timeline = Arc::make_mut(&mut case.timeline);
    let applied = timeline.iter_mut().filter_map(|step| match step {
        Step::Apply(objects) => Some(objects),
        _ => None,
    });
    for list in applied.chain([Arc::make_mut(&mut case.manifests)]) {
        // Ours are there before anything else is.
        list.retain(|object| !namespaces.takes(object));
        for object in list {
            namespaces.rewrite(object);
            pin(object, nodes);
            keep(object, &nodes[..count]);
        }
    }
    rename_all(Arc::make_mut(&mut case.traffic), &mut namespaces);
    rename_all(Arc::make_mut(&mut case.promises), &mut namespaces);
    for step in timeline {
        // Objects are rewritten already, and a FelixConfiguration names no namespace.
        if !matches!(step, Step::Apply(_) | Step::Felix(_)) {
            rename_all(step, &mut namespaces);
        }
        if let Step::Delete(object) = step
            && object.kind == "Namespace"
        {
            object.name = namespaces.name(&object.name);
        }
    }
    Arc::make_mut(&mut case.manifests).splice(0..0, namespaces.objects());
    case
}

/// The namespaces of a case that is rewritten.
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
    let Some(pod) = object.pointer_mut(spec_path(object)) else {
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

/// What a case's own types say of namespaces, they say in fields of that name.
fn rename_all<T: Serialize + DeserializeOwned>(part: &mut T, namespaces: &mut Namespaces<'_>) {
    let mut value = serde_json::to_value(&*part).expect("a case has string keys only");
    rename(&mut value, namespaces);
    *part = serde_json::from_value(value).expect("namespaces are names as before");
}

fn rename(value: &mut Value, namespaces: &mut Namespaces<'_>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "namespace" => *text = namespaces.name(text),
                    other => rename(other, namespaces),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|it| rename(it, namespaces)),
        _ => {}
    }
}

#[cfg(test)]
pub(super) mod tests {
    use chainbreak_model::case::{Claim, ClusterSpec, Destination, IptablesVariant, Origin};

    use super::*;

    pub(in crate::existing) fn case() -> Case {
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
                { "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": { "name": "pool" } },
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
        Arc::make_mut(&mut case.manifests).push(set);
        let rewritten = rewrite(&case, "chainbreak-0f", &["a".to_owned(), "b".to_owned()]);
        let kept = |kind: &str| {
            let object = rewritten.manifests.iter().find(|it| it["kind"] == kind);
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
        let rewritten = rewrite(&case(), "chainbreak-0f", &nodes);
        let names = namespaces(&rewritten, "chainbreak-0f").unwrap();
        assert_eq!(names, ["chainbreak-0f-default", "chainbreak-0f-test"]);
        let namespace_of = |name: &str| {
            let mut objects = rewritten.manifests.iter();
            let object = objects.find(|it| it["metadata"]["name"] == name).unwrap();
            object["metadata"]["namespace"].as_str().unwrap().to_owned()
        };
        assert_eq!(namespace_of("web"), "chainbreak-0f-test");
        // Its manifest names none.
        assert_eq!(namespace_of("client"), "chainbreak-0f-default");
        let client = rewritten.manifests.iter().find(|it| it["kind"] == "Pod");
        assert_eq!(client.unwrap()["spec"]["nodeName"], "ip-10-0-0-2");
        let pool = rewritten.manifests.iter().find(|it| it["kind"] == "IPPool");
        assert_eq!(pool.unwrap()["metadata"], json!({ "name": "pool" }));
        let traffic = &rewritten.traffic[0];
        let namespace = |it: &str| it.to_owned();
        assert_eq!(
            traffic.from,
            Origin::Pod {
                namespace: namespace("chainbreak-0f-default"),
                name: "client".to_owned()
            }
        );
        assert_eq!(
            traffic.to,
            Destination::Service {
                namespace: namespace("chainbreak-0f-test"),
                name: "web".to_owned()
            }
        );
        let steps = serde_json::to_string(&rewritten.timeline).unwrap();
        assert_eq!(steps.matches("chainbreak-0f-test").count(), 2, "{steps}");
        assert_eq!(rewritten.id(), case().id());
    }

    #[test]
    fn a_namespace_that_a_case_deletes_is_its_own() {
        let mut case = case();
        let namespace =
            json!({ "api-version": "v1", "kind": "Namespace", "namespace": null, "name": "test" });
        let delete = serde_json::from_value(json!({ "delete": namespace })).unwrap();
        Arc::make_mut(&mut case.timeline).push(delete);
        let rewritten = rewrite(&case, "chainbreak-0f", &["a".to_owned()]);
        let Some(Step::Delete(object)) = rewritten.timeline.last() else {
            panic!("{:?}", rewritten.timeline)
        };
        assert_eq!(object.name, "chainbreak-0f-test");
    }

    #[test]
    fn a_services_chain_is_that_of_the_service_in_its_new_namespace() {
        let rewritten = rewrite(&case(), "chainbreak-0f", &["a".to_owned()]);
        let Claim::HasRule { rule, .. } = &rewritten.promises[0].claim else {
            panic!("{:?}", rewritten.promises)
        };
        assert_eq!(rule.to_string(), "nat KUBE-SVC-TCVZVEITWSHQTTCJ");
    }

    #[test]
    fn a_case_that_was_not_rewritten_is_refused() {
        assert!(namespaces(&case(), "chainbreak-0f").is_err());
    }
}
