//! What the targets share: a scenario that is read, what holds of its mistakes, and its cases.

use std::{io, path::Path};

use chainbreak_model::{
    Diagnostic, Diagnostics,
    case::{Capabilities, Case},
    plan,
    plan::{Choice, Planned},
    read,
    scenario::Scenario,
};
use miette::Diagnostic as _;

/// Where the scenario is said to lie.
const FILE: &str = "/fuzzed/scenario.yaml";

/// Reads a scenario, each of whose manifests has these bytes. Read again it is the same, or has the same mistakes, and
/// each of these lies inside its file.
pub fn read_scenario(scenario: &[u8], manifest: &[u8]) -> Option<Scenario> {
    let open = |_: &Path| -> io::Result<Vec<u8>> { Ok(manifest.to_owned()) };
    let once = read(Path::new(FILE), scenario, &open);
    assert!(once == read(Path::new(FILE), scenario, &open));
    once.map_err(|mistakes| hold(&mistakes, scenario, manifest))
        .ok()
}

fn hold(mistakes: &Diagnostics, scenario: &[u8], manifest: &[u8]) {
    assert!(mistakes.iter().next().is_some());
    for mistake in mistakes.iter() {
        let is_the_scenarios = mistake.file() == Path::new(FILE);
        lies_inside(mistake, if is_the_scenarios { scenario } else { manifest });
    }
    assert!(mistakes.plain().ends_with(&format!("{mistakes}\n")));
}

fn lies_inside(mistake: &Diagnostic, file: &[u8]) {
    let text = String::from_utf8_lossy(file);
    let (line, column) = mistake.line_and_column();
    let found = text.split('\n').nth(line - 1);
    let found = found.unwrap_or_else(|| panic!("there is no line {line}"));
    let most = found.chars().count() + 1;
    assert!(column <= most, "line {line} has no column {column}");
    let source = mistake.source_code().expect("a mistake has a source");
    for label in mistake.labels().expect("a mistake has a label") {
        let span = label.inner();
        assert!(source.read_span(span, 1, 1).is_ok(), "{span:?}");
    }
}

/// Its cases, where nothing is missing.
pub fn cases(scenario: &Scenario) -> Vec<Case> {
    let choice = Choice {
        backend: "lab".to_owned(),
        ..Choice::default()
    };
    let needed = plan(scenario, &choice, &Capabilities::default());
    let needed = needed.into_iter().flat_map(|planned| match planned {
        Planned::Skip(skipped) => skipped.missing,
        Planned::Run(_) => Vec::new(),
    });
    let all = Capabilities(needed.map(|it| (it.capability, Ok(()))).collect());
    let planned = plan(scenario, &choice, &all).into_iter();
    let runs = planned.filter_map(|planned| match planned {
        Planned::Run(case) => Some(*case),
        Planned::Skip(_) => None,
    });
    runs.collect()
}
