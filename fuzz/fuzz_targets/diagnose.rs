//! What people attach to an issue, several texts divided by lines `%%`: it is found the same twice, each line of a finding is one line, and
//! texts that know nothing add nothing.
#![no_main]

use chainbreak_diagnose::{Evidence, findings, writers};
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
    for finding in findings(&evidence) {
        lines.push(finding.what);
        lines.extend(finding.evidence);
        lines.extend(finding.mends);
    }
    lines
}
