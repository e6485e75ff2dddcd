//! The terms that the scenario language is stated in, once: mappings, their fields, and what may stand in each.
//!
//! Each reader states what it reads in these terms, beside the code that reads it. The words that are accepted, "did you
//! mean", defaults, the JSON Schema with its hover texts ([`schema`]) and the reference in docs/scenario-language.md
//! ([`reference`]) all come from there.

mod reference;
mod schema;

use std::fmt;

pub use reference::reference;
pub use schema::schema;

/// A mapping whose fields are known.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// What diagnostics and the reference call it: `a scenario`.
    pub(crate) called: &'static str,
    /// What the text of a field that holds it does not say; may be empty.
    pub(crate) doc: &'static str,
    /// Its fields, in groups: a group may be part of other mappings, too.
    pub(crate) fields: &'static [&'static [Field]],
}

impl Mapping {
    /// All its fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.fields.iter().copied().flatten()
    }

    /// The field that is called so.
    pub(crate) fn field(&self, word: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.word == word)
    }
}

/// A field of a mapping, or what a [`Choice`] is made from.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its key.
    pub(crate) word: &'static str,
    /// What may stand there.
    pub(crate) kind: Kind,
    /// Whether it has to be there, and what is meant where it is not.
    pub(crate) given: Given,
    /// What it means.
    pub(crate) doc: &'static str,
}

impl Field {
    /// What an editor shows of it.
    fn text(&self) -> String {
        let mut text = self.doc.to_owned();
        // An editor shows the field's text alone.
        if let Kind::Fields(mapping) | Kind::SomeFields(mapping) = self.kind
            && !mapping.doc.is_empty()
        {
            text = format!("{text} {}", mapping.doc);
        }
        match self.given {
            Given::Needed | Given::Optional => text,
            Given::Default(default) => format!("{text} Default: {default}."),
        }
    }
}

/// A field without which the mapping says nothing.
pub(crate) const fn needed(word: &'static str, kind: Kind, doc: &'static str) -> Field {
    field(word, kind, Given::Needed, doc)
}

/// A field that may be missing; `doc` says what that means.
pub(crate) const fn optional(word: &'static str, kind: Kind, doc: &'static str) -> Field {
    field(word, kind, Given::Optional, doc)
}

/// A field that means `default` when it is missing, as if that was written.
pub(crate) const fn default(
    word: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Field {
    field(word, kind, Given::Default(default), doc)
}

const fn field(word: &'static str, kind: Kind, given: Given, doc: &'static str) -> Field {
    Field {
        word,
        kind,
        given,
        doc,
    }
}

/// Whether a field has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    Needed,
    Optional,
    /// When it is missing, this is read in its place.
    Default(&'static str),
}

/// What may stand in a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// Lowercase letters, digits and dashes, at most 63.
    Name,
    /// `5ms`, `1m30s`.
    Time,
    /// `99.9%`
    Percent,
    /// `true` or `false`.
    Truth,
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number between 0 and 1.
    Probability,
    /// Text of this form (a regular expression), with an example.
    Form(&'static str, &'static str),
    /// A version of this form, with an example. Without quotes YAML has a number there.
    Version(&'static str, &'static str),
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// This word.
    Exactly(&'static str),
    /// Text or a number, as kernel settings have them.
    Plain,
    /// A list.
    List(&'static Kind),
    /// A list that is not empty.
    NonEmpty(&'static Kind),
    /// A list of at most so many, each once.
    Set(&'static Kind, u64),
    /// A mapping whose fields are known.
    Fields(&'static Mapping),
    /// A mapping with known fields, one of which at least is there.
    SomeFields(&'static Mapping),
    /// A mapping whose keys the scenario makes up.
    Named(&'static Kind),
    /// One of which a variant can take entries away, with `none`.
    Removable(&'static Kind),
    /// A mapping whose keys have this form, and one at least.
    Settings(&'static str),
    /// A mapping with one entry, which says by its key what it is.
    OneOf(&'static Choice),
    /// Any of these.
    Any(&'static [Kind]),
    /// That, or nothing.
    OrNothing(&'static Kind),
    /// That, or `none`.
    OrNone(&'static Kind),
    /// What a variant lays over the scenario's: nothing is needed there, and `null` takes a key away.
    Over(&'static Kind),
    /// FelixConfiguration's `spec`.
    Felix,
    /// Settings of `KubeProxyConfiguration`.
    ProxyConfig,
    /// A Kubernetes object.
    Object,
}

/// A mapping with one entry, whose key says what it is.
pub(crate) struct Choice {
    /// What diagnostics and the reference call it: `a step of the timeline`.
    pub(crate) called: &'static str,
    /// What it is.
    pub(crate) doc: &'static str,
    /// What it can be.
    pub(crate) words: fn() -> Vec<&'static Field>,
    /// What may stand beside the one entry.
    pub(crate) beside: &'static [Field],
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.called)
    }
}

/// The words of such a list as readers have it.
pub(crate) fn words<T>(all: &[(&'static str, T)]) -> Vec<&'static str> {
    all.iter().map(|(word, _)| *word).collect()
}
