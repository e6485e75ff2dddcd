//! Sets of fields, as `metadata.managedFields` tells them (`fieldsV1`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::patch::merge_keys::{ListKind, key_default, list_kind};

/// One step of a path, in `fieldsV1` notation: `f:spec`, `k:{"name":"web"}`, `v:"a"`.
pub(crate) type Step = String;

/// Paths to leaves: scalars, atomic lists, empty maps, and elements of lists.
pub(crate) type FieldSet = BTreeSet<Vec<Step>>;

/// The fields an applied configuration names; identity and type are not owned.
pub(crate) fn fields_of(applied: &Value, custom: bool) -> FieldSet {
    let mut fields = FieldSet::new();
    walk("", applied, custom, &mut Vec::new(), &mut fields);
    let identity = [
        "f:name",
        "f:namespace",
        "f:uid",
        "f:resourceVersion",
        "f:creationTimestamp",
    ];
    fields.retain(|path| match path.as_slice() {
        [top, ..] if top == "f:apiVersion" || top == "f:kind" => false,
        [top, field, ..] if top == "f:metadata" => !identity.contains(&field.as_str()),
        [top] => top != "f:metadata",
        _ => true,
    });
    fields
}

fn walk(field: &str, value: &Value, custom: bool, path: &mut Vec<Step>, fields: &mut FieldSet) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                path.push(format!("f:{name}"));
                match value {
                    Value::Array(list) if !custom => walk_list(field, name, list, path, fields),
                    _ => walk(name, value, custom, path, fields),
                }
                path.pop();
            }
        }
        _ => {
            fields.insert(path.clone());
        }
    }
}

fn walk_list(
    parent: &str,
    field: &str,
    list: &[Value],
    path: &mut Vec<Step>,
    fields: &mut FieldSet,
) {
    match list_kind(parent, field) {
        ListKind::Map(keys) => {
            for element in list {
                path.push(key_step(element, keys));
                // The element itself is owned too, so that it goes when all of it is given up.
                fields.insert(path.clone());
                walk(field, element, false, path, fields);
                path.pop();
            }
        }
        ListKind::Set => {
            for value in list {
                path.push(format!("v:{value}"));
                fields.insert(path.clone());
                path.pop();
            }
        }
        ListKind::Atomic => {
            fields.insert(path.clone());
        }
    }
}

/// Names an element of a list by its keys.
pub(crate) fn key_step(element: &Value, keys: &[&str]) -> Step {
    let mut map = Map::new();
    for key in keys {
        let value = match &element[*key] {
            Value::Null => key_default(key).map_or(Value::Null, Value::from),
            value => value.clone(),
        };
        map.insert((*key).to_owned(), value);
    }
    format!("k:{}", Value::Object(map))
}

/// As `fieldsV1`.
pub(crate) fn to_json(fields: &FieldSet) -> Value {
    let mut root = Map::new();
    for path in fields {
        let mut map = &mut root;
        for step in path {
            let slot = map
                .entry(step.clone())
                .or_insert_with(|| Value::Object(Map::new()));
            map = slot.as_object_mut().expect("only maps are inserted");
        }
        if path.last().is_some_and(|step| step.starts_with("k:")) {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
    }
    root.into()
}

/// From `fieldsV1`.
pub(crate) fn from_json(value: &Value) -> FieldSet {
    let mut fields = FieldSet::new();
    read(value, &mut Vec::new(), &mut fields);
    fields
}

fn read(value: &Value, path: &mut Vec<Step>, fields: &mut FieldSet) {
    let Some(map) = value.as_object() else { return };
    if map.is_empty() || map.contains_key(".") {
        fields.insert(path.clone());
    }
    for (step, value) in map.iter().filter(|(step, _)| *step != ".") {
        path.push(step.clone());
        read(value, path, fields);
        path.pop();
    }
}

/// The value a path leads to.
pub(crate) fn lookup<'a>(value: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter()
        .try_fold(value, |value, step| match step.split_once(':')? {
            ("f", field) => value.get(field),
            ("k", keys) => find(value.as_array()?, keys).map(|i| &value[i]),
            _ => {
                let wanted: Value = serde_json::from_str(step.get(2..)?).ok()?;
                value.as_array()?.iter().find(|v| **v == wanted)
            }
        })
}

/// Removes what a path leads to.
pub(crate) fn remove(value: &mut Value, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    match (step.split_once(':'), rest.is_empty()) {
        (Some(("f", field)), true) => {
            if let Some(map) = value.as_object_mut() {
                map.remove(field);
            }
        }
        (Some(("f", field)), false) => {
            if let Some(inner) = value.get_mut(field) {
                remove(inner, rest);
            }
        }
        (Some(("k", keys)), last) => {
            let Some(list) = value.as_array_mut() else {
                return;
            };
            match find(list, keys) {
                Some(i) if last => drop(list.remove(i)),
                Some(i) => remove(&mut list[i], rest),
                None => {}
            }
        }
        (Some((_, text)), _) => {
            if let (Some(list), Ok(wanted)) =
                (value.as_array_mut(), serde_json::from_str::<Value>(text))
            {
                list.retain(|v| *v != wanted);
            }
        }
        (None, _) => {}
    }
}

fn find(list: &[Value], keys: &str) -> Option<usize> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    let names: Vec<&str> = keys.keys().map(String::as_str).collect();
    let wanted = key_step(&Value::Object(keys.clone()), &names);
    list.iter()
        .position(|element| key_step(element, &names) == wanted)
}
