//! The schema for editors: committed as it is made, and of one mind with the reader.

mod shipped;

use std::{fs, path::Path};

use chainbreak_model::schema;
use serde_json::Value;
use shipped::{scenarios, shipped};

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

/// What a document has against the schema.
fn against(value: &Value) -> Vec<String> {
    let validator = jsonschema::draft202012::new(&schema()).expect("the schema is one");
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn the_schema_is_one_by_its_own_metaschema() {
    let schema = schema();
    let valid = jsonschema::meta::validate(&schema);
    assert!(valid.is_ok(), "{}", valid.unwrap_err());
}

#[test]
fn editors_show_what_each_field_means() {
    fn silent(schema: &Value, at: &str, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            let said = property["description"].as_str().unwrap_or_default();
            if said.len() < 5 {
                found.push(at.clone());
            }
            silent(property, &at, found);
            silent(&property["items"], &at, found);
            silent(&property["additionalProperties"], &at, found);
            for one in property["anyOf"].as_array().into_iter().flatten() {
                silent(one, &at, found);
            }
        }
    }
    let mut found = Vec::new();
    silent(&schema(), "", &mut found);
    assert_eq!(found, [""; 0]);
}

#[test]
fn every_shipped_scenario_fits_the_schema() {
    let shipped = shipped();
    assert!(shipped.len() >= 2);
    for (path, text) in shipped {
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(against(&value), [""; 0], "{}", path.display());
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
    assert_eq!(against(&value), [""; 0]);
    // Only what lies over something can be nothing.
    let bare = text.replacen("timeout: 1s", "timeout: null", 1);
    let value: Value = serde_saphyr::from_str(&bare).unwrap();
    assert_ne!(against(&value), [""; 0]);
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
        ("settle: 1s", "sleep: 1s"),
        ("mode: iptables", "mode: userspace"),
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
        assert_ne!(against(&value), [""; 0], "{wrong}");
    }
}
