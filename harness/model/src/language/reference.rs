//! The reference part of docs/scenario-language.md: every mapping of the language, with what each of its fields is.

use std::{collections::BTreeMap, fmt::Write, ptr};

use super::{Choice, Field, Given, Kind, Mapping};
use crate::{
    proxy_config::{FIELDS, Setting, SettingKind},
    read::SCENARIO,
};

/// The reference, in Markdown.
pub fn reference() -> String {
    let mut reference = Reference::default();
    reference.mapping(&SCENARIO);
    reference.text
}

#[derive(Default)]
struct Reference {
    text: String,
    /// What is in it by now, by its name: where its fields lie tells two of one name apart.
    said: BTreeMap<&'static str, *const u8>,
}

impl Reference {
    /// A section for the mapping, and behind it one for each that stands in its fields.
    fn mapping(&mut self, mapping: &'static Mapping) {
        let it = ptr::from_ref(mapping).cast();
        if self.begins(mapping.called, mapping.doc, it) {
            self.fields(mapping.fields());
        }
    }

    fn choice(&mut self, choice: &'static Choice) {
        let it = ptr::from_ref(choice).cast();
        if self.begins(choice.called, choice.doc, it) {
            let words = (choice.words)();
            self.fields(words.into_iter().chain(choice.beside));
        }
    }

    /// Whether it was not there yet.
    fn begins(&mut self, called: &'static str, doc: &str, it: *const u8) -> bool {
        let known = self.said.insert(called, it);
        assert!(
            known.is_none_or(|known| known == it),
            "two mappings are called {called}"
        );
        if known.is_none() {
            let _infallible = writeln!(self.text, "#### Fields of {called}\n");
            if !doc.is_empty() {
                let _infallible = writeln!(self.text, "{doc}\n");
            }
        }
        known.is_none()
    }

    fn fields(&mut self, fields: impl Iterator<Item = &'static Field>) {
        let fields: Vec<&Field> = fields.collect();
        self.text
            .push_str("| field | takes | when not given | meaning |\n|---|---|---|---|\n");
        for field in &fields {
            let _infallible = writeln!(self.text, "{}", row(field));
        }
        self.text.push('\n');
        for field in fields {
            self.within(&field.kind);
        }
    }

    /// The section of what kube-proxy states.
    fn settings(&mut self) {
        let it = ptr::from_ref(FIELDS).cast();
        if self.begins("config", "In the words of KubeProxyConfiguration.", it) {
            self.text
                .push_str("| field | takes | meaning |\n|---|---|---|\n");
            self.parts("", FIELDS);
            self.text.push('\n');
        }
    }

    fn parts(&mut self, of: &str, fields: &[Setting]) {
        for (name, kind, doc) in fields {
            let name = format!("{of}{name}");
            let takes = match kind {
                SettingKind::Part(fields) => {
                    self.parts(&format!("{name}."), fields);
                    continue;
                }
                SettingKind::Truth => "`true` or `false`".to_owned(),
                SettingKind::Whole(low, high) => format!("a number, {low} to {high}"),
                SettingKind::Time => "a time".to_owned(),
                SettingKind::Text => "text".to_owned(),
                SettingKind::Networks => "networks, joined by commas".to_owned(),
                SettingKind::NetworkList => "a list of networks".to_owned(),
                SettingKind::Word(words) => one_of(words),
            };
            let _infallible = writeln!(self.text, "| `{name}` | {takes} | {doc} |");
        }
    }

    /// The sections of what stands in there.
    fn within(&mut self, kind: &Kind) {
        match kind {
            Kind::Fields(mapping) | Kind::SomeFields(mapping) => self.mapping(mapping),
            Kind::OneOf(choice) => self.choice(choice),
            Kind::ProxyConfig => self.settings(),
            Kind::List(kind)
            | Kind::NonEmpty(kind)
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
            | Kind::Object => {}
        }
    }
}

fn row(field: &Field) -> String {
    let given = match field.given {
        Given::Needed => "it is needed".to_owned(),
        Given::Optional => "–".to_owned(),
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
        Kind::List(kind) => format!("a list of {}", each(kind)),
        Kind::NonEmpty(kind) | Kind::Set(kind, _) => {
            format!("a list, not empty, of {}", each(kind))
        }
        Kind::Fields(mapping) | Kind::SomeFields(mapping) => link(mapping.called),
        Kind::OneOf(choice) => link(choice.called),
        Kind::Named(kind) | Kind::Removable(kind) => format!("names, each with {}", each(kind)),
        Kind::Settings(_) => "names and values".to_owned(),
        Kind::Any(kinds) => {
            let kinds: Vec<String> = kinds.iter().map(takes).collect();
            kinds.join(", or ")
        }
        Kind::OrNothing(kind) => format!("{}, or nothing", takes(kind)),
        Kind::OrNone(kind) => format!("{}, or `none`", takes(kind)),
        Kind::Over(kind) => takes(kind),
        Kind::Felix => "FelixConfiguration's `spec`".to_owned(),
        Kind::ProxyConfig => link("config"),
        Kind::Object => "a Kubernetes object".to_owned(),
    }
}

/// The same where it is part of something.
fn each(kind: &Kind) -> String {
    match kind {
        Kind::Any(_) | Kind::OrNothing(_) | Kind::OrNone(_) => format!("({})", takes(kind)),
        _ => takes(kind),
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
