//! As much `OpenAPI` as kubectl needs: for each kind a patch that takes `fieldValidation`, so that it leaves validation
//! to the server, and the fields of built-in kinds for `explain` and for the patches of `apply` (kubectl 1.34,
//! `pkg/explain/v2` and `pkg/cmd/apply/patcher.go`). Of Calico's kinds and of those of definitions nothing is told but that
//! they are objects. Unknown fields are kept, not refused.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::{
    kinds::{Kind, Kinds},
    schema::{Field, Schema, Shape},
};

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
    let served: Vec<_> = served.collect();
    let paths: Map<String, Value> = served.iter().map(|k| (path(k), operations(k))).collect();
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.32.0"},
           "paths": paths, "components": {"schemas": schemas(&served)}})
}

/// The types of kinds and all that are in them, by their names in `OpenAPI`.
fn schemas(kinds: &[&Arc<Kind>]) -> Map<String, Value> {
    let schema = Schema::get();
    let type_of = |kind: &Kind| schema.named(&kind.group_version(), &kind.kind);
    let types = schema.closure(kinds.iter().filter_map(|kind| type_of(kind)));
    let told = types
        .into_iter()
        .map(|name| (named(name), object(schema, name)));
    let mut schemas: Map<String, Value> = told.collect();
    for kind in kinds {
        let name = type_of(kind).map_or_else(|| format!("custom.{}", kind.kind), named);
        let about = format!(
            "{} of {}: its fields are not described here",
            kind.kind, kind.group
        );
        let entry = schemas
            .entry(name)
            .or_insert_with(|| json!({"type": "object", "description": about}));
        entry["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
        if type_of(kind).is_some() {
            entry["properties"]["apiVersion"] = json!({"type": "string"});
            entry["properties"]["kind"] = json!({"type": "string"});
        }
    }
    schemas
}

/// `io.k8s.api.core.v1.Pod` of `core/v1.Pod`, as Kubernetes calls them.
fn named(name: &str) -> String {
    let package = if name.starts_with("meta/") {
        "io.k8s.apimachinery.pkg.apis"
    } else {
        "io.k8s.api"
    };
    format!("{package}.{}", name.replace('/', "."))
}

fn object(schema: &Schema, name: &str) -> Value {
    let property = |field: &Field| Some((field.name?.to_owned(), property(field)));
    let properties: Map<String, Value> = schema.fields(name).filter_map(property).collect();
    json!({"type": "object", "properties": properties})
}

fn property(field: &Field) -> Value {
    let mut value = shaped(&field.shape);
    let (strategy, key) = field.patch;
    if !strategy.is_empty() {
        value["x-kubernetes-patch-strategy"] = strategy.into();
    }
    if !key.is_empty() {
        value["x-kubernetes-patch-merge-key"] = key.into();
    }
    value
}

fn shaped(shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Quantity => json!({"type": "string"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Int32 => json!({"type": "integer", "format": "int32"}),
        Shape::Int64 => json!({"type": "integer", "format": "int64"}),
        Shape::Bytes => json!({"type": "string", "format": "byte"}),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::IntOrString => json!({"type": "string", "format": "int-or-string"}),
        Shape::Raw => json!({"type": "object"}),
        Shape::List(inner) => json!({"type": "array", "items": shaped(inner)}),
        Shape::Map(inner) => json!({"type": "object", "additionalProperties": shaped(inner)}),
        // What stands beside a reference counts only around it.
        Shape::Object(name) => {
            json!({"allOf": [{"$ref": format!("#/components/schemas/{}", named(name))}]})
        }
    }
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
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
        "x-kubernetes-group-version-kind": group_version_kind(kind),
    }})
}
