//! The four kinds of patch. Each is a pure function of the object and the patch; the result goes
//! through the same checks as an update.

pub(crate) mod apply;
pub(crate) mod fields;
pub(crate) mod merge_keys;
pub(crate) mod strategic;

use json_patch::{Patch, PatchOperation, patch_unsafe};
use serde_json::Value;

use crate::{
    error::{ApiError, Cause},
    kinds::Kind,
    object::{encode, meta, text},
};

/// How a patch is meant, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    pub(crate) fn of(content_type: &str, kind: &Kind) -> Result<Self, ApiError> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !kind.custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(ApiError::UnsupportedMediaType(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/apply-patch+yaml{}",
                if kind.custom {
                    ""
                } else {
                    ", application/strategic-merge-patch+json"
                }
            ))),
        }
    }
}

/// The object with a patch applied; server-side apply is not one of these, it needs the manager.
pub(crate) fn patched(how: PatchKind, object: &Value, patch: &Value) -> Result<Value, ApiError> {
    let mut value = object.clone();
    match how {
        PatchKind::Json => json_patch(&mut value, patch)?,
        PatchKind::Strategic => strategic::merge(&mut value, patch)?,
        PatchKind::Merge | PatchKind::Apply => json_patch::merge(&mut value, patch),
    }
    Ok(value)
}

/// How many bytes of JSON the copies of a patch may come to, as Kubernetes bounds them (`apiserver/pkg/server/config.go`): each can
/// double an object.
const MAX_COPIED: usize = 3 * 1024 * 1024;

fn json_patch(value: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let operations: Patch = serde_json::from_value(patch.clone())
        .map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}")))?;
    let (kind, name) = (
        text(value, "/kind").to_owned(),
        meta(value, "name").to_owned(),
    );
    let refused = |why: String| ApiError::Invalid {
        kind: kind.clone(),
        name: name.clone(),
        causes: vec![Cause {
            reason: "FieldValueInvalid",
            field: "patch".to_owned(),
            message: format!("the patch does not apply: {why}"),
        }],
    };
    let mut copied = 0;
    for (index, operation) in operations.iter().enumerate() {
        copied += copies(value, operation);
        if copied > MAX_COPIED {
            return Err(refused(format!(
                "its copies come to {copied} bytes, more than {MAX_COPIED}"
            )));
        }
        // The value is nobody's but this patch's: there is nothing to undo.
        let applied = patch_unsafe(value, std::slice::from_ref(operation));
        applied.map_err(|mut error| {
            error.operation = index;
            refused(error.to_string())
        })?;
    }
    Ok(())
}

/// How many bytes of JSON an operation copies.
fn copies(value: &Value, operation: &PatchOperation) -> usize {
    match operation {
        PatchOperation::Copy(copy) => value
            .pointer(copy.from.as_str())
            .map_or(0, |source| encode(source).len()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labelled() -> Value {
        json!({"kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}})
    }

    fn copies_of_itself(count: usize) -> Value {
        let copy = |to| json!({"op": "copy", "from": "/metadata/labels", "path": format!("/metadata/labels/{to}")});
        (0..count).map(copy).collect()
    }

    #[test]
    fn copies_cannot_grow_an_object_beyond_their_bound() {
        let object = labelled();
        let twice = patched(PatchKind::Json, &object, &copies_of_itself(2)).unwrap();
        assert_eq!(
            twice["metadata"]["labels"],
            json!({"a": "b", "0": {"a": "b"}, "1": {"a": "b", "0": {"a": "b"}}})
        );
        let refused = patched(PatchKind::Json, &object, &copies_of_itself(60)).unwrap_err();
        assert_eq!(refused.code(), 422);
    }

    #[test]
    fn a_refused_patch_says_which_of_its_operations_does_not_apply() {
        let patch = json!([
            {"op": "test", "path": "/kind", "value": "Pod"},
            {"op": "remove", "path": "/kind"},
            {"op": "remove", "path": "/kind"}
        ]);
        let refused = patched(PatchKind::Json, &labelled(), &patch).unwrap_err();
        let ApiError::Invalid { kind, name, causes } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((kind.as_str(), name.as_str()), ("Pod", "x"));
        assert!(causes[0].message.contains("operation '/2'"), "{causes:?}");
    }
}
