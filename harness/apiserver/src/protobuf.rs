//! Bodies in protobuf: client-go's typed clients send what they create in it unless told otherwise. kubectl does so in
//! `create`, `run`, `expose`, `debug` and `auth can-i` (1.34), kube-proxy and Felix with events. A kind whose fields
//! are not known ([`Schema`]) is refused with 415.
//!
//! Read are Kubernetes' envelope (`runtime.Unknown` behind four magic bytes) and what is in it; unknown fields are passed over.
//! What a message leaves at its default is absent in the JSON, unless Kubernetes tells the two apart.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use crate::{
    error::ApiError,
    schema::{Field, Schema, Shape},
};

/// What every protobuf body of Kubernetes begins with.
const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may lie in each other; a pod's are nine deep.
const DEEPEST: usize = 32;

/// A field's value on the wire. Those of fixed size are passed over: no message here has any.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// Whether a body has the envelope.
pub(crate) fn is(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// The JSON of a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let body = body.strip_prefix(MAGIC).unwrap_or(body);
    let envelope = parts(body).ok_or_else(broken)?;
    let said = parts(last_bytes(&envelope, 1)).ok_or_else(broken)?;
    let word =
        |number| std::str::from_utf8(last_bytes(&said, number)).map_err(|_not_utf8| broken());
    let (version, kind) = (word(1)?, word(2)?);
    // Every group version has these.
    let version_of_type = if kind == "DeleteOptions" {
        "v1"
    } else {
        version
    };
    let name = Schema::get().named(version_of_type, kind);
    let name = name.ok_or_else(unsupported)?;
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), version.into());
    object.insert("kind".to_owned(), kind.into());
    // It is there also where it is empty: without it the body is cut off.
    let raw = bytes_of(&envelope, 2).and_then(|raw| message(raw, name, DEEPEST));
    object.extend(raw.ok_or_else(broken)?);
    Ok(object.into())
}

/// The refusal of any other body that is not JSON.
pub(crate) fn unsupported() -> ApiError {
    let why = "the body of the request was in an unknown format - accepted media types include: \
               application/json";
    ApiError::UnsupportedMediaType(why.to_owned())
}

fn broken() -> ApiError {
    ApiError::BadRequest("couldn't decode the body as protobuf".to_owned())
}

/// All fields of a message; none when the encoding is broken.
fn parts(bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    (Fields { rest: bytes }).collect()
}

/// The last field of that number.
fn bytes_of<'a>(parts: &[(u64, Wire<'a>)], number: u64) -> Option<&'a [u8]> {
    parts.iter().rev().find_map(|(n, wire)| match wire {
        Wire::Bytes(bytes) if *n == number => Some(*bytes),
        _ => None,
    })
}

/// The same; empty when it is not there.
fn last_bytes<'a>(parts: &[(u64, Wire<'a>)], number: u64) -> &'a [u8] {
    bytes_of(parts, number).unwrap_or_default()
}

