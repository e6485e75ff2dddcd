//! `CustomResourceDefinitions`: creating one serves its resource, in every served version. Schemas are
//! not enforced.

use serde_json::{Value, json};

use crate::{
    error::{ApiError, Cause},
    kinds::Kind,
    object::{items, meta, text},
    state::State,
};

/// Serves what a definition defines and says so in its status.
pub(crate) fn establish(state: &mut State, definition: &mut Value) -> Result<(), ApiError> {
    let group = text(definition, "/spec/group");
    let plural = text(definition, "/spec/names/plural");
    let expected = format!("{plural}.{group}");
    if meta(definition, "name") != expected {
        let name = meta(definition, "name").to_owned();
        let wrong = format!("must be spec.names.plural+\".\"+spec.group: {expected}");
        let cause = Cause::invalid("metadata.name", &name.clone().into(), &wrong);
        let kind = "CustomResourceDefinition.apiextensions.k8s.io".to_owned();
        return Err(ApiError::Invalid {
            kind,
            name,
            causes: vec![cause],
        });
    }
    let mut stored = Vec::new();
    for version in items(definition, "/spec/versions") {
        if version["storage"] == true {
            stored.push(version["name"].clone());
        }
        if version["served"] != false {
            state.kinds.add(kind(definition, version));
        }
    }
    let condition = |name: &str, reason: &str| {
        json!({"type": name, "status": "True", "reason": reason,
               "lastTransitionTime": state.now(), "message": ""})
    };
    if definition["status"]["conditions"].is_null() {
        definition["status"] = json!({
            "acceptedNames": definition["spec"]["names"], "storedVersions": stored,
            "conditions": [condition("NamesAccepted", "NoConflicts"),
                           condition("Established", "InitialNamesAccepted")],
        });
    }
    Ok(())
}

fn kind(definition: &Value, version: &Value) -> Kind {
    let short = items(definition, "/spec/names/shortNames");
    Kind {
        group: text(definition, "/spec/group").to_owned(),
        version: text(version, "/name").to_owned(),
        kind: text(definition, "/spec/names/kind").to_owned(),
        plural: text(definition, "/spec/names/plural").to_owned(),
        short: short
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        namespaced: text(definition, "/spec/scope") == "Namespaced",
        status: version["subresources"]["status"].is_object(),
        status_at_birth: false,
        scale: version["subresources"]["scale"].is_object(),
        generation: true,
        review: false,
        custom: true,
        storage: meta(definition, "name").into(),
    }
}

/// The resource a definition defines goes with it: its group and plural.
pub(crate) fn defined(definition: &Value) -> (&str, &str) {
    (
        text(definition, "/spec/group"),
        text(definition, "/spec/names/plural"),
    )
}
