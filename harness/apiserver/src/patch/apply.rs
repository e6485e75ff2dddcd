//! Server-side apply: what a manager applies is merged in, what it applied before and applies no
//! longer is removed, what another manager applied differently is a conflict unless forced.
//!
//! Only appliers are tracked; a plain update or patch owns nothing and so never conflicts.

use serde_json::{Map, Value, json};

use crate::{
    error::ApiError,
    object::{as_map, items, map_at, text},
    patch::{
        fields::{self, FieldSet, fields_of},
        merge_keys::{ListKind, list_kind},
    },
};

/// One apply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apply<'a> {
    pub(crate) manager: &'a str,
    pub(crate) force: bool,
    /// Lists of custom resources are replaced whole.
    pub(crate) custom: bool,
    pub(crate) now: &'a str,
}

impl Apply<'_> {
    /// The live object with a configuration applied. A new object starts from an empty one.
    pub(crate) fn to(self, live: &Value, applied: &Value) -> Result<Value, ApiError> {
        if self.manager.is_empty() {
            return Err(ApiError::BadRequest(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is \
                 required for apply patch"
                    .to_owned(),
            ));
        }
        let now = fields_of(applied, self.custom);
        let managers = managers(live);
        let others: Vec<&(String, FieldSet)> = managers
            .iter()
            .filter(|(name, _)| name != self.manager)
            .collect();
        self.check_conflicts(live, applied, &now, &others)?;
        let mut merged = live.clone();
        merge("", self.custom, &mut merged, applied);
        let before = managers.iter().find(|(name, _)| name == self.manager);
        // Shortest paths first: an element goes whole, while its keys still tell it.
        for path in before.into_iter().flat_map(|(_, fields)| fields.iter()) {
            let kept = now
                .iter()
                .chain(others.iter().flat_map(|(_, fields)| fields));
            if !kept.into_iter().any(|owned| owned.starts_with(path)) {
                fields::remove(&mut merged, path);
            }
        }
        self.record(&mut merged, &now, &others);
        Ok(merged)
    }

    fn check_conflicts(
        self,
        live: &Value,
        applied: &Value,
        now: &FieldSet,
        others: &[&(String, FieldSet)],
    ) -> Result<(), ApiError> {
        let mut conflicts = Vec::new();
        for (manager, fields) in others.iter().copied() {
            for path in now.intersection(fields) {
                let element = path.last().is_some_and(|step| !step.starts_with("f:"));
                if !element && fields::lookup(live, path) != fields::lookup(applied, path) {
                    conflicts.push(format!("conflict with {manager:?}: {}", told(path)));
                }
            }
        }
        if conflicts.is_empty() || self.force {
            return Ok(());
        }
        Err(ApiError::ApplyConflict(conflicts))
    }

    fn record(self, merged: &mut Value, now: &FieldSet, others: &[&(String, FieldSet)]) {
        let version = merged["apiVersion"].clone();
        let entry = |manager: &str, fields: &FieldSet, time: &str| {
            json!({"manager": manager, "operation": "Apply", "apiVersion": version, "time": time,
                   "fieldsType": "FieldsV1", "fieldsV1": fields::to_json(fields)})
        };
        let mut entries = Vec::new();
        for (manager, owned) in others.iter().copied() {
            // A forced apply takes what it names.
            let left: FieldSet = if self.force {
                owned
                    .iter()
                    .filter(|p| !now.contains(*p) || shared(p))
                    .cloned()
                    .collect()
            } else {
                owned.clone()
            };
            if !left.is_empty() {
                entries.push(entry(manager, &left, self.now));
            }
        }
        entries.push(entry(self.manager, now, self.now));
        let metadata = map_at(merged, "metadata");
        // Applying the same again must not look like a change.
        let old = metadata.get("managedFields").cloned().unwrap_or_default();
        if without_time(&old) != without_time(&Value::Array(entries.clone())) {
            metadata.insert("managedFields".to_owned(), entries.into());
        }
    }
}

fn shared(path: &[String]) -> bool {
    path.last().is_some_and(|step| !step.starts_with("f:"))
}

