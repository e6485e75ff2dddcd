//! The four kinds of patch. Each is a pure function of the object and the patch; the result goes
//! through the same checks as an update.

pub(crate) mod apply;
pub(crate) mod fields;
pub(crate) mod merge_keys;
pub(crate) mod strategic;

use serde_json::Value;

use crate::{
    error::{ApiError, Cause},
    kinds::Kind,
    object::{meta, text},
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

fn json_patch(value: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}")))?;
    json_patch::patch(value, &operations).map_err(|error| {
        let message = format!("the patch does not apply: {error}");
        let cause = Cause {
            reason: "FieldValueInvalid",
            field: "patch".to_owned(),
            message,
        };
        let (kind, name) = (
            text(value, "/kind").to_owned(),
            meta(value, "name").to_owned(),
        );
        ApiError::Invalid {
            kind,
            name,
            causes: vec![cause],
        }
    })
}
