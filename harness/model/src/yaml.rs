//! YAML as a tree in which every node knows its place in the file.

mod parse;

use indexmap::IndexMap;

use crate::diagnostic::Place;

pub(crate) use parse::{BYTES, decode, parse};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Text as written, unquoted; whether it was quoted decides whether `5` can be a number.
    Scalar { text: String, quoted: bool },
    /// `[…]` or `- …`.
    Seq(Vec<Node>),
    /// `{…}` or `key: …`. Keys are unique.
    Map(Entries),
}

/// The entries of a mapping, in the order of the file.
pub(crate) type Entries = IndexMap<String, Entry>;

/// An entry of a mapping.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Where the key stands.
    pub(crate) key: Place,
    pub(crate) node: Node,
}

impl Node {
    /// Written as nothing, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, quoted: false }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The value of a mapping's key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()?.get(key).map(|entry| &entry.node)
    }

    /// The entries of a mapping.
    pub(crate) fn entries(&self) -> Option<&Entries> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Scalar { .. } | Value::Seq(_) => None,
        }
    }

    /// As [`Self::get`], to change it.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match &mut self.value {
            Value::Map(entries) => entries.get_mut(key).map(|entry| &mut entry.node),
            Value::Scalar { .. } | Value::Seq(_) => None,
        }
    }

    /// How many entries or items it has.
    pub(crate) fn len(&self) -> usize {
        match &self.value {
            Value::Scalar { .. } => 0,
            Value::Seq(items) => items.len(),
            Value::Map(entries) => entries.len(),
        }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// What kind of value it is, as a person says it.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar { .. } => "a plain value",
            Value::Seq(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value as JSON, plain scalars typed as kubectl types them.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar { text, quoted: true } => text.as_str().into(),
            Value::Scalar {
                text,
                quoted: false,
            } => plain_to_json(text),
            Value::Seq(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, entry)| (key.clone(), entry.node.to_json()));
                serde_json::Value::Object(entries.collect())
            }
        }
    }
}

/// A plain scalar by YAML's core schema, and octal `0644` because Kubernetes manifests write file
/// modes so.
pub(crate) fn plain_to_json(text: &str) -> serde_json::Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return serde_json::Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let octal = text.strip_prefix("0o").or_else(|| text.strip_prefix('0'));
    if let Some(mode) = octal.and_then(|digits| number(digits, 8)) {
        return mode.into();
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return number(hex, 16).map_or_else(|| text.into(), Into::into);
    }
    // Rust reads words such as `inf` and `nan` as numbers; YAML does not, and JSON could not say them.
    let numeric = text
        .bytes()
        .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    if !numeric {
        return text.into();
    }
    if let Ok(integer) = text.parse::<i64>() {
        return integer.into();
    }
    let float = text
        .parse::<f64>()
        .ok()
        .and_then(serde_json::Number::from_f64);
    float.map_or_else(|| text.into(), serde_json::Value::Number)
}

/// An integer of digits alone: Rust would take a sign before them, and `0-7` is a list of processors.
fn number(digits: &str, radix: u32) -> Option<i64> {
    let all = digits.chars().all(|digit| digit.is_digit(radix));
    let number = all.then(|| i64::from_str_radix(digits, radix).ok());
    number.flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_begins_like_a_number_is_text() {
        for text in [
            "0-7", "0+7", "0x-1f", "0x+1f", "0o-7", "0x", "0o", "1-2", "08-15",
        ] {
            assert_eq!(plain_to_json(text), json!(text), "{text}");
        }
    }

    #[test]
    fn octal_and_hexadecimal_digits_are_numbers() {
        let numbers = [
            ("0", 0),
            ("-7", -7),
            ("+7", 7),
            ("0644", 0o644),
            ("0o17", 15),
            ("0x1f", 31),
            ("0x1F", 31),
        ];
        for (text, number) in numbers {
            assert_eq!(plain_to_json(text), json!(number), "{text}");
        }
    }
}
