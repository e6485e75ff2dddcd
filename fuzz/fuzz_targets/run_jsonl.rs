//! A recorded run: written again it is read the same, judged twice it comes to the same, and its reports can be made.
#![no_main]

use std::path::{Component, Path};

use chainbreak_model::judge;
use chainbreak_report::{
    History, Line, Recorded, Recorder, Run, SummaryFile,
    junit::Junit,
    summary::{Summary, summaries},
    term::{Colour, Overview, Terminal, detail},
    text_file,
};
use libfuzzer_sys::fuzz_target;

/// No file is there.
const FOLDER: &str = "/nowhere/run";

fuzz_target!(|bytes: &[u8]| {
    let Ok(run) = Run::read(bytes, Path::new(FOLDER)) else {
        return;
    };
    let again = Run::read(&written(&run)[..], Path::new(FOLDER));
    assert_eq!(again.expect("what was written can be read"), run);
    for recorded in run.cases.values() {
        match &recorded.history {
            History::Here(events) => {
                let verdict = judge(&recorded.case, events);
                assert_eq!(verdict, judge(&recorded.case, events));
            }
            History::In(folder, path) => {
                assert_eq!(folder, Path::new(FOLDER));
                let is_plain = |it| matches!(it, Component::Normal(_));
                assert!(path.components().all(is_plain));
            }
        }
    }
    let summaries = summaries(&run);
    assert_eq!(reports(&run, &summaries), reports(&run, &summaries));
});

fn written(run: &Run) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::begin(&mut bytes, &run.header).expect("a header can be written");
    let mut append = |line| recorder.append(&line).expect("a line can be written");
    for (id, recorded) in &run.cases {
        lines(id, recorded).into_iter().for_each(&mut append);
    }
    run.skipped
        .iter()
        .cloned()
        .map(Line::Skipped)
        .for_each(&mut append);
    run.finished
        .into_iter()
        .map(Line::Finished)
        .for_each(&mut append);
    run.ended
        .iter()
        .cloned()
        .map(Line::Ended)
        .for_each(&mut append);
    bytes
}

fn lines(id: &str, recorded: &Recorded) -> Vec<Line> {
    let case = id.to_owned();
    let mut lines = vec![Line::Planned(Box::new((*recorded.case).clone()))];
    match &recorded.history {
        History::Here(events) => lines.extend(events.iter().map(|event| Line::Event {
            case: case.clone(),
            event: event.clone(),
        })),
        History::In(_, path) => lines.push(Line::History {
            case: case.clone(),
            path: path.to_str().expect("it was JSON").to_owned(),
        }),
    }
    lines.extend(recorded.verdict.iter().map(|verdict| Line::Judged {
        case: case.clone(),
        verdict: verdict.clone(),
    }));
    lines.extend(recorded.artifacts.iter().map(|path| Line::Artifact {
        case: case.clone(),
        path: path.clone(),
    }));
    lines
}

/// JUnit, what is printed at the end of a run, and the files for people and scripts.
fn reports(run: &Run, summaries: &[Summary]) -> Vec<String> {
    let terminal = Terminal {
        width: 80,
        colour: Colour::Off,
    };
    let (mut junit, mut overview) = (Junit::of(run), Overview::default());
    let mut values = SummaryFile::of(run);
    let mut json = values.head().expect("a head can be rendered");
    let mut parts = Vec::new();
    for summary in summaries {
        parts.push(junit.case(summary).expect("a case can be rendered"));
        parts.extend(detail(summary, terminal));
        parts.extend(text_file::case(summary, terminal));
        json.push_str(&values.case(summary).expect("a case can be rendered"));
        overview.add(summary.clone());
    }
    parts.push(junit.end().expect("the end can be rendered"));
    parts.extend(text_file::above(run, &overview, terminal));
    parts.push(text_file::below(&overview, terminal));
    json.push_str(
        &values
            .end(overview.cases())
            .expect("the end can be rendered"),
    );
    serde_json::from_str::<serde_json::Value>(&json).expect("it is one document");
    parts.push(json);
    parts
}
