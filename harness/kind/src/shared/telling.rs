//! Pods' servers tell who they are and which client they saw, as the lab's do: the nginx of a scenario's pods gets a file beside its
//! configuration, by a `ConfigMap` of its namespace. Pure.
//!
//! It is upstream's image that is known: what lies in `/etc/nginx/conf.d` belongs to its `http`. A container that has a command, or
//! mounts something into nginx' folder itself, is left as it is.

use std::collections::BTreeSet;

use chainbreak_engine::nginx;
use chainbreak_model::case::IpFamily;
use serde_json::{Value, json};

use crate::{made::calico::pools::choose, shared::pods::spec_path};

/// What the `ConfigMap` is called, and the volume.
const NAME: &str = "chainbreak-tells";
const FOLDER: &str = "/etc/nginx";
const FILE: &str = "chainbreak.conf";

/// The objects, with their servers telling; a `ConfigMap` stands before the first of each namespace that needs it. Pods choose pools of each family.
pub(crate) fn dress(objects: &[Value], families: &[IpFamily]) -> Vec<Value> {
    let mut dressed = Vec::with_capacity(objects.len());
    let mut served = BTreeSet::new();
    for object in objects {
        let mut object = object.clone();
        choose(&mut object, families);
        if tells(&mut object) {
            let namespace = object["metadata"]["namespace"].as_str();
            let namespace = namespace.unwrap_or("default").to_owned();
            if served.insert(namespace.clone()) {
                dressed.push(config_map(&namespace));
            }
        }
        dressed.push(object);
    }
    dressed
}

fn config_map(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "namespace": namespace, "name": NAME },
        // A pod is called as its machine is.
        "data": { FILE: nginx::telling("$hostname") },
    })
}

/// Whether a server of the object's pods tells from now on.
fn tells(object: &mut Value) -> bool {
    let Some(pod) = object.pointer_mut(spec_path(object)) else {
        return false;
    };
    let containers = pod["containers"].as_array_mut().into_iter().flatten();
    let mut tell = false;
    for server in containers.filter(|it| is_plain_nginx(it)) {
        let mount = json!({
            "name": NAME,
            "mountPath": format!("{FOLDER}/conf.d/{FILE}"),
            "subPath": FILE,
            "readOnly": true,
        });
        push(&mut server["volumeMounts"], mount);
        tell = true;
    }
    if tell {
        let volume = json!({ "name": NAME, "configMap": { "name": NAME } });
        push(&mut pod["volumes"], volume);
    }
    tell
}

fn is_plain_nginx(container: &Value) -> bool {
    let image = container["image"].as_str().unwrap_or_default();
    let image = image.split('@').next().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let mut paths = mounts.filter_map(|it| it["mountPath"].as_str());
    name.split(':').next() == Some("nginx")
        && container["command"].is_null()
        && container["args"].is_null()
        && !paths.any(|path| path.starts_with(FOLDER))
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = Value::Array(vec![item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(namespace: &str, container: &Value) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": { "namespace": namespace, "name": "web" },
            "spec": { "template": { "spec": { "containers": [container] } } },
        })
    }

    #[test]
    fn an_nginx_gets_its_file_and_each_namespace_one_config_map_before_it() {
        let nginx =
            json!({ "name": "nginx", "image": "registry:5000/library/nginx:1.27@sha256:00" });
        let pod = json!({ "kind": "Pod", "metadata": { "name": "p" }, "spec": { "containers": [nginx] } });
        let objects = [
            json!({ "kind": "Namespace", "metadata": { "name": "test" } }),
            deployment("test", &nginx),
            deployment("test", &nginx),
            pod,
        ];
        let dressed = dress(&objects, &[]);
        let kinds: Vec<&str> = dressed
            .iter()
            .filter_map(|it| it["kind"].as_str())
            .collect();
        let expected = [
            "Namespace",
            "ConfigMap",
            "Deployment",
            "Deployment",
            "ConfigMap",
            "Pod",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(dressed[4]["metadata"]["namespace"], "default");
        let pod = &dressed[3]["spec"]["template"]["spec"];
        assert_eq!(
            pod["containers"][0]["volumeMounts"][0]["mountPath"],
            "/etc/nginx/conf.d/chainbreak.conf"
        );
        assert_eq!(pod["volumes"][0]["configMap"]["name"], NAME);
        let config = dressed[1]["data"][FILE].as_str().unwrap();
        assert!(config.contains("add_header x-chainbreak-backend $hostname always;"));
    }

    #[test]
    fn what_is_no_plain_nginx_stays_as_it_is() {
        for container in [
            json!({ "image": "busybox:1.36" }),
            json!({ "image": "nginx-exporter:1" }),
            json!({ "image": "nginx:1.27", "command": ["sleep"] }),
            json!({ "image": "nginx:1.27", "args": ["-g", "daemon off;"] }),
            json!({ "image": "nginx:1.27", "volumeMounts": [{ "mountPath": "/etc/nginx/conf.d" }] }),
        ] {
            let objects = [deployment("test", &container), json!({ "kind": "Service" })];
            assert_eq!(dress(&objects, &[]), objects, "{container}");
        }
    }
}