/// The same of a number.
fn last_number(parts: &[(u64, Wire)], number: u64) -> i64 {
    let found = parts.iter().rev().find_map(|(n, wire)| match wire {
        // A negative int32 is sent as the int64 of the same value.
        Wire::Varint(value) if *n == number => Some(value.cast_signed()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// The fields of a message; none when the encoding is broken.
fn message(bytes: &[u8], name: &str, deep: usize) -> Option<Map<String, Value>> {
    let deep = deep.checked_sub(1)?;
    let known = Schema::get().of(name)?;
    let mut map = Map::new();
    for (number, wire) in parts(bytes)? {
        if let Some(field) = known.fields.iter().find(|field| field.number == number) {
            add(&mut map, field, wire, deep)?;
        }
    }
    Some(map)
}

/// Adds what is read of a field: of a list or a map one element.
fn add(map: &mut Map<String, Value>, field: &Field, wire: Wire, deep: usize) -> Option<()> {
    let Some(name) = field.name else {
        let inner = value(&field.shape, wire, deep)?;
        map.extend(inner.as_object()?.clone());
        return Some(());
    };
    match (&field.shape, wire) {
        (Shape::List(shape), wire) => {
            let list = map.entry(name).or_insert_with(|| Value::Array(vec![]));
            list.as_array_mut()?.push(value(shape, wire, deep)?);
        }
        (Shape::Map(shape), Wire::Bytes(bytes)) => {
            let entry = parts(bytes)?;
            let key = std::str::from_utf8(last_bytes(&entry, 1)).ok()?;
            let said = value(shape, Wire::Bytes(last_bytes(&entry, 2)), deep)?;
            let entries = map.entry(name).or_insert_with(|| Map::new().into());
            entries.as_object_mut()?.insert(key.to_owned(), said);
        }
        (shape, wire) => {
            let value = value(shape, wire, deep)?;
            if value.is_null() || (is_empty(&value) && !field.keeps_empty) {
                return Some(());
            }
            map.insert(name.to_owned(), value);
        }
    }
    Some(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// One value; none when the encoding is broken or is that of another shape.
fn value(shape: &Shape, wire: Wire, deep: usize) -> Option<Value> {
    Some(match (shape, wire) {
        (Shape::Bool, Wire::Varint(number)) => (number != 0).into(),
        (Shape::Int32 | Shape::Int64, Wire::Varint(number)) => number.cast_signed().into(),
        (Shape::Text, Wire::Bytes(text)) => std::str::from_utf8(text).ok()?.into(),
        (Shape::Bytes, Wire::Bytes(bytes)) => BASE64_STANDARD.encode(bytes).into(),
        (Shape::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        (Shape::MicroTime, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        (Shape::Object(name), Wire::Bytes(bytes)) => message(bytes, name, deep)?.into(),
        (Shape::Quantity, Wire::Bytes(bytes)) => std::str::from_utf8(last_bytes(&parts(bytes)?, 1))
            .ok()?
            .into(),
        (Shape::IntOrString, Wire::Bytes(bytes)) => {
            let parts = parts(bytes)?;
            match last_number(&parts, 1) {
                0 => last_number(&parts, 2).into(),
                _ => std::str::from_utf8(last_bytes(&parts, 3)).ok()?.into(),
            }
        }
        (Shape::Raw, Wire::Bytes(bytes)) => {
            serde_json::from_slice(last_bytes(&parts(bytes)?, 1)).ok()?
        }
        _ => return None,
    })
}

/// Seconds and nanoseconds since 1970; null when nothing is said, which Kubernetes sends for no time.
fn time(bytes: &[u8], format: &str) -> Option<Value> {
    let parts = parts(bytes)?;
    if parts.is_empty() {
        return Some(Value::Null);
    }
    let nanos = i32::try_from(last_number(&parts, 2)).ok()?;
    let time = jiff::Timestamp::new(last_number(&parts, 1), nanos).ok()?;
    Some(time.strftime(format).to_string().into())
}

/// The fields of a message in order; none in place of one that is cut off, and then no more.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.bytes(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.bytes(length)?)
            }
            5 => self.bytes(4).map(|_| Wire::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    /// Seven bits a byte, the lowest first, as long as the eighth is set.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What kube-proxy v1.20.2 posted when it started on node n1, byte by byte.
    const STARTED: &str = "6b3873000a0b0a02763112054576656e74129e010a2c0a136e312e3138656130363930643\
        765323531373212001a0764656661756c7422002a003200380042007a0012160a044e6f646512001a026e312202\
        6e312a0032003a001a085374617274696e6722145374617274696e67206b7562652d70726f78792e2a100a0a6b7\
        562652d70726f787912026e31320808dcd285d80610003a0808dcd285d806100040014a064e6f726d616c520062\
        0072007a001a002200";

    fn started() -> Vec<u8> {
        let digits: Vec<u32> = STARTED.chars().filter_map(|c| c.to_digit(16)).collect();
        let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn the_event_a_starting_kube_proxy_posts_is_read() {
        let told = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "n1.18ea0690d7e25172", "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
            "reason": "Starting", "message": "Starting kube-proxy.",
            "source": {"component": "kube-proxy", "host": "n1"},
            "firstTimestamp": "2026-11-21T09:50:20Z", "lastTimestamp": "2026-11-21T09:50:20Z",
            "count": 1, "type": "Normal",
        });
        assert_eq!(decode(&started()), Ok(told));
    }

    #[test]
    fn labels_series_and_fine_times_are_read_and_the_unknown_is_passed_over() {
        // Two labels, and a field 99 of fixed size.
        let labels = [
            &[0x5a, 6, 0x0a, 1, b'a', 0x12, 1, b'b'][..],
            &[0x5a, 3, 0x0a, 1, b'c', 0x9d, 0x06, 1, 2, 3, 4][..],
        ];
        let metadata = |bytes: &[u8]| message(bytes, "meta/v1.ObjectMeta", 9).map(Value::from);
        let told = json!({"labels": {"a": "b", "c": ""}});
        assert_eq!(metadata(&labels.concat()), Some(told));
        // Field 3 is a text, not a number.
        assert_eq!(metadata(&[0x18, 7]), None);
        let series = [0x08, 3, 0x12, 5, 0x08, 1, 0x10, 0xe8, 0x07];
        let told = message(&series, "core/v1.EventSeries", 9).map(Value::from);
        let fine = json!({"count": 3, "lastObservedTime": "1970-01-01T00:00:01.000001Z"});
        assert_eq!(told, Some(fine));
    }

    #[test]
    fn what_is_empty_is_kept_where_kubernetes_tells_it_from_what_is_absent() {
        // replicas, a pointer, and minReadySeconds, none.
        let spec = message(&[0x08, 0, 0x28, 0], "apps/v1.DeploymentSpec", 9);
        assert_eq!(spec.map(Value::from), Some(json!({"replicas": 0})));
        // A volume `a` that is an emptyDir, embedded in its source.
        let volume = [0x0a, 1, b'a', 0x12, 2, 0x12, 0];
        let volume = message(&volume, "core/v1.Volume", 9).map(Value::from);
        assert_eq!(volume, Some(json!({"name": "a", "emptyDir": {}})));
    }

    #[test]
    fn ports_secrets_and_lists_are_read_as_json_has_them() {
        // targetPort once as a number and once as a name.
        let number = [0x22, 4, 0x08, 0, 0x10, 80];
        let name = [0x22, 7, 0x08, 1, 0x1a, 3, b'w', b'e', b'b'];
        let port = |bytes: &[u8]| message(bytes, "core/v1.ServicePort", 9).map(Value::from);
        assert_eq!(port(&number), Some(json!({"targetPort": 80})));
        assert_eq!(port(&name), Some(json!({"targetPort": "web"})));
        let data = [0x12, 7, 0x0a, 1, b'k', 0x12, 2, 0xff, 0];
        let secret = message(&data, "core/v1.Secret", 9).map(Value::from);
        assert_eq!(secret, Some(json!({"data": {"k": "/wA="}})));
        let args = [0x22, 1, b'a', 0x22, 0];
        let container = message(&args, "core/v1.Container", 9).map(Value::from);
        assert_eq!(container, Some(json!({"args": ["a", ""]})));
    }

    #[test]
    fn what_is_cut_off_is_refused_and_other_kinds_are_unsupported() {
        let whole = started();
        // The envelope ends with two empty fields.
        for length in MAGIC.len() + 1..whole.len() - 4 {
            let refused = decode(&whole[..length]).unwrap_err();
            assert!([400, 415].contains(&refused.code()), "{length}");
        }
        let pot = [MAGIC, &[0x0a, 9, 0x0a, 2, b'v', b'1', 0x12, 3], b"Pot"].concat();
        assert_eq!(decode(&pot), Err(unsupported()));
        assert_eq!(decode(&[MAGIC, &[0xff; 12]].concat()), Err(broken()));
    }
}
