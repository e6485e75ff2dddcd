//! The schema for editors: committed as it is made, and of one mind with the reader.

use std::{
    fs,
    path::{Path, PathBuf},
};

use chainbreak_model::schema;
use regex::Regex;
use serde_json::Value;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

#[test]
fn the_committed_schema_is_the_one_that_is_made() {
    let committed =
        fs::read_to_string(scenarios().join("scenario.schema.json")).unwrap_or_default();
    let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    assert!(
        committed == made,
        "the schema changed: run `chainbreak schema > scenarios/scenario.schema.json`"
    );
}

const WELL_FORMED: &str = "the schema is well formed";

/// What a value has against a schema. Knows the keywords that the schema uses, and only those.
fn against(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let keywords = schema.as_object().expect(WELL_FORMED).iter();
    let said = keywords.flat_map(|(keyword, rule)| match keyword.as_str() {
        "$ref" => {
            let path = rule.as_str().and_then(|path| path.strip_prefix('#'));
            let root = chainbreak_model::schema();
            against(
                path.and_then(|path| root.pointer(path)).expect(WELL_FORMED),
                value,
                at,
            )
        }
        "items" => {
            let items = value.as_array().into_iter().flatten();
            items.flat_map(|item| against(rule, item, at)).collect()
        }
        "propertyNames" => {
            let names = value
                .as_object()
                .into_iter()
                .flat_map(|entries| entries.keys());
            names
                .flat_map(|name| against(rule, &name.clone().into(), name))
                .collect()
        }
        "properties" | "additionalProperties" => entries_against(schema, keyword, value),
        _ if allows(keyword, rule, value) => Vec::new(),
        _ => vec![format!("{at}: {keyword} {rule} refuses {value}")],
    });
    said.collect()
}

fn allows(keyword: &str, rule: &Value, value: &Value) -> bool {
    let list = || rule.as_array().expect(WELL_FORMED);
    let bound = || rule.as_f64().expect(WELL_FORMED);
    let word = || rule.as_str().expect(WELL_FORMED);
    match keyword {
        "$schema" | "$defs" | "title" | "description" | "examples" => true,
        "type" => is_of_type(rule, value),
        "const" => rule == value,
        "enum" => list().contains(value),
        "anyOf" => list()
            .iter()
            .any(|schema| against(schema, value, "").is_empty()),
        "pattern" => {
            let pattern = Regex::new(word()).expect(WELL_FORMED);
            value.as_str().is_none_or(|text| pattern.is_match(text))
        }
        "minLength" => value.as_str().is_none_or(|text| !text.is_empty()),
        "minimum" => value.as_f64().is_none_or(|number| number >= bound()),
        "maximum" => value.as_f64().is_none_or(|number| number <= bound()),
        "minItems" => value.as_array().is_none_or(|items| !items.is_empty()),
        "maxItems" => {
            let longest = rule.as_u64().expect(WELL_FORMED);
            value
                .as_array()
                .is_none_or(|items| items.len() as u64 <= longest)
        }
        "uniqueItems" => value.as_array().is_none_or(|items| {
            let mut others = items.iter().enumerate();
            others.all(|(number, item)| !items.iter().skip(number + 1).any(|other| other == item))
        }),
        "minProperties" => value.as_object().is_none_or(|entries| !entries.is_empty()),
        "maxProperties" => value.as_object().is_none_or(|entries| {
            let most = rule.as_u64().expect(WELL_FORMED);
            entries.len() as u64 <= most
        }),
        "required" => value.as_object().is_none_or(|entries| {
            list()
                .iter()
                .all(|name| entries.contains_key(name.as_str().expect(WELL_FORMED)))
        }),
        _ => panic!("the schema uses {keyword}, which this test does not know"),
    }
}

