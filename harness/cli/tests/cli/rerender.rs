//! `report`: everything again, from the history alone.

use std::{fs, path::Path};

use crate::ground::{Ground, exits, text, validates};

const REPORTS: [&str; 4] = ["junit.xml", "report.html", "report.txt", "summary.json"];

#[test]
fn reports_are_rendered_again_from_the_history_alone_byte_by_byte() {
    let ground = Ground::new();
    let first = ground.run("fight-nobody-expects", &[]);
    let elsewhere = ground.path().join("elsewhere");
    let case = "short_fight-nobody-expects/events.jsonl";
    fs::create_dir_all(elsewhere.join(case).parent().unwrap()).unwrap();
    for file in ["run.jsonl", case] {
        fs::copy(ground.newest(file), elsewhere.join(file)).unwrap();
    }
    let again = ground.chainbreak(&["report", "elsewhere"]);
    exits(&again, 10);
    for file in REPORTS {
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
    let events = ground.newest("short_calm/events.jsonl");
    let whole = fs::read(&events).unwrap();
    let end = whole.len() * 2 / 3;
    assert_ne!(whole[end - 1], b'\n');
    fs::write(&events, &whole[..end]).unwrap();
    let output = ground.chainbreak(&["report", "out/latest"]);
    exits(&output, 11);
    assert!(text(&output.stdout).contains("interrupted: its history ends at"));
    validates(&ground.newest("junit.xml"));
}

#[test]
fn the_committed_run_of_format_1_is_rendered_byte_by_byte() {
    let ground = Ground::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reports/golden");
    fs::copy(golden.join("run.jsonl"), ground.path().join("run.jsonl")).unwrap();
    exits(&ground.chainbreak(&["report", "run.jsonl"]), 10);
    for file in REPORTS {
        let read = |folder: &Path| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(read(ground.path()), read(&golden), "{file}");
    }
    // Merged, it is of today's format.
    exits(
        &ground.chainbreak(&["merge", "run.jsonl", "--out", "out"]),
        10,
    );
    let run = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
    assert!(run.starts_with("{\"format\":2,"), "{run}");
    assert!(!run.contains("{\"event\":"), "{run}");
    let story = fs::read_to_string(ground.newest("report.txt")).unwrap();
    assert_eq!(
        story,
        fs::read_to_string(golden.join("report.txt")).unwrap()
    );
}

#[test]
fn the_page_alone_is_written_and_where_it_is_is_all_that_is_said() {
    let ground = Ground::new();
    ground.run("fight-nobody-expects", &[]);
    let page = ground.newest("report.html");
    let whole = fs::read_to_string(&page).unwrap();
    assert!(whole.contains("cut by <a href=\"#c0-") && whole.ends_with("</html>\n"));
    fs::write(&page, "").unwrap();
    let junit = ground.newest("junit.xml");
    fs::remove_file(&junit).unwrap();
    let output = ground.chainbreak(&["report", "--html", "out/latest"]);
    exits(&output, 10);
    assert_eq!(text(&output.stdout), "out/latest/report.html\n");
    assert_eq!(fs::read_to_string(&page).unwrap(), whole);
    assert!(!junit.exists());
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
