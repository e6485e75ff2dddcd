//! Discovery: which groups, versions and resources are served. Clients that ask for the aggregated
//! form get this one and fall back, as with an older server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kinds::{Kind, Kinds};

/// The version told to clients; behaviour follows it where versions differ.
const VERSION: (&str, &str) = ("1", "32");

/// `/version`.
pub(crate) fn version() -> Value {
    let (major, minor) = VERSION;
    json!({
        "major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0+chainbreak"),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(crate) fn groups(kinds: &Kinds) -> Value {
    let mut seen = BTreeSet::new();
    let groups: Vec<Value> = kinds
        .iter()
        .filter(|k| !k.group.is_empty() && seen.insert(k.group.clone()))
        .map(|k| group(kinds, &k.group))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub(crate) fn group(kinds: &Kinds, group: &str) -> Value {
    let mut seen = BTreeSet::new();
    let versions: Vec<Value> = kinds
        .iter()
        .filter(|k| k.group == group && seen.insert(k.version.clone()))
        .map(|k| json!({"groupVersion": k.group_version(), "version": k.version}))
        .collect();
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": versions,
           "preferredVersion": versions.first()})
}

/// `/api/v1`, `/apis/<group>/<version>`.
pub(crate) fn resources(kinds: &Kinds, group: &str, version: &str) -> Value {
    let served: Vec<_> = kinds
        .iter()
        .filter(|k| k.group == group && k.version == version)
        .collect();
    let resources: Vec<Value> = served.iter().flat_map(|kind| entries(kind)).collect();
    let group_version = served.first().map(|kind| kind.group_version());
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
           "resources": resources})
}

fn entries(kind: &Kind) -> Vec<Value> {
    let verbs: &[&str] = if kind.review {
        &["create"]
    } else {
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    };
    let mut entries = vec![json!({
        "name": kind.plural, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
        "namespaced": kind.namespaced, "shortNames": kind.short,
        "categories": categories(kind),
        "verbs": verbs,
    })];
    for subresource in kind.subresources() {
        let mut entry = json!({
            "name": format!("{}/{subresource}", kind.plural), "singularName": "",
            "namespaced": kind.namespaced, "kind": kind.kind, "verbs": ["get", "patch", "update"],
        });
        let (kind, group, version) = match subresource {
            "scale" => ("Scale", "autoscaling", "v1"),
            "eviction" => ("Eviction", "policy", "v1"),
            "binding" => ("Binding", "", "v1"),
            _ => {
                entries.push(entry);
                continue;
            }
        };
        entry["kind"] = kind.into();
        entry["group"] = group.into();
        entry["version"] = version.into();
        if kind != "Scale" {
            entry["verbs"] = json!(["create"]);
        }
        entries.push(entry);
    }
    entries
}

/// What `kubectl get all` shows.
fn categories(kind: &Kind) -> Vec<&'static str> {
    let all = [
        "pods",
        "services",
        "deployments.apps",
        "replicasets.apps",
        "daemonsets.apps",
        "statefulsets.apps",
        "jobs.batch",
        "cronjobs.batch",
        "replicationcontrollers",
    ];
    if all.contains(&&*kind.storage) {
        vec!["all"]
    } else {
        vec![]
    }
}
