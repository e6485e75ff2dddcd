//! Typed reading of Kubernetes objects from a tree: k8s-openapi knows every field, this reader
//! keeps places, notes unknown fields with a hint, and goes on after a value of the wrong type.

use std::{cell::RefCell, fmt};

use serde::{
    Deserialize,
    de::{self, DeserializeSeed, IntoDeserializer, Visitor, value::StrDeserializer},
    forward_to_deserialize_any,
};

use super::fields::note;
use crate::{
    diagnostic::{Gathered, Place},
    nearest::suggest,
    yaml::{Entries, Node, Value, plain_to_json},
};

/// After this many values of the wrong type in one object the rest can wait.
const WRONG: usize = 10;

/// Reads an object. Notes whatever is wrong with it.
pub(super) fn read<'de, T: Deserialize<'de>>(gathered: &Gathered, node: &'de Node) -> Option<T> {
    // serde stops at the first wrong value: it is noted, and the object is read again without it.
    let skipped = RefCell::new(Vec::new());
    let mut wrong = false;
    for _ in 0..WRONG {
        match T::deserialize(Typed {
            gathered,
            node,
            skipped: &skipped,
        }) {
            Ok(object) => return (!wrong).then_some(object),
            Err(error) => {
                let place = error.place.unwrap_or_else(|| node.place.clone());
                if skipped.borrow().contains(&place) {
                    return None;
                }
                note(gathered, &place, error.message, None);
                skipped.borrow_mut().push(place);
                wrong = true;
            }
        }
    }
    None
}

/// What serde says, and where.
#[derive(Debug)]
struct Wrong {
    message: String,
    place: Option<Place>,
}

impl Wrong {
    /// Says where, unless a deeper place is known.
    fn at(self, place: &Place) -> Self {
        Self {
            place: self.place.or_else(|| Some(place.clone())),
            ..self
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            message: message.to_string(),
            place: None,
        }
    }
}

/// A node as serde's data.
#[derive(Clone, Copy)]
struct Typed<'a, 'de> {
    gathered: &'a Gathered,
    node: &'de Node,
    /// Values known to be wrong, read as nothing.
    skipped: &'a RefCell<Vec<Place>>,
}

impl<'de> Typed<'_, 'de> {
    fn to(self, node: &'de Node) -> Self {
        Self { node, ..self }
    }

    fn is_nothing(self) -> bool {
        self.node.is_null() || self.skipped.borrow().contains(&self.node.place)
    }

    fn fields<V: Visitor<'de>>(
        self,
        entries: &'de Entries,
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let entries = entries.iter();
        let entries = entries.filter(|(name, _)| known.is_none_or(|k| k.contains(&name.as_str())));
        let entries = entries.map(|(name, entry)| (name.as_str(), self.to(&entry.node)));
        visitor.visit_map(Map {
            entries,
            value: None,
        })
    }
}

impl<'de> de::Deserializer<'de> for Typed<'_, 'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        if self.is_nothing() {
            return visitor.visit_unit();
        }
        match &self.node.value {
            Value::Scalar { text, quoted: true } => visitor.visit_borrowed_str(text),
            Value::Scalar {
                text,
                quoted: false,
            } => match plain_to_json(text) {
                serde_json::Value::Bool(truth) => visitor.visit_bool(truth),
                serde_json::Value::Number(number) => match number.as_i64() {
                    Some(integer) => visitor.visit_i64(integer),
                    None => visitor.visit_f64(number.as_f64().unwrap_or_default()),
                },
                _ => visitor.visit_borrowed_str(text),
            },
            Value::Seq(items) => {
                let mut items = de::value::SeqDeserializer::new(items.iter().map(|n| self.to(n)));
                visitor.visit_seq(&mut items)
            }
            Value::Map(entries) => self.fields(entries, None, visitor),
        }
        .map_err(|error| error.at(&self.node.place))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        what: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let Value::Map(entries) = &self.node.value else {
            return self.deserialize_any(visitor);
        };
        for (name, entry) in entries
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()))
        {
            let hint = suggest(name, known.iter().copied());
            note(
                self.gathered,
                &entry.key,
                format!("{what} has no field {name:?}"),
                hint,
            );
        }
        self.fields(entries, Some(known), visitor)
            .map_err(|error| error.at(&self.node.place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        if self.is_nothing() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for Typed<'_, 'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A mapping's entries, one after the other.
struct Map<'a, 'de, I> {
    entries: I,
    value: Option<Typed<'a, 'de>>,
}

impl<'a, 'de, I: Iterator<Item = (&'de str, Typed<'a, 'de>)>> de::MapAccess<'de>
    for Map<'a, 'de, I>
{
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Wrong> {
        let Some((name, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let name: StrDeserializer<'_, Wrong> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let value = self
            .value
            .take()
            .expect("serde asks for a value after its key");
        seed.deserialize(value)
            .map_err(|error| error.at(&value.node.place))
    }
}
