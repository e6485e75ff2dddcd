//! `run.jsonl`: what is written is what is read, and what a killed run leaves can still be read.

use crate::history::{ROUNDS, all_broken, case, header, run};
use chainbreak_report::{Ended, Line, Recorder, ReportError, Run, Skipped};

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
        recorder.event(&id, event).unwrap();
    }
    for line in lines.drain(..) {
        recorder.append(&line).unwrap();
        run.add(line).unwrap();
    }
    (run, file)
}

#[test]
fn a_run_is_read_back_as_it_was_written() {
    let (run, file) = recorded();
    assert_eq!(Run::read(&file[..]).unwrap(), run);
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
        let read = Run::read(&file[..end]);
        if end <= header {
            assert!(matches!(read, Err(ReportError::Empty)), "{end}: {read:?}");
            continue;
        }
        let read = read.unwrap_or_else(|error| panic!("cut at {end}: {error}"));
        assert_eq!(read.header, run.header);
        let events = read
            .cases
            .values()
            .map(|case| case.events.len())
            .sum::<usize>();
        assert!(events <= run.cases[0].events.len());
    }
}

#[test]
fn a_line_that_is_broken_in_the_middle_is_named_by_its_number() {
    let (_, file) = recorded();
    let mut lines: Vec<&[u8]> = file.split_inclusive(|&byte| byte == b'\n').collect();
    lines[4] = b"{\"event\": {\"case\": 7}}\n";
    let error = Run::read(&lines.concat()[..]).unwrap_err().to_string();
    assert!(
        error.starts_with("line 5 of the run: invalid type: integer `7`"),
        "{error}"
    );
    lines.remove(1);
    let error = Run::read(&lines.concat()[..]).unwrap_err().to_string();
    assert!(
        error.starts_with("line 2 of the run: case calico-bpf-"),
        "{error}"
    );
    assert!(error.ends_with("was not planned"), "{error}");
}

#[test]
fn a_newer_format_is_said_to_be_newer() {
    let text = b"{\"format\":2,\"tool\":\"chainbreak 9\",\"anything\":[]}\n";
    let error = Run::read(&text[..]).unwrap_err().to_string();
    assert_eq!(
        error,
        "the run has format 2, this chainbreak reads format 1"
    );
}