fn entries_against(schema: &Value, keyword: &str, value: &Value) -> Vec<String> {
    let entries = value.as_object().into_iter().flatten();
    let known = |name: &str| schema["properties"].get(name);
    let said = entries.flat_map(|(name, value)| match (keyword, known(name)) {
        ("properties", Some(schema)) => against(schema, value, name),
        ("additionalProperties", None) if schema[keyword].is_object() => {
            against(&schema[keyword], value, name)
        }
        ("additionalProperties", None) => vec![format!("{name}: no such field")],
        _ => Vec::new(),
    });
    said.collect()
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().expect(WELL_FORMED) {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    rule.as_array()
        .map_or_else(|| is(rule), |types| types.iter().any(is))
}

fn shipped() -> Vec<(PathBuf, String)> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a folder can be read");
        let paths = entries.map(|entry| entry.expect("an entry can be read").path());
        paths.collect::<Vec<PathBuf>>()
    };
    let areas = entries(&scenarios())
        .into_iter()
        .filter(|path| path.is_dir());
    let files = areas.flat_map(|area| entries(&area));
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "yaml"));
    let files = files.map(|path| {
        let text = fs::read_to_string(&path).expect("a scenario can be read");
        (path, text)
    });
    files
        .filter(|(_, text)| text.contains("scenario.schema.json"))
        .collect()
}

#[test]
fn every_shipped_scenario_fits_the_schema() {
    let shipped = shipped();
    assert!(shipped.len() >= 2);
    for (path, text) in shipped {
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            against(&schema(), &value, "scenario"),
            [""; 0],
            "{}",
            path.display()
        );
    }
}

#[test]
fn what_a_variant_takes_away_with_null_the_schema_lets_it_take() {
    let text = r"
name: taken-away
about: keys that a variant takes away
cluster:
  nodes: 1
  kube-proxy: { version: '1.32', sync-period: 5s }
  calico: { version: v3.28.1 }
  hosts: { outside: { nginx: 80 } }
manifests: [{ apiVersion: v1, kind: Pod, metadata: { name: client }, spec: { containers: [{ name: c, image: nginx }] } }]
traffic:
  shop: { from: node/n1, to: pod/default/client, port: 80, every: 5ms, timeout: 1s }
  other: { from: node/n1, to: pod/default/client, port: 80, every: 5ms }
timeline: [settle: 1s, mark: later]
promises:
  answers: { available: { traffic: shop, at-least: 99%, longest-gap: 500ms, from: later } }
  few: { resets: { traffic: shop, at-least: 0, at-most: 3 } }
variants:
  all: { expect: { broken: [answers] } }
  less:
    calico: null
    kube-proxy: { sync-period: null }
    cluster: { hosts: { outside: { nginx: null } } }
    traffic: { shop: { timeout: null }, other: null }
    promises: { answers: { available: { longest-gap: null, from: null } }, few: { resets: { at-least: null } } }
    expect: healthy
";
    let open = |path: &Path| fs::read(path);
    let read = chainbreak_model::read(Path::new("taken-away.yaml"), text.as_bytes(), &open);
    assert!(read.is_ok(), "{}", read.unwrap_err().plain());
    let value: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(against(&schema(), &value, "scenario"), [""; 0]);
    // Only what lies over something can be nothing.
    let bare = text.replacen("timeout: 1s", "timeout: null", 1);
    let value: Value = serde_saphyr::from_str(&bare).unwrap();
    assert_ne!(against(&schema(), &value, "scenario"), [""; 0]);
}

#[test]
fn mistakes_that_the_reader_refuses_are_refused_by_the_schema() {
    let (_, good) = shipped()
        .into_iter()
        .find(|(path, _)| path.ends_with("calico-bpf-cleanup-fights-kube-proxy.yaml"))
        .unwrap();
    let mistakes = [
        ("timeline:", "timelin:"),
        ("every: 20ms", "every: 20"),
        ("99.9%", "lots"),
        ("from: pod/client", "from: client"),
        ("bpfEnabled: true", "bpfEnable: true"),
        ("port: 80,", "port: 80000,"),
        ("expect: healthy", "expect: fine"),
        ("iptables: [legacy, nft]", "iptables: []"),
        ("- settle: 1s", "- sleep: 1s"),
        ("mode: iptables", "mode: ipvs"),
    ];
    for (right, wrong) in mistakes {
        let bad = good.replace(right, wrong);
        assert_ne!(bad, good, "{right}");
        let open = |path: &Path| fs::read(path);
        let file = scenarios().join("kube-proxy/bad.yaml");
        assert!(
            chainbreak_model::read(&file, bad.as_bytes(), &open).is_err(),
            "{wrong}"
        );
        let value: Value = serde_saphyr::from_str(&bad).unwrap();
        assert_ne!(against(&schema(), &value, "scenario"), [""; 0], "{wrong}");
    }
}
