//! What people attach to an issue, several texts divided by lines `%%`: it is found the same twice, each line of a finding is one line, and
//! texts that know nothing add nothing. A scenario of it has no steps but ours.
#![no_main]

use chainbreak_diagnose::{Evidence, Reproduction, examine, writers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let parts: Vec<&str> = text.split("\n%%\n").collect();
    let all = diagnosed(&parts);
    assert_eq!(diagnosed(&parts), all);
    // A text of which nothing is known is as if it were not there.
    let known = parts.iter().filter(|part| is_known(part));
    assert_eq!(diagnosed(&known.copied().collect::<Vec<_>>()), all);
    for line in &all {
        assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
    }
});

fn is_known(part: &str) -> bool {
    // Of one whose rules break off the rest is taken in.
    Evidence::default().add(part).unwrap_or(true)
}

/// All that is said of these texts.
fn diagnosed(parts: &[&str]) -> Vec<String> {
    let mut evidence = Evidence::default();
    for part in parts {
        let _is_known = evidence.add(part);
    }
    let writers = writers(&evidence).into_iter();
    let mut lines: Vec<String> = writers.flat_map(|it| [it.who, it.what]).collect();
    let found = examine(&evidence).findings;
    if let Ok(reproduction) = Reproduction::of(&evidence, &found) {
        has_our_steps(&reproduction.scenario("fuzzed"));
    }
    for finding in found {
        lines.push(finding.what);
        lines.extend(finding.evidence);
        lines.extend(finding.mends);
    }
    lines
}

/// What a scenario does, and the words between.
const WORDS: [&str; 18] = [
    "variants:",
    "as-found:",
    "kube-proxy-restarted:",
    "felix-asks-the-api-directly:",
    "timeline:",
    "expect: healthy",
    "- settle: ",
    "- mark: found",
    "- delete-rule: { node: n1, ",
    "- flush: { node: n1, ",
    "- run: { at: node/n1, as: somebody, command: nft flush map ip kube-proxy service-ips }",
    "- sysctl: { at: node/n1, set: { net.ipv4.ip_forward: 0 } }",
    "- fill-conntrack: { node: n1, ",
    "- felix: { bpfEnabled: true }",
    "- restart: { agent: kube-proxy, ",
    "- api: move",
    "- apply: [",
    "- recreate: { agent: felix, api: direct }",
];

fn has_our_steps(scenario: &str) {
    let (_, steps) = scenario.rsplit_once("\ntimeline:\n").expect("a timeline");
    for line in steps.lines() {
        let line = line.trim_start();
        assert!(WORDS.iter().any(|it| line.starts_with(it)), "{line:?}");
    }
    assert!(!scenario.contains('\r'), "{scenario:?}");
}