fn without_time(entries: &Value) -> Vec<Map<String, Value>> {
    let maps = entries
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .cloned();
    let mut maps: Vec<Map<String, Value>> = maps.collect();
    for map in &mut maps {
        map.remove("time");
    }
    maps.sort_by_key(|map| map.get("manager").map(ToString::to_string));
    maps
}

fn managers(live: &Value) -> Vec<(String, FieldSet)> {
    items(live, "/metadata/managedFields")
        .iter()
        .filter(|entry| entry["operation"] == "Apply")
        .map(|entry| {
            (
                text(entry, "/manager").to_owned(),
                fields::from_json(&entry["fieldsV1"]),
            )
        })
        .collect()
}

fn told(path: &[String]) -> String {
    path.iter()
        .fold(String::new(), |told, step| match step.split_once(':') {
            Some(("f", field)) => format!("{told}.{field}"),
            _ => format!(
                "{told}[{}]",
                step.split_once(':').map_or("", |(_, rest)| rest)
            ),
        })
}

fn merge(field: &str, custom: bool, target: &mut Value, applied: &Value) {
    let Some(map) = applied.as_object() else {
        *target = applied.clone();
        return;
    };
    let target = as_map(target);
    for (name, value) in map {
        let slot = target.entry(name).or_insert(Value::Null);
        match value {
            Value::Array(list) if !custom => merge_list(field, name, slot, list),
            _ => merge(name, custom, slot, value),
        }
    }
}

fn merge_list(parent: &str, field: &str, target: &mut Value, applied: &[Value]) {
    let mut list = target.as_array().cloned().unwrap_or_default();
    match list_kind(parent, field) {
        ListKind::Atomic => list = applied.to_vec(),
        ListKind::Set => {
            for value in applied {
                if !list.contains(value) {
                    list.push(value.clone());
                }
            }
        }
        ListKind::Map(keys) => {
            for element in applied {
                let step = fields::key_step(element, keys);
                match list.iter_mut().find(|e| fields::key_step(e, keys) == step) {
                    Some(slot) => merge(field, false, slot, element),
                    None => list.push(element.clone()),
                }
            }
        }
    }
    *target = list.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(manager: &str, force: bool, live: &Value, applied: &Value) -> Result<Value, ApiError> {
        Apply {
            manager,
            force,
            custom: false,
            now: "t",
        }
        .to(live, applied)
    }

    #[test]
    fn what_is_no_longer_applied_goes_and_what_others_set_stays() {
        let first = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"ports": [
            {"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]}});
        let mut live = apply("me", false, &json!({}), &first).unwrap();
        live["metadata"]["labels"]["other"] = "x".into();
        live["spec"]["ports"][0]["nodePort"] = 30000.into();
        let second = json!({"metadata": {"labels": {"a": "3"}}, "spec": {"ports": [{"port": 80}]}});
        let after = apply("me", false, &live, &second).unwrap();
        assert_eq!(after["metadata"]["labels"], json!({"a": "3", "other": "x"}));
        assert_eq!(after["spec"]["ports"].as_array().map(Vec::len), Some(1));
        assert_eq!(after["spec"]["ports"][0]["nodePort"], 30000);
    }

    #[test]
    fn two_managers_that_disagree_conflict_until_one_forces() {
        let live = apply("a", false, &json!({}), &json!({"spec": {"replicas": 1}})).unwrap();
        let wanted = json!({"spec": {"replicas": 2}});
        let refused = apply("b", false, &live, &wanted).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas"
        );
        let forced = apply("b", true, &live, &wanted).unwrap();
        assert_eq!(forced["spec"]["replicas"], 2);
        // The loser no longer owns the field: giving it up does not remove it.
        let after = apply("a", false, &forced, &json!({"spec": {}})).unwrap();
        assert_eq!(after["spec"]["replicas"], 2);
    }

    #[test]
    fn applying_the_same_again_changes_nothing() {
        let wanted = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
        let once = apply("a", false, &json!({}), &wanted).unwrap();
        assert_eq!(apply("a", false, &once, &wanted).unwrap(), once);
    }
}
