//! Which cases a command line chooses, and how often it runs them.

use std::fs;

use crate::ground::{Ground, exits, text};

/// What `list` prints for these arguments.
fn listed(ground: &Ground, args: &[&str]) -> Vec<String> {
    let listed = ground.chainbreak(&[&["list"], args].concat());
    exits(&listed, 0);
    text(&listed.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn cases_are_named_as_list_prints_them_by_patterns_and_by_regular_expressions() {
    let ground = Ground::new();
    let all = listed(&ground, &["short.yaml"]);
    assert!(all.len() > 3, "{all:?}");
    assert_eq!(
        listed(&ground, &["short.yaml", "short/calm"]),
        ["short/calm"]
    );
    assert_eq!(listed(&ground, &["short.yaml", "*/ca*m"]), ["short/calm"]);
    assert_eq!(
        listed(&ground, &["short.yaml", "short/calm", "short/long"]),
        ["short/calm", "short/long"]
    );
    assert_eq!(
        listed(&ground, &["short.yaml", "-k", "(calm|long)$"]),
        ["short/calm", "short/long"]
    );
    assert_eq!(listed(&ground, &["short.yaml", "-k", "nothing"]), [""; 0]);
    assert_eq!(listed(&ground, &["short.yaml", "short/*"]), all);
}

#[test]
fn cases_are_chosen_by_the_labels_of_their_scenarios() {
    let ground = Ground::new();
    let short = include_str!("ground/short.yaml");
    let other = short.replace("name: short\n", "name: other\nlabels: [udp, conntrack]\n");
    ground.write("other.yaml", other);
    let all = listed(&ground, &["short.yaml", "other.yaml", "*/calm"]);
    assert_eq!(all, ["short/calm", "other/calm"]);
    let labelled = |label: &str| {
        listed(
            &ground,
            &["short.yaml", "other.yaml", "*/calm", "--label", label],
        )
    };
    assert_eq!(labelled("udp"), ["other/calm"]);
    let wrong = ground.chainbreak(&["list", "short.yaml", "other.yaml", "--label", "udo"]);
    exits(&wrong, 2);
    let said = text(&wrong.stderr);
    assert!(
        said.contains("no scenario has the label \"udo\"; did you mean \"udp\"?"),
        "{said}"
    );
}

#[test]
fn without_a_path_scenarios_is_searched() {
    let ground = Ground::new();
    fs::create_dir(ground.path().join("scenarios")).unwrap();
    for file in ["short.yaml", "web.yaml"] {
        let to = ground.path().join("scenarios").join(file);
        fs::rename(ground.path().join(file), to).unwrap();
    }
    assert_eq!(listed(&ground, &["short/calm"]), ["short/calm"]);
    exits(&ground.chainbreak(&["check"]), 0);
}

#[test]
fn a_name_that_is_no_files_and_no_cases_is_a_mistake_with_a_hint() {
    let ground = Ground::new();
    let ran = ground.chainbreak(&["run", "short.yaml", "short/clam", "--out", "out"]);
    exits(&ran, 2);
    let said = text(&ran.stderr);
    assert!(
        said.contains("short/clam: no such file, and no case of that name"),
        "{said}"
    );
    assert!(said.contains("did you mean \"short/calm\"?"), "{said}");
    let ran = ground.chainbreak(&["run", "short.yaml", "-k", "(", "--out", "out"]);
    exits(&ran, 2);
    assert!(!ground.path().join("out").exists(), "nothing ran");
}

#[test]
fn what_did_not_come_out_as_expected_is_run_again_and_nothing_else() {
    let ground = Ground::new();
    let short = include_str!("ground/short.yaml");
    // Nothing here breaks anything.
    let wrong = format!(
        "{short}  wrong: {{ timeline: [settle: 200ms], expect: {{ broken: [answers] }} }}\n"
    );
    ground.write("short.yaml", wrong);
    let of_two = [
        "run",
        "short.yaml",
        "short/calm",
        "short/wrong",
        "--out",
        "out",
    ];
    let ran = ground.chainbreak(&of_two);
    exits(&ran, 10);
    let said = text(&ran.stdout);
    assert!(
        said.ends_with("\nagain: chainbreak run 'short.yaml' 'short/wrong'\n"),
        "{said}"
    );
    assert!(!said.contains("'short/calm'\n"), "{said}");
    let latest = "--failed=out/latest";
    assert_eq!(listed(&ground, &["short.yaml", latest]), ["short/wrong"]);
    exits(
        &ground.chainbreak(&["run", "short.yaml", latest, "--out", "out"]),
        10,
    );
    ground.write("short.yaml", short);
    exits(&ground.run("calm", &[]), 0);
    let nothing = ground.chainbreak(&["run", "short.yaml", latest, "--out", "out"]);
    exits(&nothing, 12);
    let none = ground.chainbreak(&["run", "short.yaml", "--failed=nowhere", "--out", "out"]);
    exits(&none, 2);
    assert!(text(&none.stderr).contains("nowhere"), "it names the run");
}

#[test]
fn a_case_that_is_repeated_is_said_to_come_out_so_often() {
    let ground = Ground::new();
    let ran = ground.run("calm", &["--repeat", "3"]);
    exits(&ran, 0);
    let said = text(&ran.stdout);
    let rate = "short/calm: as expected 3 of 3 times, 44 to 100 % with 95 % confidence";
    assert!(said.contains(rate), "{said}");
    let junit = fs::read_to_string(ground.newest("junit.xml")).unwrap();
    assert!(junit.contains("calm#3"), "{junit}");
    let failed = listed(&ground, &["short.yaml", "--failed=out/latest"]);
    assert_eq!(failed, [""; 0]);
}
