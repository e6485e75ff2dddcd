//! The reference part of docs/scenario-language.md: every mapping of the language, with what each of its fields is.

use std::{collections::BTreeSet, fmt::Write};

use super::{Choice, Field, Given, Kind, Mapping};
use crate::read::SCENARIO;

/// The reference, in Markdown.
pub fn reference() -> String {
    let mut reference = Reference::default();
    reference.mapping(&SCENARIO);
    reference.text
}

#[derive(Default)]
struct Reference {
    text: String,
    /// What is in it by now, by its name.
    said: BTreeSet<&'static str>,
}

impl Reference {
    /// A section for the mapping, and behind it one for each that stands in its fields.
    fn mapping(&mut self, mapping: &'static Mapping) {
        if self.begins(mapping.called, mapping.doc) {
            self.fields(mapping.fields());
        }
    }

    fn choice(&mut self, choice: &'static Choice) {
        if self.begins(choice.called, choice.doc) {
            let words = (choice.words)();
            self.fields(words.into_iter().chain(choice.beside));
        }
    }

    /// Whether it was not there yet.
    fn begins(&mut self, called: &'static str, doc: &str) -> bool {
        let new = self.said.insert(called);
        if new {
            let _infallible = writeln!(self.text, "#### Fields of {called}\n\n{doc}\n");
        }
        new
    }

    fn fields(&mut self, fields: impl Iterator<Item = &'static Field>) {
        let fields: Vec<&Field> = fields.collect();
        self.text
            .push_str("| field | takes | | |\n|---|---|---|---|\n");
        for field in &fields {
            let _infallible = writeln!(self.text, "{}", row(field));
        }
        self.text.push('\n');
        for field in fields {
            self.within(&field.kind);
        }
    }

    /// The sections of what stands in there.
    fn within(&mut self, kind: &Kind) {
        match kind {
            Kind::Fields(mapping) | Kind::SomeFields(mapping) => self.mapping(mapping),
            Kind::OneOf(choice) => self.choice(choice),
            Kind::List(kind)
            | Kind::Some(kind)
            | Kind::Set(kind, _)
            | Kind::Named(kind)
            | Kind::Removable(kind)
            | Kind::OrNothing(kind)
            | Kind::OrNone(kind)
            | Kind::Over(kind) => self.within(kind),
            Kind::Any(kinds) => kinds.iter().for_each(|kind| self.within(kind)),
            Kind::Text
            | Kind::Name
            | Kind::Time
            | Kind::Percent
            | Kind::Truth
            | Kind::Whole(..)
            | Kind::Probability
            | Kind::Form(..)
            | Kind::Version(..)
            | Kind::Word(_)
            | Kind::Exactly(_)
            | Kind::Plain
            | Kind::Settings(_)
            | Kind::Felix
            | Kind::ProxyConfig
            | Kind::Object => {}
        }
    }
}

fn row(field: &Field) -> String {
    let given = match field.given {
        Given::Needed => "needed".to_owned(),
        Given::Optional => String::new(),
        Given::Default(default) => format!("`{default}`"),
    };
    let row = [&format!("`{}`", field.word), &takes(&field.kind), &given];
    let cells = row.map(|cell| cell.replace('|', "\\|")).join(" | ");
    format!("| {cells} | {} |", field.doc)
}

/// What may stand in a field, in words.
fn takes(kind: &Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Name => "a name".to_owned(),
        Kind::Time => "a time".to_owned(),
        Kind::Percent => "a percentage".to_owned(),
        Kind::Truth => "`true` or `false`".to_owned(),
        Kind::Whole(low, u64::MAX) => format!("a number from {low} on"),
        Kind::Whole(low, high) => format!("a number, {low} to {high}"),
        Kind::Probability => "a number between 0 and 1".to_owned(),
        Kind::Form(_, example) => format!("text, as `{example}`"),
        Kind::Version(_, example) => format!("a version, as `{example}`"),
        Kind::Word(words) => one_of(&words()),
        Kind::Exactly(word) => format!("`{word}`"),
        Kind::Plain => "text or a number".to_owned(),
        Kind::List(kind) | Kind::Some(kind) | Kind::Set(kind, _) => {
            format!("a list: {}", takes(kind))
        }
        Kind::Fields(mapping) | Kind::SomeFields(mapping) => link(mapping.called),
        Kind::OneOf(choice) => link(choice.called),
        Kind::Named(kind) | Kind::Removable(kind) => format!("by name: {}", takes(kind)),
        Kind::Settings(_) => "names and values".to_owned(),
        Kind::Any(kinds) => {
            let kinds: Vec<String> = kinds.iter().map(takes).collect();
            kinds.join(", or ")
        }
        Kind::OrNothing(kind) => format!("{}, or nothing", takes(kind)),
        Kind::OrNone(kind) => format!("{}, or `none`", takes(kind)),
        Kind::Over(kind) => format!("over the scenario's: {}", takes(kind)),
        Kind::Felix => "FelixConfiguration's `spec`".to_owned(),
        Kind::ProxyConfig => "fields of KubeProxyConfiguration".to_owned(),
        Kind::Object => "a Kubernetes object".to_owned(),
    }
}

fn one_of(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// A link to the section of that name.
fn link(called: &str) -> String {
    let anchor: String = called
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || " -_".contains(*c))
        .collect();
    let anchor = anchor.to_lowercase().replace(' ', "-");
    format!("[{called}](#fields-of-{anchor})")
}
