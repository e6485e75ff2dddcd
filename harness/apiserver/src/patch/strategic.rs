//! Strategic merge patch: like a JSON merge patch, but lists that have a merge key are merged by
//! element, and directives (`$patch`, `$setElementOrder`, `$deleteFromPrimitiveList`, `$retainKeys`)
//! say what plain JSON cannot.

use serde_json::{Map, Value};

use crate::{
    error::ApiError,
    object::as_map,
    patch::merge_keys::{ListKind, list_kind},
};

/// Merges a patch into an object.
pub(crate) fn merge(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Some(patch) = patch.as_object() else {
        return Err(ApiError::BadRequest(
            "a strategic merge patch is an object".to_owned(),
        ));
    };
    merge_map("", as_map(object), patch)
}

fn merge_map(
    parent: &str,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            target.clone_from(patch);
            target.remove("$patch");
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => {
            return Err(ApiError::BadRequest(format!(
                "unknown patch directive {other:?}"
            )));
        }
    }
    if let Some(keys) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| keys.iter().any(|k| k == key));
    }
    for (field, value) in patch.iter().filter(|(field, _)| !field.starts_with('$')) {
        merge_field(parent, target, field, value)?;
    }
    for (directive, value) in patch {
        if let Some(field) = directive.strip_prefix("$deleteFromPrimitiveList/") {
            delete_primitives(target, field, value);
        } else if let Some(field) = directive.strip_prefix("$setElementOrder/") {
            set_order(parent, target, field, value);
        }
    }
    Ok(())
}

fn merge_field(
    parent: &str,
    target: &mut Map<String, Value>,
    field: &str,
    value: &Value,
) -> Result<(), ApiError> {
    match value {
        Value::Null => drop(target.remove(field)),
        Value::Object(patch) => {
            let slot = target.entry(field).or_insert(Value::Null);
            merge_map(field, as_map(slot), patch)?;
            if patch.get("$patch").is_some_and(|p| p == "delete") {
                target.remove(field);
            }
        }
        Value::Array(patch) => {
            let slot = target.entry(field).or_insert(Value::Null);
            let old = slot.as_array().cloned().unwrap_or_default();
            *slot = merge_list(field, list_kind(parent, field), old, patch)?.into();
        }
        scalar => drop(target.insert(field.to_owned(), scalar.clone())),
    }
    Ok(())
}

fn merge_list(
    field: &str,
    kind: ListKind,
    mut old: Vec<Value>,
    patch: &[Value],
) -> Result<Vec<Value>, ApiError> {
    match kind {
        ListKind::Atomic => Ok(patch.to_vec()),
        ListKind::Set => {
            for value in patch {
                if !old.contains(value) {
                    old.push(value.clone());
                }
            }
            Ok(old)
        }
        ListKind::Map(keys) => {
            if patch.iter().any(|p| p["$patch"] == "replace") {
                let rest = patch.iter().filter(|p| p["$patch"] != "replace");
                return Ok(rest.cloned().collect());
            }
            for element in patch {
                merge_element(field, keys[0], &mut old, element)?;
            }
            Ok(old)
        }
    }
}

fn merge_element(
    field: &str,
    key: &str,
    list: &mut Vec<Value>,
    patch: &Value,
) -> Result<(), ApiError> {
    let (Some(map), false) = (patch.as_object(), patch[key].is_null()) else {
        return Err(ApiError::BadRequest(format!(
            "map: {patch} does not contain declared merge key: {key}"
        )));
    };
    if patch["$patch"] == "delete" {
        list.retain(|element| element[key] != patch[key]);
        return Ok(());
    }
    if let Some(element) = list.iter_mut().find(|element| element[key] == patch[key]) {
        return merge_map(field, as_map(element), map);
    }
    let mut element = Map::new();
    merge_map(field, &mut element, map)?;
    list.push(element.into());
    Ok(())
}

fn delete_primitives(target: &mut Map<String, Value>, field: &str, unwanted: &Value) {
    let unwanted = unwanted.as_array().map_or(&[][..], Vec::as_slice);
    if let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|value| !unwanted.contains(value));
    }
}

/// Sorts the elements that the order names; the others follow.
fn set_order(parent: &str, target: &mut Map<String, Value>, field: &str, order: &Value) {
    let order = order.as_array().map_or(&[][..], Vec::as_slice);
    let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) else {
        return;
    };
    let place = |value: &Value| match list_kind(parent, field) {
        ListKind::Map(keys) => order.iter().position(|o| o[keys[0]] == value[keys[0]]),
        _ => order.iter().position(|o| o == value),
    };
    list.sort_by_key(|value| place(value).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(object: &Value, patch: &Value) -> Value {
        let mut object = object.clone();
        merge(&mut object, patch).unwrap();
        object
    }

    fn pod() -> Value {
        json!({"spec": {"containers": [
            {"name": "web", "image": "nginx:1", "env": [{"name": "A", "value": "1"}],
             "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            {"name": "side", "image": "side:1"}],
            "tolerations": [{"key": "a"}, {"key": "b"}]}})
    }

    #[test]
    fn a_container_is_patched_by_name_and_the_others_stay() {
        let patch = json!({"spec": {"containers": [{"name": "web", "image": "nginx:2",
            "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 80, "name": "http"}]}]}});
        let after = merged(&pod(), &patch);
        let web = &after["spec"]["containers"][0];
        assert_eq!(web["image"], "nginx:2");
        assert_eq!(
            web["env"],
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
        );
        assert_eq!(
            web["ports"],
            json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}])
        );
        assert_eq!(
            after["spec"]["containers"][1],
            pod()["spec"]["containers"][1]
        );
    }

    #[test]
    fn a_list_without_a_merge_key_is_replaced() {
        let after = merged(&pod(), &json!({"spec": {"tolerations": [{"key": "c"}]}}));
        assert_eq!(after["spec"]["tolerations"], json!([{"key": "c"}]));
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let gone = json!({"spec": {"containers": [{"$patch": "delete", "name": "web"}]}});
        assert_eq!(
            merged(&pod(), &gone)["spec"]["containers"],
            json!([{"name": "side", "image": "side:1"}])
        );
        let only = json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "new"}]}});
        assert_eq!(
            merged(&pod(), &only)["spec"]["containers"],
            json!([{"name": "new"}])
        );
        let order =
            json!({"spec": {"$setElementOrder/containers": [{"name": "side"}, {"name": "web"}]}});
        assert_eq!(
            merged(&pod(), &order)["spec"]["containers"][0]["name"],
            "side"
        );
        let object = json!({"metadata": {"finalizers": ["a", "b"]}});
        let without = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"],
            "finalizers": ["c"]}});
        assert_eq!(
            merged(&object, &without)["metadata"]["finalizers"],
            json!(["b", "c"])
        );
        let object = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}});
        let retain = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
        assert_eq!(
            merged(&object, &retain)["spec"]["strategy"],
            json!({"type": "Recreate"})
        );
    }

    #[test]
    fn an_element_without_its_merge_key_is_refused() {
        let patch = json!({"spec": {"containers": [{"image": "x"}]}});
        assert!(merge(&mut pod(), &patch).is_err());
    }

    #[test]
    fn a_patch_applied_twice_is_a_patch_applied_once() {
        for patch in [
            json!({"spec": {"containers": [{"name": "web", "image": "b"}, {"name": "z"}]}}),
            json!({"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}),
            json!({"spec": {"tolerations": null, "x": {"y": [1, 2]}}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "side"}]}}),
        ] {
            let once = merged(&pod(), &patch);
            assert_eq!(merged(&once, &patch), once, "{patch}");
        }
    }
}
