//! How objects are shown: whole, as metadata only, or as the tables that `kubectl get` prints.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value, json};

use crate::{
    convert::from_storage,
    kinds::Kind,
    object::{Object, encode},
    table,
};

/// What the client asked to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Whole,
    Metadata,
    Table,
}

impl View {
    /// The first media type of an Accept header that is served. Protobuf is not: its alternative, or
    /// JSON anyway, is.
    pub(crate) fn of(accept: &str) -> Self {
        for media in accept.split(',').filter(|m| !m.contains("protobuf")) {
            let says = |parameter: &str| media.split(';').any(|p| p.trim() == parameter);
            if says("as=Table") {
                return Self::Table;
            }
            if says("as=PartialObjectMetadata") || says("as=PartialObjectMetadataList") {
                return Self::Metadata;
            }
            if media.contains("json") || media.contains("*/*") {
                return Self::Whole;
            }
        }
        Self::Whole
    }
}

/// How one kind is shown to one client at one time.
#[derive(Debug, Clone)]
pub(crate) struct Representation {
    pub(crate) kind: Arc<Kind>,
    pub(crate) view: View,
    pub(crate) now: jiff::Timestamp,
}

impl Representation {
    /// One object.
    pub(crate) fn object(&self, object: &Object) -> Bytes {
        let converted = from_storage(&self.kind, object.value());
        let value = converted.as_ref().unwrap_or_else(|| object.value());
        match self.view {
            View::Whole if converted.is_none() => object.encoded(),
            View::Whole => encode(value),
            View::Metadata => encode(&partial(value)),
            View::Table => {
                let row = table::row(&self.kind, value, self.now);
                let revision = value["metadata"]["resourceVersion"].clone();
                let metadata = Map::from_iter([("resourceVersion".to_owned(), revision)]);
                encode(&self.table(&[row], &metadata))
            }
        }
    }

    /// A list, with its metadata.
    pub(crate) fn list(&self, objects: &[Arc<Object>], metadata: &Map<String, Value>) -> Bytes {
        if self.view == View::Table {
            let rows = objects.iter().map(|object| {
                let converted = from_storage(&self.kind, object.value());
                table::row(
                    &self.kind,
                    converted.as_ref().unwrap_or_else(|| object.value()),
                    self.now,
                )
            });
            return encode(&self.table(&rows.collect::<Vec<_>>(), metadata));
        }
        let (kind, version) = match self.view {
            View::Metadata => (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            _ => (format!("{}List", self.kind.kind), self.kind.group_version()),
        };
        let head = json!({"kind": kind, "apiVersion": version, "metadata": metadata}).to_string();
        // Items are encoded already: the list is opened again behind its last field.
        let mut body = BytesMut::from(head.strip_suffix('}').unwrap_or(&head));
        body.extend_from_slice(b",\"items\":[");
        for (i, object) in objects.iter().enumerate() {
            if i > 0 {
                body.extend_from_slice(b",");
            }
            body.extend_from_slice(&self.object(object));
        }
        body.extend_from_slice(b"]}");
        body.freeze()
    }

    fn table(&self, rows: &[Value], metadata: &Map<String, Value>) -> Value {
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
               "columnDefinitions": table::columns(&self.kind), "rows": rows})
    }
}

fn partial(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
           "metadata": value["metadata"]})
}
