//! Objects as they are stored: the JSON value, and its encoding made once however many watches
//! send it.

use std::{fmt, sync::OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};

/// A stored object; never changed, only replaced.
pub(crate) struct Object {
    value: Value,
    encoded: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(value: Value) -> Self {
        Self {
            value,
            encoded: OnceLock::new(),
        }
    }

    /// The object in the shape of its storage version.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Its encoding, computed on first use.
    pub(crate) fn encoded(&self) -> Bytes {
        self.encoded.get_or_init(|| encode(&self.value)).clone()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)
    }
}

/// JSON text of a value.
pub(crate) fn encode(value: &Value) -> Bytes {
    serde_json::to_vec(value)
        .expect("a JSON value has string keys")
        .into()
}

/// Where an object lives within its resource; cluster-scoped objects have an empty namespace. Ordered
/// as lists are: by namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn of(value: &Value) -> Self {
        Self::new(meta(value, "namespace"), meta(value, "name"))
    }
}

/// A text field at a JSON pointer; empty when absent.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A text field of the metadata; empty when absent.
pub(crate) fn meta<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or_default()
}

/// The items of a list field; none when absent.
pub(crate) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// A field as a map to write into, made when it is absent or not a map.
pub(crate) fn map_at<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let map = as_map(value).entry(field).or_insert(Value::Null);
    as_map(map)
}

/// The value as a map, replaced by an empty one when it is something else.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made a map just now")
}

/// Sets a field unless it is there and not null.
pub(crate) fn default(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let slot = map.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value.into();
    }
}

/// Removes empty text and nulls, which Go clients send for fields that are not set.
pub(crate) fn drop_empty(map: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        if map
            .get(*field)
            .is_some_and(|v| v.is_null() || v.as_str() == Some(""))
        {
            map.remove(*field);
        }
    }
}
