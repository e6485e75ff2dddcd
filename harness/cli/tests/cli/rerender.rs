//! `report`: everything again, from the history alone.

use std::fs;

use crate::ground::{Ground, exits, text, validates};

#[test]
fn reports_are_rendered_again_from_the_history_alone_byte_by_byte() {
    let ground = Ground::new();
    let first = ground.run("fight-nobody-expects", &[]);
    let elsewhere = ground.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(ground.newest("run.jsonl"), elsewhere.join("run.jsonl")).unwrap();
    let again = ground.chainbreak(&["report", "elsewhere"]);
    exits(&again, 10);
    for file in ["junit.xml", "report.txt"] {
        let read = |path| fs::read_to_string(path).unwrap();
        assert_eq!(
            read(elsewhere.join(file)),
            read(ground.newest(file)),
            "{file}"
        );
    }
    let words = |stdout: &[u8]| {
        let said = text(stdout);
        let (words, _paths) = said.split_once("1 case: ").unwrap();
        words.to_owned()
    };
    assert_eq!(words(&again.stdout), words(&first.stdout));
}

#[test]
fn a_history_cut_in_the_middle_of_a_line_is_rendered_as_far_as_it_goes() {
    let ground = Ground::new();
    exits(&ground.run("calm", &[]), 0);
    let whole = fs::read(ground.newest("run.jsonl")).unwrap();
    let end = whole.len() * 2 / 3;
    assert_ne!(whole[end - 1], b'\n');
    ground.write("cut.jsonl", &whole[..end]);
    let output = ground.chainbreak(&["report", "cut.jsonl"]);
    exits(&output, 11);
    assert!(text(&output.stdout).contains("interrupted: its history ends at"));
    validates(&ground.path().join("junit.xml"));
}

#[test]
fn a_history_that_is_none_is_one_clear_line() {
    let ground = Ground::new();
    let output = ground.chainbreak(&["report", "web.yaml"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("could not read web.yaml: "), "{said}");
}
