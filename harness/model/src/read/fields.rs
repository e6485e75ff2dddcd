//! Reading mappings and plain values out of a tree, noting what is wrong and going on.

use std::time::Duration;

use super::times::parse_duration;
use crate::{
    diagnostic::{Diagnostic, Gathered, Place},
    language::{Given, Mapping},
    nearest::suggest,
    yaml::{Entries, Entry, Node, Value},
};

/// A mapping that is being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) gathered: &'a Gathered,
    pub(super) node: &'a Node,
    entries: &'a Entries,
    called: &'static str,
    /// `None` of what is not the language's to state.
    mapping: Option<&'static Mapping>,
}

impl<'a> Fields<'a> {
    /// The fields of a mapping. Notes fields that are not among the known ones; is `None`, and notes
    /// it, when the node is no mapping.
    pub(super) fn of(
        gathered: &'a Gathered,
        node: &'a Node,
        mapping: &'static Mapping,
    ) -> Option<Self> {
        let words: Vec<&str> = mapping.fields().map(|field| field.word).collect();
        let fields = Self::foreign(gathered, node, mapping.called, &words)?;
        Some(Self {
            mapping: Some(mapping),
            ..fields
        })
    }

    /// The fields of a mapping that others than the language state: Kubernetes, kube-proxy, Calico.
    pub(super) fn foreign(
        gathered: &'a Gathered,
        node: &'a Node,
        called: &'static str,
        known: &[&str],
    ) -> Option<Self> {
        let entries = entries(gathered, node, called)?;
        for (name, entry) in entries {
            if !known.contains(&name.as_str()) {
                let message = format!("{called} has no field {name:?}");
                let hint = suggest(name, known.iter().copied());
                note(gathered, &entry.key, message, hint);
            }
        }
        Some(Self {
            gathered,
            node,
            entries,
            called,
            mapping: None,
        })
    }

    /// What the language says of a field that is asked for: a reader that asks for another one, or in another way, is our
    /// mistake, which every test of that field finds.
    fn stated(&self, name: &str) -> Option<Given> {
        let field = self.mapping?.field(name);
        let field = field.unwrap_or_else(|| panic!("{} states no field {name:?}", self.called));
        Some(field.given)
    }

