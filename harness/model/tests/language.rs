//! The documentation of the language: its examples are read as parts of a small whole scenario, and
//! every step and promise has one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use chainbreak_model::{case::Step, read, reference, scenario::Scenario, schema};

/// What an example stands in: every mark, place and object that examples speak of is here.
const AROUND: &str = "\
name: around
about: what the examples stand in
cluster:
  nodes: 2
  kube-proxy: { version: '1.32' }
  calico: { version: v3.28.1 }
  hosts: [outside]
manifests: [objects.yaml]
traffic:
  shop: { from: pod/client, to: service/test/web, port: 80, every: 5ms }
timeline:
  - mark: broken
  - settle: 1s
  - mark: three
  - settle: 1s
  - mark: healed
  - settle: 1s
promises:
  answers: { available: { traffic: shop } }
";

const OBJECTS: &str = "\
apiVersion: v1
kind: Pod
metadata: { name: client }
spec:
  containers: [{ name: client, image: busybox }]
---
apiVersion: apps/v1
kind: Deployment
metadata: { namespace: test, name: nginx }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers: [{ name: nginx, image: nginx }]
---
apiVersion: v1
kind: Service
metadata: { namespace: test, name: web }
spec:
  selector: { app: web }
  ports: [{ name: http, port: 80 }, { name: metrics, port: 8125, protocol: UDP }]
";

/// What stands before the reference, which ends the page.
const REFERENCE: &str = "<!-- printed by `chainbreak schema --reference` -->\n\n";

type Parts = BTreeMap<String, String>;

/// The top-level keys of a mapping with the lines that belong to them.
fn parts(yaml: &str) -> Parts {
    let mut parts = Parts::new();
    let mut current = String::new();
    for line in yaml.lines() {
        let key = line.split(':').next().unwrap_or_default();
        if !line.starts_with([' ', '#', '-']) && !key.is_empty() {
            key.clone_into(&mut current);
        }
        let part = parts.entry(current.clone()).or_default();
        part.push_str(line);
        part.push('\n');
    }
    parts
}

/// A part of the documentation as a whole scenario.
fn whole(example: &Parts) -> String {
    let mut scenario = parts(AROUND);
    scenario.extend(example.clone());
    let mut promises = scenario["promises"].lines().skip(1);
    let name = promises.find_map(|line| line.trim().split_once(": "));
    let (name, _) = name.expect("a promise has a name");
    let variants = format!(
        "variants:\n  incident: {{ expect: {{ broken: [{name}] }} }}\n  \
         fixed: {{ cluster: {{ nodes: 3 }}, expect: healthy }}\n"
    );
    scenario.entry("variants".to_owned()).or_insert(variants);
    scenario.into_values().collect()
}

fn documentation() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenario-language.md");
    fs::read_to_string(file).expect("the documentation is there")
}

/// Every YAML block that shows parts of a scenario, and of every item of the list of steps the code
/// that it begins with.
fn examples(text: &str) -> Vec<Parts> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    let yaml = blocks.filter_map(|block| block.strip_prefix("yaml\n"));
    let shown = yaml.map(parts).filter(|it| !it.contains_key("name"));
    let steps = text.lines().filter_map(|line| line.strip_prefix("- `"));
    let steps = steps.filter_map(|line| line.split_once('`'));
    let steps = steps.filter(|(code, _)| code.contains(": ") && !code.starts_with("expect"));
    let steps = steps.map(|(code, _)| {
        let timeline = format!("timeline:\n  - {code}\n  - settle: 1s\n");
        Parts::from([("timeline".to_owned(), timeline)])
    });
    let shown = shown.filter(|it| !it.keys().all(String::is_empty));
    shown.chain(steps).collect()
}

#[test]
fn the_examples_of_the_documentation_are_read_without_a_mistake() {
    let examples = examples(&documentation());
    assert!(examples.len() > 3, "{examples:?}");
    let open = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        Some("objects.yaml") => Ok(OBJECTS.as_bytes().to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let mut wrong = String::new();
    for example in &examples {
        let whole = whole(example);
        match read(Path::new("example.yaml"), whole.as_bytes(), &open) {
            Err(error) => wrong += &error.plain(),
            Ok(scenario) => wrong.extend(called_otherwise(example, &scenario)),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The first step of an example's timeline, where it is not called as it is written: `by` speaks of it so.
fn called_otherwise(example: &Parts, scenario: &Scenario) -> Option<String> {
    let timeline = example.get("timeline")?;
    let first = timeline.lines().nth(1)?.trim().strip_prefix("- ")?;
    let (written, _) = first.split_once(':')?;
    let steps = &scenario.variants.values().next()?.run.timeline;
    let called: Vec<&str> = steps.iter().map(Step::word).collect();
    let is_its_own = called.contains(&written) || ["name", "at"].contains(&written);
    (!is_its_own).then(|| format!("{written} is called one of {called:?}\n"))
}

/// The words that a step or a promise can be, by where the schema has them.
fn words(of: &str) -> BTreeSet<String> {
    let schema = schema();
    let words = schema
        .pointer(of)
        .and_then(|it| it["properties"].as_object());
    let words = words.unwrap_or_else(|| panic!("{of} is not in the schema"));
    words
        .keys()
        .filter(|word| *word != "name")
        .cloned()
        .collect()
}

#[test]
fn the_reference_of_the_documentation_is_the_one_that_is_made() {
    let text = documentation();
    let (_, committed) = text.split_once(REFERENCE).expect("there is a reference");
    assert!(
        committed == reference(),
        "the reference changed: replace what stands behind {REFERENCE:?} with what `chainbreak schema --reference` prints"
    );
}

#[test]
fn every_step_and_every_promise_is_shown_in_the_documentation() {
    let text = documentation();
    let shown: String = examples(&text)
        .iter()
        .flat_map(Parts::values)
        .map(String::as_str)
        .collect();
    // The whole scenario at the top is checked where the shipped ones are.
    let (top, _) = text
        .split_once("## The fields")
        .expect("the fields are explained");
    let shown = shown + top;
    let of_steps = "/properties/timeline/items";
    let of_promises = "/properties/promises/additionalProperties";
    for of in [of_steps, of_promises] {
        for word in words(of) {
            let is_there = [
                format!("- {word}: "),
                format!("{{ {word}: "),
                format!("  {word}: "),
            ];
            assert!(
                is_there.iter().any(|it| shown.contains(it)),
                "{of} {word} has no example"
            );
        }
    }
}
