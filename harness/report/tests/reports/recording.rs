//! `run.jsonl`: what is written is what is read, and what a killed run leaves can still be read.

use std::{fs, path::Path, sync::Arc};

use crate::history::{ROUNDS, all_broken, case, header, run};
use chainbreak_model::{case::Case, judge};
use chainbreak_report::{
    Ended, Line, Recorded, Recorder, ReportError, Run, Skipped,
    summary::{Headline, Outcome, PromiseSummary, summaries},
};
use serde_json::json;

fn events_of(case: &Recorded) -> usize {
    case.history.events().unwrap().len()
}

fn recorded() -> (Run, Vec<u8>) {
    let case = case("default-cleanup", all_broken());
    let (id, events) = (case.id(), crate::history::history(ROUNDS));
    let mut run = run(vec![(case.clone(), events.clone())]);
    let mut lines = vec![
        Line::Skipped(Skipped {
            id: "s/v".to_owned(),
            reason: "no nft".to_owned(),
        }),
        Line::Artifact {
            case: id.clone(),
            path: "default-cleanup/n1.rules".to_owned(),
        },
        Line::Ended(Ended::Interrupted("SIGINT".to_owned())),
    ];
    let mut file = Vec::new();
    let mut recorder = Recorder::begin(&mut file, &header()).unwrap();
    recorder.append(&Line::Planned(Box::new(case))).unwrap();
    for event in &events {
        let (case, event) = (id.clone(), event.clone());
        recorder.append(&Line::Event { case, event }).unwrap();
    }
    for line in lines.drain(..) {
        recorder.append(&line).unwrap();
        run.add(line, Path::new("")).unwrap();
    }
    (run, file)
}

#[test]
fn a_run_is_read_back_as_it_was_written() {
    let (run, file) = recorded();
    assert_eq!(Run::read(&file[..], Path::new("")).unwrap(), run);
}

/// After a failure `--fail-fast` does not run what was planned.
#[test]
fn a_case_that_is_skipped_after_it_was_planned_is_only_skipped() {
    let case = case("default-cleanup", all_broken());
    let planned = || Line::Planned(Box::new(case.clone()));
    let skipped = || {
        Line::Skipped(Skipped {
            id: case.id(),
            reason: "not begun".to_owned(),
        })
    };
    let run = |lines: [Line; 2]| {
        let mut run = Run::new(header());
        let add = |line| run.add(line, Path::new(""));
        lines.into_iter().try_for_each(add).map(|()| run)
    };
    let mut never_planned = Run::new(header());
    never_planned.add(skipped(), Path::new("")).unwrap();
    assert_eq!(run([planned(), skipped()]).unwrap(), never_planned);
    let why = format!("case {} was skipped before it was planned", case.id());
    assert_eq!(run([skipped(), planned()]).unwrap_err(), why);
}

#[test]
fn a_number_of_an_object_is_read_back_as_it_was_written() {
    let number: f64 = "1.0000000000000001e88".parse().unwrap();
    let case = Case {
        manifests: Arc::new(vec![json!({ "replicas": number })]),
        ..case("default-cleanup", all_broken())
    };
    let mut file = Vec::new();
    let mut recorder = Recorder::begin(&mut file, &header()).unwrap();
    let planned = Line::Planned(Box::new(case.clone()));
    recorder.append(&planned).unwrap();
    let run = Run::read(&file[..], Path::new("")).unwrap();
    assert_eq!(*run.cases[&case.id()].case, case);
}

#[test]
fn a_run_killed_at_any_byte_can_still_be_read() {
    let (run, file) = recorded();
    let header = file.iter().position(|&byte| byte == b'\n').unwrap();
    // Every place near both ends, and a prime stride in between: lines are cut at all kinds of places.
    let ends = file.len() - 2_000..file.len();
    for end in (0..2_000)
        .chain((2_000..file.len()).step_by(9_973))
        .chain(ends)
    {
        let read = Run::read(&file[..end], Path::new(""));
        if end <= header {
            assert!(matches!(read, Err(ReportError::Empty)), "{end}: {read:?}");
            continue;
        }
        let read = read.unwrap_or_else(|error| panic!("cut at {end}: {error}"));
        assert_eq!(read.header, run.header);
        let events = read.cases.values().map(events_of).sum::<usize>();
        assert!(events <= events_of(&run.cases[0]));
    }
}