    /// The field's node; none when it is missing or written as nothing.
    pub(super) fn get(&self, name: &str) -> Option<&'a Node> {
        debug_assert!(self.mapping.is_none() || self.stated(name).is_some());
        self.entries
            .get(name)
            .map(|entry| &entry.node)
            .filter(|node| !node.is_null())
    }

    /// The fields as written, in that order, but for those that are written as nothing.
    pub(super) fn written(&self) -> impl Iterator<Item = (&'a str, &'a Node)> + use<'a> {
        let entries = self.entries.iter();
        let written = entries.map(|(name, entry)| (name.as_str(), &entry.node));
        written.filter(|(_, node)| !node.is_null())
    }

    /// The field's entry, also when it is written as nothing.
    pub(super) fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.entries.get(name)
    }

    /// Where the field's key stands; the mapping's own place when it is missing.
    pub(super) fn key(&self, name: &str) -> Place {
        let entry = self.entries.get(name);
        entry.map_or_else(|| self.head(), |entry| entry.key.clone())
    }

    /// Where the mapping begins.
    fn head(&self) -> Place {
        let first = self.entries.values().next();
        first.map_or_else(|| self.node.place.clone(), |entry| entry.key.clone())
    }

    /// A field that must be there.
    pub(super) fn need<T>(&self, name: &str, read: impl Fn(&'a Node) -> Option<T>) -> Option<T> {
        debug_assert!(
            self.stated(name).is_none_or(|it| it == Given::Needed),
            "{name}"
        );
        self.need_here(name, read)
    }

    /// A field that may be missing, and is needed beside what else is written.
    pub(super) fn need_here<T>(
        &self,
        name: &str,
        read: impl Fn(&'a Node) -> Option<T>,
    ) -> Option<T> {
        if let Some(node) = self.get(name) {
            return read(node);
        }
        let message = format!("{} needs {name:?}", self.called);
        self.gathered.add(Diagnostic::new(self.key(name), message));
        None
    }

    /// A field that has a default: what is read is that when it is missing. `None` only when it is there and wrong.
    pub(super) fn or_default<T>(&self, name: &str, read: impl Fn(&Node) -> Option<T>) -> Option<T> {
        let Some(Given::Default(default)) = self.stated(name) else {
            panic!("{} states no default of {name:?}", self.called);
        };
        if let Some(node) = self.get(name) {
            return read(node);
        }
        let value = Value::Scalar {
            text: default.to_owned(),
            quoted: false,
        };
        read(&Node {
            place: self.node.place.clone(),
            value,
        })
    }

    /// A field whose absence says something. The outer `None` means that it is there and wrong.
    #[expect(clippy::option_option, reason = "absent and wrong are different")]
    pub(super) fn maybe<T>(
        &self,
        name: &str,
        read: impl Fn(&'a Node) -> Option<T>,
    ) -> Option<Option<T>> {
        debug_assert!(
            self.stated(name).is_none_or(|it| it == Given::Optional),
            "{name}"
        );
        self.get(name)
            .map_or(Some(None), |node| read(node).map(Some))
    }

    /// A field that is as good as empty when it is missing. `None` only when it is there and wrong.
    pub(super) fn or_empty<T: Default>(
        &self,
        name: &str,
        read: impl Fn(&'a Node) -> Option<T>,
    ) -> Option<T> {
        self.maybe(name, read).map(Option::unwrap_or_default)
    }
}

/// Notes a mistake.
pub(super) fn note(
    gathered: &Gathered,
    place: &Place,
    message: impl Into<String>,
    hint: Option<String>,
) {
    let diagnostic = Diagnostic::new(place.clone(), message);
    gathered.add(match hint {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    });
}

/// The entries of a mapping whose keys are names that the scenario makes up.
pub(super) fn entries<'a>(gathered: &Gathered, node: &'a Node, what: &str) -> Option<&'a Entries> {
    match &node.value {
        Value::Map(entries) => Some(entries),
        Value::Scalar { .. } | Value::Seq(_) => {
            let message = format!("{what} is a mapping, and here is {}", node.kind());
            note(gathered, &node.place, message, None);
            None
        }
    }
}

/// The names that a mapping declares, whether or not what they name could be read. What is set to
/// `none` is not there.
pub(super) fn names(node: Option<&Node>) -> Vec<&str> {
    let entries = node.and_then(Node::entries).into_iter();
    let there = entries
        .flatten()
        .filter(|(_, entry)| entry.node.text() != Some("none"));
    there.map(|(name, _)| name.as_str()).collect()
}

/// The items of a list.
pub(super) fn items<'a>(gathered: &Gathered, node: &'a Node, what: &str) -> Option<&'a [Node]> {
    match &node.value {
        Value::Seq(items) => Some(items),
        Value::Scalar { .. } | Value::Map(_) => {
            let message = format!("{what} is a list, and here is {}", node.kind());
            note(gathered, &node.place, message, None);
            None
        }
    }
}

/// Plain text.
pub(super) fn text<'a>(gathered: &Gathered, node: &'a Node, what: &str) -> Option<&'a str> {
    let text = node.text().filter(|_| !node.is_null());
    if text.is_none() {
        let message = format!("{what} is text, and here is {}", node.kind());
        note(gathered, &node.place, message, None);
    }
    text
}

/// A list of which each item is read so, whatever is wrong with others.
pub(super) fn list<T>(
    gathered: &Gathered,
    node: &Node,
    what: &str,
    read: impl Fn(&Node) -> Option<T>,
) -> Option<Vec<T>> {
    let items = items(gathered, node, what)?.iter();
    let read: Vec<Option<T>> = items.map(read).collect();
    read.into_iter().collect()
}

