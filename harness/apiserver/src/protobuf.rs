//! Events in protobuf: client-go's typed clients send what they create in it unless told otherwise, and
//! events are all that kube-proxy and Felix create through one. Any other kind is refused with 415.
//!
//! Read are Kubernetes' envelope (`runtime.Unknown` behind four magic bytes) and the messages below
//! (generated.proto of core/v1, events.k8s.io/v1 and meta/v1); unknown fields are passed over. What a
//! message leaves at its default is absent in the JSON.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// What every protobuf body of Kubernetes begins with.
const MAGIC: &[u8] = b"k8s\0";
/// The envelope's fields: what the object is, and its encoding.
const OF_TYPE: u64 = 1;
const OF_RAW: u64 = 2;
const TYPE: Message = &[(1, "apiVersion", Shape::Text), (2, "kind", Shape::Text)];
const METADATA: Message = &[
    (1, "name", Shape::Text),
    (2, "generateName", Shape::Text),
    (3, "namespace", Shape::Text),
    (11, "labels", Shape::Labels),
    (12, "annotations", Shape::Labels),
];
const REFERENCE: Message = &[
    (1, "kind", Shape::Text),
    (2, "namespace", Shape::Text),
    (3, "name", Shape::Text),
    (4, "uid", Shape::Text),
    (5, "apiVersion", Shape::Text),
    (6, "resourceVersion", Shape::Text),
    (7, "fieldPath", Shape::Text),
];
const SOURCE: Message = &[(1, "component", Shape::Text), (2, "host", Shape::Text)];
const SERIES: Message = &[
    (1, "count", Shape::Number),
    (2, "lastObservedTime", Shape::MicroTime),
];
const CORE_EVENT: Message = &[
    (1, "metadata", Shape::Message(METADATA)),
    (2, "involvedObject", Shape::Message(REFERENCE)),
    (3, "reason", Shape::Text),
    (4, "message", Shape::Text),
    (5, "source", Shape::Message(SOURCE)),
    (6, "firstTimestamp", Shape::Time),
    (7, "lastTimestamp", Shape::Time),
    (8, "count", Shape::Number),
    (9, "type", Shape::Text),
    (10, "eventTime", Shape::MicroTime),
    (11, "series", Shape::Message(SERIES)),
    (12, "action", Shape::Text),
    (13, "related", Shape::Message(REFERENCE)),
    (14, "reportingComponent", Shape::Text),
    (15, "reportingInstance", Shape::Text),
];
const EVENT: Message = &[
    (1, "metadata", Shape::Message(METADATA)),
    (2, "eventTime", Shape::MicroTime),
    (3, "series", Shape::Message(SERIES)),
    (4, "reportingController", Shape::Text),
    (5, "reportingInstance", Shape::Text),
    (6, "action", Shape::Text),
    (7, "reason", Shape::Text),
    (8, "regarding", Shape::Message(REFERENCE)),
    (9, "related", Shape::Message(REFERENCE)),
    (10, "note", Shape::Text),
    (11, "type", Shape::Text),
    (12, "deprecatedSource", Shape::Message(SOURCE)),
    (13, "deprecatedFirstTimestamp", Shape::Time),
    (14, "deprecatedLastTimestamp", Shape::Time),
    (15, "deprecatedCount", Shape::Number),
];

/// Field number, JSON name, and how the field is read.
type Message = &'static [(u64, &'static str, Shape)];

#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Number,
    /// Told in whole seconds.
    Time,
    /// Told in microseconds.
    MicroTime,
    /// A map of texts; each entry is a field of its own.
    Labels,
    Message(Message),
}

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

/// The JSON of an event's body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let body = body.strip_prefix(MAGIC).unwrap_or(body);
    let decoded = (|| {
        let mut object = Map::new();
        let mut raw = None;
        for field in (Fields { rest: body }) {
            match field? {
                (OF_TYPE, Wire::Bytes(bytes)) => object = read(bytes, TYPE)?,
                (OF_RAW, Wire::Bytes(bytes)) => raw = Some(bytes),
                _ => {}
            }
        }
        Some((object, raw))
    })();
    let Some((mut object, raw)) = decoded else {
        return Err(broken());
    };
    let said = |field: &str| object.get(field).and_then(Value::as_str);
    let message = match (said("apiVersion"), said("kind")) {
        (Some("v1"), Some("Event")) => CORE_EVENT,
        (Some("events.k8s.io/v1"), Some("Event")) => EVENT,
        _ => return Err(unsupported()),
    };
    let fields = raw.and_then(|raw| read(raw, message));
    object.extend(fields.ok_or_else(broken)?);
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

