//! Questions about what the asker may do and who that is. The server knows nobody and forbids nothing; clients are what an
//! API server's insecure port called them (kube-apiserver 1.20, `pkg/server/deprecated_insecure_serving.go`).

use serde_json::{Value, json};

use crate::{create::check_type, error::ApiError, kinds::Kind};

/// The question with its answer.
pub(crate) fn answer(kind: &Kind, mut question: Value) -> Result<Value, ApiError> {
    check_type(kind, &question)?;
    question["apiVersion"] = kind.group_version().into();
    question["kind"] = kind.kind.clone().into();
    question["status"] = match &*kind.kind {
        "SelfSubjectAccessReview" => json!({"allowed": true, "reason": "the lab forbids nothing"}),
        "SelfSubjectRulesReview" => json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
        _ => json!({"userInfo": {
            "username": "system:unsecured", "groups": ["system:masters", "system:authenticated"],
        }}),
    };
    Ok(question)
}
