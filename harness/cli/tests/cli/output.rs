//! What is written where: nothing but text into pipes, and nothing that a closed pipe breaks.

use std::fs;

use crate::ground::{Ground, exits, text};

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let ground = Ground::new();
    for args in [
        &["list", "short.yaml"][..],
        &["schema"],
        &["plan", "short.yaml"],
    ] {
        let mut child = ground.command(args).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        exits(&output, 0);
        assert_eq!(text(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn a_run_whose_reader_goes_away_still_tells_by_its_exit_code() {
    let ground = Ground::new();
    for format in ["human", "jsonl"] {
        let args = [
            "run",
            "short.yaml",
            "--variant",
            "fight-nobody-expects",
            "--format",
            format,
        ];
        let mut child = ground
            .command(&[&args[..], &["--out", format]].concat())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        exits(&child.wait_with_output().unwrap(), 10);
        let junit = ground.path().join(format).join("latest/junit.xml");
        assert!(junit.exists(), "{format}");
    }
}

#[test]
fn a_pipe_gets_no_escapes() {
    let ground = Ground::new();
    ground.write("wrong.yaml", "name: wrong\n");
    let calls = [
        &[
            "run",
            "short.yaml",
            "--variant",
            "fight-nobody-expects",
            "--out",
            "out",
        ][..],
        &["check", "wrong.yaml"],
        &["list", "short.yaml"],
        &["doctor"],
        &["--help"],
        &["run", "--nonsense"],
    ];
    for args in calls {
        let output = ground.chainbreak(args);
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.is_empty(), "{args:?}");
        assert!(!said.contains(&0x1b), "{args:?}: {}", text(&said));
    }
}

#[test]
fn jsonl_on_standard_output_is_the_recorded_run_with_its_events_and_is_read_as_one() {
    let ground = Ground::new();
    let output = ground.run("calm", &["--format", "jsonl"]);
    exits(&output, 0);
    let said = text(&output.stdout);
    let (events, others): (Vec<&str>, Vec<&str>) = said
        .lines()
        .partition(|line| line.starts_with(r#"{"event":"#));
    let recorded = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
    let recorded = recorded
        .lines()
        .filter(|line| !line.starts_with(r#"{"history":"#));
    assert_eq!(others, recorded.collect::<Vec<&str>>());
    let history = ground.history();
    let expected: Vec<String> = history
        .lines()
        .map(|event| format!(r#"{{"event":{{"case":"short/calm","event":{event}}}}}"#))
        .collect();
    assert_eq!(events, expected);
    let report = fs::read(ground.newest("report.txt")).unwrap();
    ground.write("piped.jsonl", &said);
    exits(&ground.chainbreak(&["report", "piped.jsonl"]), 0);
    assert_eq!(fs::read(ground.path().join("report.txt")).unwrap(), report);
}

#[test]
fn by_whom_services_are_answered_is_said_where_a_real_felix_has_programs_and_nowhere_else() {
    for variant in ["calm", "fight-nobody-expects"] {
        let ground = Ground::new();
        ground.run(variant, &[]);
        let history = ground.history();
        assert!(history.contains("\"sample\""), "{history}");
        assert!(!history.contains("is answered by"), "{history}");
    }
}

/// What a log of CI gets: lines that a person reads, and not many of what is the same. Phases, turns of the
/// traffic and each kind of news with its count are some 20 lines; every piece of news would be more than 40.
#[test]
fn progress_in_a_log_is_lines_of_a_readable_length() {
    let ground = Ground::new();
    let output = ground.run("fight-nobody-expects", &[]);
    let progress = text(&output.stderr);
    let longest = progress.lines().map(|line| line.chars().count()).max();
    assert!(longest.unwrap() <= 200, "{progress}");
    assert!(progress.lines().count() <= 30, "{progress}");
    assert!(progress.contains("felix on n1 deleted"), "{progress}");
    assert!(
        progress.contains("requests are not answered any more"),
        "{progress}"
    );
}

#[test]
fn latest_is_the_newest_run() {
    let ground = Ground::new();
    ground.run("needs-what-no-lab-has", &[]);
    let first = fs::read_link(ground.path().join("out/latest")).unwrap();
    ground.run("needs-what-no-lab-has", &[]);
    let second = fs::read_link(ground.path().join("out/latest")).unwrap();
    assert!(second > first, "{second:?} after {first:?}");
    let there = fs::read_dir(ground.path().join("out")).unwrap().count();
    assert_eq!(there, 3, "two runs and the link");
}

/// Names of files, what is in them, and the words of errors about them.
#[test]
fn what_others_wrote_commands_no_terminal() {
    let ground = Ground::new();
    let wrong = "wrong\u{1b}]0;title\u{7}\u{202e}.yaml";
    ground.write(wrong, "name: [\u{1b}[31m\u{202e}red\n");
    let header = r#"{"format":2,"tool":"x","seed":0,"started":"2026-01-01T00:00:00Z"}"#;
    ground.write(
        "run.jsonl",
        format!("{header}\n{{\"\\u001b]0;title\\u0007\":1}}\n"),
    );
    for args in [["check", wrong], ["report", "run.jsonl"]] {
        let output = ground.chainbreak(&args);
        exits(&output, 2);
        let said = text(&output.stderr);
        assert!(
            said.contains(".yaml") || said.contains("line 2"),
            "{said:?}"
        );
        let hidden = ['\u{1b}', '\u{7}', '\u{202e}'];
        assert!(!said.contains(hidden), "{said:?}");
    }
}

#[test]
fn a_folder_in_place_of_the_link_to_the_newest_run_is_said_and_left_as_it_is() {
    let ground = Ground::new();
    fs::create_dir_all(ground.path().join("out/latest")).unwrap();
    let output = ground.chainbreak(&["run", "short.yaml", "--variant", "calm", "--out", "out"]);
    exits(&output, 0);
    assert!(text(&output.stderr).contains("no link to the newest run at out/latest"));
    let names = fs::read_dir(ground.path().join("out")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let hidden: Vec<String> = names.filter(|name| name.starts_with('.')).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}
