//! Refusals, and how each is told: HTTP code, `metav1.Status` reason and message as Kubernetes words
//! them, because clients act on the code and the reason, and people search for the message.

use serde_json::{Value, json};

/// A request that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{resource} {name:?} not found")]
    NotFound { resource: String, name: String },
    #[error("the server could not find the requested resource")]
    NoSuchResource,
    #[error("{resource} {name:?} already exists")]
    AlreadyExists { resource: String, name: String },
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {why}")]
    Conflict {
        resource: String,
        name: String,
        why: String,
    },
    #[error("Apply failed with {} conflict{}: {}", .0.len(), if .0.len() == 1 { "" } else { "s" }, .0.join(", "))]
    ApplyConflict(Vec<String>),
    #[error("{kind} {name:?} is invalid: {}", told(.causes))]
    Invalid {
        kind: String,
        name: String,
        causes: Vec<Cause>,
    },
    #[error("{resource} {name:?} is forbidden: {why}")]
    Forbidden {
        resource: String,
        name: String,
        why: String,
    },
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    UnsupportedMediaType(String),
    #[error("{0}")]
    NotServed(String),
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("too old resource version: {asked} ({oldest})")]
    Expired { asked: u64, oldest: u64 },
    #[error("Too large resource version: {asked}, current: {current}")]
    TooLargeResourceVersion { asked: u64, current: u64 },
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, ….
    pub(crate) reason: &'static str,
    /// `spec.clusterIP`.
    pub(crate) field: String,
    /// What is wrong with it.
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn required(field: &str, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self {
            reason: "FieldValueRequired",
            field: field.to_owned(),
            message,
        }
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.to_owned(),
            message: format!("Forbidden: {detail}"),
        }
    }

    pub(crate) fn unsupported(field: &str, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.to_owned(),
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                quoted.join(", ")
            ),
        }
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {value}: {detail}");
        Self {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message,
        }
    }
}

fn told(causes: &[Cause]) -> String {
    let told: Vec<String> = causes
        .iter()
        .map(|c| format!("{}: {}", c.field, c.message))
        .collect();
    match told.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl ApiError {
    /// The HTTP status code.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Forbidden { .. } => 403,
            Self::NotFound { .. } | Self::NoSuchResource => 404,
            Self::MethodNotAllowed => 405,
            Self::AlreadyExists { .. } | Self::Conflict { .. } | Self::ApplyConflict(_) => 409,
            Self::Expired { .. } => 410,
            Self::TooLarge(_) => 413,
            Self::UnsupportedMediaType(_) => 415,
            Self::Invalid { .. } => 422,
            Self::NotServed(_) => 501,
            Self::TooLargeResourceVersion { .. } => 504,
        }
    }

    /// Whether the request was for something this server does not have, not for something it refuses.
    pub(crate) fn is_unserved(&self) -> bool {
        matches!(
            self,
            Self::NoSuchResource
                | Self::NotServed(_)
                | Self::MethodNotAllowed
                | Self::UnsupportedMediaType(_)
        )
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden { .. } => "Forbidden",
            Self::NotFound { .. } | Self::NoSuchResource => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Conflict { .. } | Self::ApplyConflict(_) => "Conflict",
            Self::Expired { .. } => "Expired",
            Self::TooLarge(_) => "RequestEntityTooLarge",
            Self::UnsupportedMediaType(_) => "UnsupportedMediaType",
            Self::Invalid { .. } => "Invalid",
            Self::NotServed(_) => "NotImplemented",
            Self::TooLargeResourceVersion { .. } => "Timeout",
        }
    }

    /// The `metav1.Status` that is sent.
    pub(crate) fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": self.reason(), "details": self.details(),
            "code": self.code(),
        })
    }

    fn details(&self) -> Value {
        match self {
            Self::NotFound { resource, name }
            | Self::AlreadyExists { resource, name }
            | Self::Conflict { resource, name, .. }
            | Self::Forbidden { resource, name, .. } => {
                let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
                json!({"name": name, "group": group, "kind": plural})
            }
            Self::Invalid { kind, name, causes } => {
                let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
                let causes: Vec<Value> = causes
                    .iter()
                    .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
                    .collect();
                json!({"name": name, "group": group, "kind": kind, "causes": causes})
            }
            Self::ApplyConflict(fields) => {
                let causes: Vec<Value> = fields
                    .iter()
                    .map(|field| json!({"reason": "FieldManagerConflict", "message": field}))
                    .collect();
                json!({"causes": causes})
            }
            Self::TooLargeResourceVersion { .. } => json!({
                "causes": [{"reason": "ResourceVersionTooLarge",
                            "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            }),
            _ => json!({}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_told_as_kubernetes_tells_it() {
        let refused = ApiError::NotFound {
            resource: "deployments.apps".into(),
            name: "web".into(),
        };
        let status = refused.status();
        assert_eq!(status["message"], "deployments.apps \"web\" not found");
        assert_eq!(
            status["details"],
            json!({"name": "web", "group": "apps", "kind": "deployments"})
        );
        assert_eq!(
            (status["reason"].as_str(), refused.code()),
            (Some("NotFound"), 404)
        );
    }

    #[test]
    fn every_wrong_field_is_named() {
        let refused = ApiError::Invalid {
            kind: "Service".into(),
            name: "web".into(),
            causes: vec![
                Cause::required("spec.ports", ""),
                Cause::invalid("spec.type", &json!("Foo"), "unknown"),
            ],
        };
        assert_eq!(
            refused.to_string(),
            "Service \"web\" is invalid: [spec.ports: Required value, \
             spec.type: Invalid value: \"Foo\": unknown]"
        );
    }
}