/// A list of texts.
pub(super) fn texts(gathered: &Gathered, node: &Node, what: &str) -> Option<Vec<String>> {
    list(gathered, node, what, |item| {
        text(gathered, item, what).map(str::to_owned)
    })
}

/// A whole number within bounds.
pub(super) fn number<T>(
    gathered: &Gathered,
    node: &Node,
    what: &str,
    (low, high): (u64, u64),
) -> Option<T>
where
    T: TryFrom<u64>,
{
    let written = text(gathered, node, what)?;
    let number = written
        .parse()
        .ok()
        .filter(|number| (low..=high).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    if number.is_none() {
        let message = format!("{what} is a whole number from {low} to {high}, not {written:?}");
        note(gathered, &node.place, message, None);
    }
    number
}

/// `true` or `false`.
pub(super) fn truth(gathered: &Gathered, node: &Node, what: &str) -> Option<bool> {
    let written = text(gathered, node, what)?;
    let truth = written.parse().ok();
    if truth.is_none() {
        let message = format!("{what} is true or false, not {written:?}");
        note(gathered, &node.place, message, None);
    }
    truth
}

/// One of the given words.
pub(super) fn word<T: Copy>(
    gathered: &Gathered,
    node: &Node,
    what: &str,
    words: &[(&str, T)],
) -> Option<T> {
    let written = text(gathered, node, what)?;
    let found = words
        .iter()
        .find(|(word, _)| *word == written)
        .map(|(_, meaning)| *meaning);
    if found.is_none() {
        let hint = suggest(written, words.iter().map(|(word, _)| *word));
        note(
            gathered,
            &node.place,
            format!("{what} cannot be {written:?}"),
            hint,
        );
    }
    found
}

/// A regular expression.
pub(super) fn regex(gathered: &Gathered, node: &Node, what: &str) -> Option<String> {
    let pattern = text(gathered, node, what)?;
    let Err(error) = regex::Regex::new(pattern) else {
        return Some(pattern.to_owned());
    };
    let error = error.to_string();
    let why = error.lines().last().unwrap_or_default();
    let why = why.trim_start_matches("error: ");
    let message = format!("not a regular expression: {why}");
    note(gathered, &node.place, message, None);
    None
}

/// A percentage, `99.9%`.
pub(super) fn percent(gathered: &Gathered, node: &Node, what: &str) -> Option<f64> {
    let written = text(gathered, node, what)?;
    let number = written.strip_suffix('%').map(str::trim_end);
    let digits = |text: &&str| text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = number
        .filter(digits)
        .and_then(|text| text.parse::<f64>().ok());
    let Some(number) = number else {
        let message = format!("{what} is a percentage, not {written:?}");
        note(
            gathered,
            &node.place,
            message,
            Some("write it as 99.9%".into()),
        );
        return None;
    };
    if !(0.0..=100.0).contains(&number) {
        let message = format!("{what} is between 0% and 100%, not {written}");
        note(gathered, &node.place, message, None);
        return None;
    }
    Some(number)
}

/// A time such as `5ms` or `1m30s`, within bounds.
pub(super) fn duration(
    gathered: &Gathered,
    node: &Node,
    what: &str,
    (low, high): (Duration, Duration),
) -> Option<Duration> {
    let written = text(gathered, node, what)?;
    let Some(duration) = parse_duration(written) else {
        let message = format!("{what} is a time, not {written:?}");
        let hint = "write it as 500us, 5ms, 2s, 1m30s or 1h".to_owned();
        note(gathered, &node.place, message, Some(hint));
        return None;
    };
    if !(low..=high).contains(&duration) {
        let message = format!("{what} is between {low:?} and {high:?}, not {written}");
        note(gathered, &node.place, message, None);
        return None;
    }
    Some(duration)
}
