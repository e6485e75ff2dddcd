//! Kubernetes manifests: their mistakes lie inside their file, and what is read of them, written as JSON, is read the same.
#![no_main]

use chainbreak_fuzz::read_scenario;
use chainbreak_model::scenario::Scenario;
use libfuzzer_sys::fuzz_target;

const SCENARIO: &[u8] = b"
name: fuzzed
about: Whatever its manifests say.
cluster: { nodes: 2, kube-proxy: { version: '1.32' }, calico: { version: v3.28.1 } }
manifests: [objects.yaml]
timeline: [{ settle: 1s }]
promises: { quiet: { no-log: { agent: kube-proxy, matches: Failed } } }
variants: { all: { expect: healthy } }
";

fuzz_target!(|bytes: &[u8]| {
    let Some(scenario) = read_scenario(SCENARIO, bytes) else {
        return;
    };
    let objects = objects(&scenario);
    let documents = objects.iter().map(|object| format!("--- {object}\n"));
    let written: String = documents.collect();
    let again = read_scenario(SCENARIO, written.as_bytes());
    let again = again.unwrap_or_else(|| panic!("refused: {written}"));
    assert_eq!(self::objects(&again), objects);
});

fn objects(scenario: &Scenario) -> Vec<serde_json::Value> {
    let mut variants = scenario.variants.values();
    let variant = variants.next().expect("there is a variant");
    variant.run.manifests.to_vec()
}
