//! Whether a request is only to be tried (`--dry-run=server`, `kubectl diff`).

use serde_json::{Value, json};

use super::Call;
use crate::error::{ApiError, Cause};

/// Said as a parameter, and of a deletion or an eviction in the body. There is one kind of it (apimachinery's
/// meta/v1/validation, `ValidateDryRun`).
pub(super) fn asked(call: &Call) -> Result<bool, ApiError> {
    if call.method == "GET" {
        return Ok(false);
    }
    let mut said = match call.query.text("dryRun") {
        "" => vec![],
        text => vec![json!(text)],
    };
    let is_eviction = call.address.subresource.as_deref() == Some("eviction");
    if (call.method == "DELETE" || is_eviction) && !call.body.is_empty() {
        let body = call.json()?;
        let options = if is_eviction {
            &body["deleteOptions"]
        } else {
            &body
        };
        said.extend(options["dryRun"].as_array().cloned().unwrap_or_default());
    }
    match said.iter().find(|it| *it != "All") {
        None => Ok(!said.is_empty()),
        Some(other) => Err(refused(call.method, other)),
    }
}

fn refused(method: &str, said: &Value) -> ApiError {
    let options = match method {
        "POST" => "CreateOptions",
        "PUT" => "UpdateOptions",
        "PATCH" => "PatchOptions",
        _ => "DeleteOptions",
    };
    ApiError::Invalid {
        kind: format!("{options}.meta.k8s.io"),
        name: String::new(),
        causes: vec![Cause::unsupported("dryRun", said, &["All"])],
    }
}
