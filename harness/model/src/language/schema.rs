//! The JSON Schema of scenario files, for editors: completion, hover texts, and most mistakes while one types. It is laxer
//! than the reader, which also knows what names refer to.

use serde_json::{Map, Value, json};

use super::{Choice, Field, Given, Kind, Mapping};
use crate::{
    felix,
    proxy_config::{self, Setting, SettingKind},
    read::SCENARIO,
};

const NAME: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
const TIME: &str = "^([0-9]+(\\.[0-9]+)?(us|µs|ms|s|m|h))+$";
const PERCENT: &str = "^[0-9]+(\\.[0-9]+)?\\s*%$";

/// Whether a mapping stands alone or is laid over another one, as in a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Over,
}

/// The schema, as committed in `scenarios/scenario.schema.json`.
pub fn schema() -> Value {
    let mut schema = mapping(&SCENARIO, Part::Whole);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "chainbreak scenario".into();
    let felix = json!({ "type": "object", "propertyNames": { "enum": felix::FIELDS } });
    schema["$defs"] = json!({ "felix": felix });
    schema
}

fn mapping(mapping: &Mapping, part: Part) -> Value {
    let needed = mapping
        .fields()
        .filter(|field| part == Part::Whole && field.given == Given::Needed);
    let needed: Vec<&str> = needed.map(|field| field.word).collect();
    json!({
        "description": mapping.doc,
        "type": "object",
        "properties": properties(mapping.fields(), part),
        "required": needed,
        "additionalProperties": false
    })
}

fn properties(fields: impl Iterator<Item = &'static Field>, part: Part) -> Map<String, Value> {
    let properties = fields.map(|field| (field.word.to_owned(), property(field, part)));
    properties.collect()
}

/// A field, with what an editor shows of it.
fn property(field: &Field, part: Part) -> Value {
    with(of(&field.kind, part), "description", field.text())
}

fn choice(choice: &Choice, part: Part) -> Value {
    let words = (choice.words)().into_iter().chain(choice.beside);
    json!({
        "description": choice.doc,
        "type": "object",
        "properties": properties(words, part),
        "minProperties": 1,
        "maxProperties": 1 + choice.beside.len(),
        "additionalProperties": false
    })
}

fn of(kind: &Kind, part: Part) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string", "minLength": 1 }),
        Kind::Name => form(NAME, "a-name"),
        Kind::Time => form(TIME, "5ms"),
        Kind::Percent => form(PERCENT, "99.9%"),
        Kind::Truth => json!({ "type": "boolean" }),
        Kind::Whole(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::Probability => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Kind::Form(pattern, example) => form(pattern, example),
        Kind::Version(pattern, example) => json!({
            "anyOf": [{ "type": "string", "pattern": pattern }, { "type": "number" }],
            "examples": [example]
        }),
        Kind::Word(words) => json!({ "enum": words() }),
        Kind::Exactly(word) => json!({ "const": word }),
        Kind::Plain => json!({ "type": ["string", "number"] }),
        Kind::List(item) => list(item),
        Kind::NonEmpty(item) => with(list(item), "minItems", 1),
        Kind::Set(item, most) => {
            let list = with(with(list(item), "minItems", 1), "maxItems", *most);
            with(list, "uniqueItems", true)
        }
        Kind::Fields(fields) => mapping(fields, part),
        Kind::SomeFields(fields) => with(mapping(fields, part), "minProperties", 1),
        Kind::Named(item) => named(of(item, part)),
        Kind::Removable(item) => match part {
            Part::Whole => named(of(item, part)),
            Part::Over => named(or_none(of(item, part))),
        },
        Kind::Settings(pattern) => json!({
            "type": "object",
            "propertyNames": { "pattern": pattern },
            "additionalProperties": { "type": ["string", "number"] }
        }),
        Kind::OneOf(what) => choice(what, part),
        Kind::Any(kinds) => {
            let kinds: Vec<Value> = kinds.iter().map(|kind| of(kind, part)).collect();
            json!({ "anyOf": kinds })
        }
        Kind::OrNothing(kind) => or_null(of(kind, part)),
        Kind::OrNone(kind) => or_none(of(kind, part)),
        Kind::Over(kind) => or_null(of(kind, Part::Over)),
        // Once for the three places that take it.
        Kind::Felix => json!({ "$ref": "#/$defs/felix" }),
        Kind::ProxyConfig => settings(proxy_config::FIELDS),
        Kind::Object => json!({ "type": "object" }),
    }
}

/// Fields of `KubeProxyConfiguration`.
fn settings(fields: &[Setting]) -> Value {
    let of = |kind: SettingKind| match kind {
        SettingKind::Truth => json!({ "type": "boolean" }),
        SettingKind::Whole(low, high) => {
            json!({ "type": "integer", "minimum": low, "maximum": high })
        }
        SettingKind::Time => json!({ "type": "string", "examples": ["30s"] }),
        SettingKind::Text => json!({ "type": "string" }),
        SettingKind::Networks => json!({ "type": "string", "examples": ["", "10.20.0.0/16"] }),
        SettingKind::NetworkList => json!({ "type": "array", "items": { "type": "string" } }),
        SettingKind::Word(words) => json!({ "enum": words }),
        SettingKind::Part(fields) => settings(fields),
    };
    let properties = fields.iter().map(|(name, kind, doc)| {
        let schema = with(of(*kind), "description", *doc);
        ((*name).to_owned(), schema)
    });
    let properties: Map<String, Value> = properties.collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn form(pattern: &str, example: &str) -> Value {
    json!({ "type": "string", "pattern": pattern, "examples": [example] })
}

fn with(mut schema: Value, keyword: &str, value: impl Into<Value>) -> Value {
    schema[keyword] = value.into();
    schema
}

/// Lists are replaced as a whole: their items are as ever.
fn list(item: &Kind) -> Value {
    json!({ "type": "array", "items": of(item, Part::Whole) })
}

fn named(schema: Value) -> Value {
    with(json!({ "type": "object" }), "additionalProperties", schema)
}

fn or_none(schema: Value) -> Value {
    either(&json!({ "const": "none" }), schema)
}

/// One of two; what is said of the second is said of both.
fn either(first: &Value, mut second: Value) -> Value {
    let said = second
        .as_object_mut()
        .and_then(|it| it.remove("description"));
    let schema = json!({ "anyOf": [first, second] });
    match said {
        Some(said) => with(schema, "description", said),
        None => schema,
    }
}

/// With nothing (`null`) allowed for it and for each of its keys, which takes the key away.
fn or_null(mut schema: Value) -> Value {
    let take = |slot: &mut Value| *slot = or_null(slot.take());
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(take);
    }
    if let Some(named) = schema.get_mut("additionalProperties")
        && named.is_object()
    {
        take(named);
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        let typed = choices.iter_mut();
        typed.filter(|it| it.get("type").is_some()).for_each(take);
        return schema;
    }
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
        return schema;
    }
    let types = match schema.get("type") {
        Some(Value::Array(types)) => types.clone(),
        Some(one) => vec![one.clone()],
        None => return either(&json!({ "type": "null" }), schema),
    };
    let others = types.into_iter().filter(|one| one != "null");
    let types: Vec<Value> = others.chain(["null".into()]).collect();
    with(schema, "type", types)
}