#[test]
fn a_line_that_is_broken_in_the_middle_is_named_by_its_number() {
    let (_, file) = recorded();
    let mut lines: Vec<&[u8]> = file.split_inclusive(|&byte| byte == b'\n').collect();
    lines[4] = b"{\"event\": {\"case\": 7}}\n";
    let error = Run::read(&lines.concat()[..], Path::new(""))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("line 5 of the run: invalid type: integer `7`"),
        "{error}"
    );
    lines.remove(1);
    let error = Run::read(&lines.concat()[..], Path::new(""))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("line 2 of the run: case calico-bpf-"),
        "{error}"
    );
    assert!(error.ends_with("was not planned"), "{error}");
}

#[test]
fn a_newer_format_is_said_to_be_newer() {
    let text = b"{\"format\":3,\"tool\":\"chainbreak 9\",\"anything\":[]}\n";
    let error = Run::read(&text[..], Path::new("")).unwrap_err().to_string();
    assert_eq!(
        error,
        "the run has format 3, this chainbreak reads formats 1 to 2"
    );
}

/// The lines of a run whose case has its events in a file of that name.
fn apart(path: &str) -> Vec<u8> {
    let case = case("default-cleanup", all_broken());
    let id = case.id();
    let mut file = Vec::new();
    let mut recorder = Recorder::begin(&mut file, &header()).unwrap();
    recorder.append(&Line::Planned(Box::new(case))).unwrap();
    let path = path.to_owned();
    recorder.append(&Line::History { case: id, path }).unwrap();
    file
}

#[test]
fn a_case_is_judged_from_its_own_file_up_to_the_last_whole_line() {
    let folder = tempfile::tempdir().unwrap();
    let events = crate::history::history(ROUNDS);
    let mut text: String = events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap() + "\n")
        .collect();
    text.push_str("{\"at-us\":9");
    fs::create_dir(folder.path().join("case")).unwrap();
    fs::write(folder.path().join("case/events.jsonl"), text).unwrap();
    let read = Run::read(&apart("case/events.jsonl")[..], folder.path()).unwrap();
    let (whole, _) = recorded();
    assert_eq!(*read.cases[0].history.events().unwrap(), events);
    let mut inline = summaries(&whole).swap_remove(0);
    inline.artifacts.clear();
    assert_eq!(summaries(&read)[0], inline);
}

#[test]
fn a_case_whose_file_is_gone_or_broken_is_inconclusive_and_the_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run::read(&apart("events.jsonl")[..], folder.path()).unwrap();
    let told = || {
        let summary = summaries(&run).remove(0);
        assert_eq!(summary.outcome, Outcome::Inconclusive);
        match summary.headline {
            Some(Headline::Trouble(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let gone = told();
    assert!(gone.contains("events.jsonl: No such file"), "{gone}");
    assert!(gone.contains("a run is its whole folder"), "{gone}");
    let event = serde_json::to_string(&crate::history::history(ROUNDS)[0]).unwrap();
    let broken = format!("{event}\n{{}}\n");
    fs::write(folder.path().join("events.jsonl"), broken).unwrap();
    let broken = told();
    assert!(broken.contains("events.jsonl, line 2: missing"), "{broken}");
    let strict = run.cases[0].history.events().unwrap_err().to_string();
    assert!(strict.contains("events.jsonl, line 2: missing"), "{strict}");
}

#[test]
fn a_run_names_no_file_outside_its_folder() {
    for path in ["/etc/passwd", "../events.jsonl", "a/../../b", "./a", ""] {
        let error = Run::read(&apart(path)[..], Path::new("")).unwrap_err();
        let expected = format!("line 3 of the run: {path} is not in the folder of the run");
        assert_eq!(error.to_string(), expected);
    }
}

/// A committed run of format 2 that calls rules and counters by their words; of format 1 `reports/golden` does.
#[test]
fn a_run_from_before_queries_had_ids_is_judged_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports/before_query_ids");
    let file = fs::read(folder.join("run.jsonl")).unwrap();
    let run = Run::read(&file[..], &folder).unwrap();
    let recorded = &run.cases[0];
    let events = recorded.history.events().unwrap();
    let judged = judge(&recorded.case, events.iter());
    assert_eq!(recorded.verdict.as_deref(), Some(&judged));
    let summary = summaries(&run).remove(0);
    assert_eq!(summary.outcome, Outcome::AsExpected);
    assert_eq!(summary.judged_before, None);
    // That it was seen to be otherwise before is known by the same words.
    let absent = "absent on n1 for 1.0 s from 2.50 s: no recorded command explains it";
    let mut said = (summary.promises.iter()).map(PromiseSummary::headline);
    assert!(said.any(|it| it.ends_with(absent)));
}
