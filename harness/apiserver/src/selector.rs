//! Label and field selectors. Text is as in queries: `app=web,tier in (a,b),!legacy`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{error::ApiError, kinds::Kind, object::text};

/// A condition on one label or field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Exists(String),
    Absent(String),
    In(String, BTreeSet<String>),
    /// Also true when the label is absent, as in Kubernetes.
    NotIn(String, BTreeSet<String>),
}

impl Term {
    fn holds(&self, value: impl Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
            Self::In(key, set) => value(key).is_some_and(|v| set.contains(&v)),
            Self::NotIn(key, set) => value(key).is_none_or(|v| !set.contains(&v)),
        }
    }

    fn key(&self) -> &str {
        match self {
            Self::Exists(key) | Self::Absent(key) | Self::In(key, _) | Self::NotIn(key, _) => key,
        }
    }
}

/// Both selectors of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Term>,
    fields: Vec<Term>,
}

impl Selector {
    /// Reads both; a field must be one Kubernetes can select this kind by.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = terms(labels)?;
        let fields = terms(fields)?;
        for term in &fields {
            let known = selectable(kind).contains(&term.key());
            if !known || matches!(term, Term::Exists(_) | Term::Absent(_)) {
                return Err(ApiError::BadRequest(format!(
                    "Unable to find {:?} that match label selector \"\", field selector {:?}: \
                     field label not supported: {}",
                    kind.resource(),
                    term.key(),
                    term.key()
                )));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| {
            object["metadata"]["labels"][key]
                .as_str()
                .map(str::to_owned)
        };
        self.labels.iter().all(|term| term.holds(label))
            && self
                .fields
                .iter()
                .all(|term| term.holds(|path| Some(field(object, path))))
    }
}

/// A field by its dotted path; absent ones are empty, as in Kubernetes.
fn field(object: &Value, path: &str) -> String {
    let pointer = format!("/{}", path.replace('.', "/"));
    match object.pointer(&pointer) {
        None if path == "spec.unschedulable" || path == "spec.hostNetwork" => "false".to_owned(),
        None | Some(Value::Null) => String::new(),
        Some(Value::String(value)) => value.clone(),
        Some(Value::Object(_)) if path == "source" => text(object, "/source/component").to_owned(),
        Some(other) => other.to_string(),
    }
}

fn selectable(kind: &Kind) -> Vec<&'static str> {
    let mut fields = vec!["metadata.name"];
    if kind.namespaced {
        fields.push("metadata.namespace");
    }
    let more: &[&str] = match &*kind.storage {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "services" => &["spec.clusterIP", "spec.type"],
        "replicasets.apps" | "replicationcontrollers" => &["status.replicas"],
        _ => &[],
    };
    fields.extend(more);
    fields
}

fn terms(selector: &str) -> Result<Vec<Term>, ApiError> {
    split(selector)
        .into_iter()
        .map(str::trim)
        .filter(|t| !t.is_empty())
        .map(term)
        .collect()
}

/// Splits at commas outside parentheses.
fn split(selector: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    selector
        .split(move |c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        })
        .collect()
}

fn term(text: &str) -> Result<Term, ApiError> {
    let one = |value: &str| BTreeSet::from([value.trim().to_owned()]);
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Term::Absent(label_key(key)?));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Term::NotIn(label_key(key)?, one(value)));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Term::In(label_key(key)?, one(value)));
    }
    if let Some((key, set)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        let set = set.split(',').map(|v| v.trim().to_owned()).collect();
        let key = key.trim();
        if let Some(key) = key.strip_suffix(" notin") {
            return Ok(Term::NotIn(label_key(key)?, set));
        }
        if let Some(key) = key.strip_suffix(" in") {
            return Ok(Term::In(label_key(key)?, set));
        }
    }
    Ok(Term::Exists(label_key(text)?))
}

fn label_key(key: &str) -> Result<String, ApiError> {
    let key = key.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(legal) {
        return Err(ApiError::BadRequest(format!(
            "unable to parse requirement: {key:?}"
        )));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kinds;

    fn selects(labels: &str, fields: &str, object: &Value) -> Result<bool, ApiError> {
        let kinds = Kinds::default();
        let pods = kinds.find("", "v1", "pods").unwrap();
        Selector::parse(pods, labels, fields).map(|s| s.matches(object))
    }

    #[test]
    fn label_selectors_mean_what_kubernetes_means() {
        let pod = json!({"metadata": {"labels": {"app": "web", "a.b/tier": "x"}}});
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app=db", false),
            ("app!=db", true),
            ("missing!=db", true),
            ("app", true),
            ("!app", false),
            ("!a,!b", true),
            ("a.b/tier in (y, x),app", true),
            ("a.b/tier notin (y, x)", false),
            ("missing notin (y)", true),
            ("missing in (y)", false),
        ] {
            assert_eq!(selects(selector, "", &pod), Ok(expected), "{selector}");
        }
    }

    #[test]
    fn field_selectors_read_the_object_and_refuse_what_is_not_selectable() {
        let pod = json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}});
        assert_eq!(
            selects("", "spec.nodeName=n1,metadata.name=x", &pod),
            Ok(true)
        );
        assert_eq!(selects("", "spec.nodeName!=n1", &pod), Ok(false));
        assert_eq!(selects("", "status.phase=", &pod), Ok(true));
        assert!(selects("", "spec.color=red", &pod).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        let pod = json!({});
        for selector in ["=x", "a b", "app in web", "(x)", "!"] {
            assert!(selects(selector, "", &pod).is_err(), "{selector}");
        }
    }
}
