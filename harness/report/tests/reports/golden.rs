//! The recorded run of `reports/golden`: a real one, rendered as it was committed. What changes the reports
//! shows here as a difference to be looked at; `chainbreak report reports/golden` then writes them again.

use std::{fs, path::PathBuf};

use chainbreak_report::{
    Run, exit_code,
    term::{Colour, Terminal},
};

use crate::history::{summaries, summary, text};

fn golden(file: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../reports/golden");
    folder.join(file)
}

fn recorded() -> Run {
    Run::read(&fs::read(golden("run.jsonl")).unwrap()[..], &golden("")).unwrap()
}

#[test]
fn the_recorded_run_renders_the_committed_text() {
    let terminal = Terminal {
        width: 140,
        colour: Colour::Off,
    };
    let committed = fs::read_to_string(golden("report.txt")).unwrap();
    assert_eq!(text(&recorded(), terminal), committed);
}

#[test]
fn the_recorded_run_renders_the_committed_summary() {
    let committed = fs::read_to_string(golden("summary.json")).unwrap();
    assert_eq!(summary(&recorded()), committed);
}

#[test]
fn the_recorded_run_renders_the_committed_junit_which_is_valid() {
    let run = recorded();
    let xml = fs::read_to_string(golden("junit.xml")).unwrap();
    assert_eq!(crate::history::junit(&run), xml);
    crate::junit::validate(&xml);
}

#[cfg(feature = "html")]
#[test]
fn the_recorded_run_renders_the_committed_page() {
    let page = fs::read_to_string(golden("report.html")).unwrap();
    assert_eq!(crate::page::page(&recorded()), page);
}

/// An incident of which too little was expected, its control, a skip.
#[test]
fn the_recorded_run_is_judged_as_it_was() {
    let summaries = summaries(&recorded());
    let outcomes: Vec<&str> = summaries.iter().map(|s| s.outcome.words()).collect();
    assert_eq!(outcomes, ["not as expected", "as expected", "skipped"]);
    assert_eq!(exit_code(&summaries), 10);
    let headline = summaries[0].headline().unwrap();
    assert!(
        headline.starts_with("nat PREROUTING → KUBE-SERVICES absent on n1")
            && headline.contains("deleted by felix"),
        "{headline}"
    );
}