/// The fields of a message that are not at their default; none when the encoding is broken.
fn read(bytes: &[u8], message: Message) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    for field in (Fields { rest: bytes }) {
        let (number, wire) = field?;
        let Some((_, name, shape)) = message.iter().find(|(n, ..)| *n == number) else {
            continue;
        };
        let value = match (shape, wire) {
            (Shape::Number, Wire::Varint(0)) => Value::Null,
            // An int32 that is negative is sent as the int64 of the same value.
            (Shape::Number, Wire::Varint(number)) => number.cast_signed().into(),
            (Shape::Text, Wire::Bytes(text)) => std::str::from_utf8(text).ok()?.into(),
            (Shape::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
            (Shape::MicroTime, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
            (Shape::Message(message), Wire::Bytes(bytes)) => read(bytes, message)?.into(),
            (Shape::Labels, Wire::Bytes(bytes)) => {
                let entries = map.remove(*name).unwrap_or_else(|| Map::new().into());
                labelled(entries, bytes)?
            }
            _ => return None,
        };
        let default = match &value {
            Value::String(text) => text.is_empty(),
            Value::Object(map) => map.is_empty(),
            other => other.is_null(),
        };
        if !default {
            map.insert((*name).to_owned(), value);
        }
    }
    Some(map)
}

/// Seconds and nanoseconds since 1970; null when both are 0, which Kubernetes sends for no time.
fn time(bytes: &[u8], format: &str) -> Option<Value> {
    const TIME: Message = &[(1, "seconds", Shape::Number), (2, "nanos", Shape::Number)];
    let map = read(bytes, TIME)?;
    if map.is_empty() {
        return Some(Value::Null);
    }
    let part = |name: &str| map.get(name).map_or(Some(0), Value::as_i64);
    let nanos = i32::try_from(part("nanos")?).ok()?;
    let time = jiff::Timestamp::new(part("seconds")?, nanos).ok()?;
    Some(time.strftime(format).to_string().into())
}

/// The entries with one more: key and value.
fn labelled(mut entries: Value, bytes: &[u8]) -> Option<Value> {
    const ENTRY: Message = &[(1, "key", Shape::Text), (2, "value", Shape::Text)];
    let mut entry = read(bytes, ENTRY)?;
    let key = entry.remove("key")?;
    let value = entry.remove("value").unwrap_or_else(|| "".into());
    entries
        .as_object_mut()?
        .insert(key.as_str()?.to_owned(), value);
    Some(entries)
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
        let event: Vec<u8> = [
            // metadata: two labels, and a field 99 of fixed size.
            &[0x0a, 21, 0x5a, 6, 0x0a, 1, b'a', 0x12, 1, b'b'][..],
            &[0x5a, 3, 0x0a, 1, b'c', 0x9d, 0x06, 1, 2, 3, 4, 0x18, 7][..],
        ]
        .concat();
        let read = read(&event[2..], METADATA);
        // Field 3 is a text, not a number.
        assert_eq!(read, None);
        let read = super::read(&event[2..21], METADATA).map(Value::from);
        assert_eq!(read, Some(json!({"labels": {"a": "b", "c": ""}})));
        let series = [0x08, 3, 0x12, 5, 0x08, 1, 0x10, 0xe8, 0x07];
        let told = super::read(&series, SERIES).map(Value::from);
        let fine = json!({"count": 3, "lastObservedTime": "1970-01-01T00:00:01.000001Z"});
        assert_eq!(told, Some(fine));
    }

    #[test]
    fn what_is_cut_off_is_refused_and_other_kinds_are_unsupported() {
        let whole = started();
        // The envelope ends with two empty fields.
        for length in MAGIC.len() + 1..whole.len() - 4 {
            let refused = decode(&whole[..length]).unwrap_err();
            assert!([400, 415].contains(&refused.code()), "{length}");
        }
        let pod = [MAGIC, &[0x0a, 9, 0x0a, 2, b'v', b'1', 0x12, 3], b"Pod"].concat();
        assert_eq!(decode(&pod), Err(unsupported()));
        assert_eq!(decode(&[MAGIC, &[0xff; 12]].concat()), Err(broken()));
    }
}
