//! As much `OpenAPI` as kubectl needs to leave validation to the server: for each kind, a patch that
//! takes `fieldValidation`. There are no schemas; unknown fields are kept, not refused.

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Kinds};

/// `/openapi/v3`.
pub(crate) fn index(kinds: &Kinds) -> Value {
    let mut paths = Map::new();
    for kind in kinds.iter() {
        let path = root(kind);
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// `/openapi/v3/apis/<group>/<version>`.
pub(crate) fn document(kinds: &Kinds, group: &str, version: &str) -> Value {
    let served = kinds
        .iter()
        .filter(|k| k.group == group && k.version == version);
    let paths: Map<String, Value> = served.map(|k| (path(k), operations(k))).collect();
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.32.0"},
           "paths": paths, "components": {"schemas": {}}})
}

/// `/openapi/v2` for those who ask for JSON.
pub(crate) fn v2(kinds: &Kinds) -> Value {
    let paths: Map<String, Value> = kinds.iter().map(|k| (path(k), operations(k))).collect();
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.32.0"},
           "paths": paths, "definitions": {}})
}

fn root(kind: &Kind) -> String {
    let prefix = if kind.group.is_empty() { "api" } else { "apis" };
    format!("{prefix}/{}", kind.group_version())
}

fn path(kind: &Kind) -> String {
    let within = if kind.namespaced {
        "namespaces/{namespace}/"
    } else {
        ""
    };
    format!("/{}/{within}{}/{{name}}", root(kind), kind.plural)
}

fn operations(kind: &Kind) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    json!({"patch": {
        "operationId": format!("patch{}", kind.kind),
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind":
            {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }})
}
