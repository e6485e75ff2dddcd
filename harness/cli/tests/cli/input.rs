//! Scenarios that are wrong: every mistake with file, line, column and caret; never a panic.

use std::{fs, os::unix::fs::symlink};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::ground::{Ground, exits, text};

/// What `check` says of a file with these bytes; it must be a mistake that is said, not a crash.
#[track_caller]
fn diagnostic(bytes: impl AsRef<[u8]>) -> String {
    let ground = Ground::new();
    ground.write("wrong.yaml", bytes);
    let output = ground.chainbreak(&["check", "wrong.yaml"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert!(
        !said.contains("panicked") && !said.contains("RUST_BACKTRACE"),
        "{said}"
    );
    assert!(said.contains("wrong.yaml"), "{said}");
    said
}

/// The short scenario with one piece replaced.
fn with(piece: &str, by: &str) -> String {
    let scenario = include_str!("ground/short.yaml");
    assert!(scenario.contains(piece), "{piece}");
    scenario.replacen(piece, by, 1)
}

#[test]
fn a_right_scenario_has_no_mistake() {
    let output = Ground::new().chainbreak(&["check", "short.yaml"]);
    exits(&output, 0);
    assert_eq!(text(&output.stdout), "1 scenario, no mistake\n");
}

#[test]
fn an_unknown_pod_is_pointed_at_with_the_nearest_name() {
    let said = diagnostic(with("from: pod/client", "from: pod/clinet"));
    assert!(
        said.contains("wrong.yaml:10:17: unknown pod \"default/clinet\""),
        "{said}"
    );
    let caret = said.lines().find(|line| line.contains("^^")).unwrap();
    assert!(caret.contains("did you mean \"client\"?"), "{said}");
}

#[test]
fn all_mistakes_of_a_file_are_said_at_once() {
    let twice =
        with("from: pod/client", "from: pod/clinet").replace("expect: healthy", "expect: healty");
    let said = diagnostic(twice);
    assert!(said.contains("clinet"), "{said}");
    assert!(said.contains("healty"), "{said}");
}

#[test]
fn a_promise_that_is_expected_broken_must_exist() {
    let said = diagnostic(with(
        "calm: { expect: healthy }",
        "calm: { expect: { broken: [answer] } }",
    ));
    assert!(said.contains("did you mean \"answers\"?"), "{said}");
}

#[test]
fn a_variant_that_overrides_nothing_is_said_to() {
    let said = diagnostic(with(
        "long: { timeline: [settle: 10m], expect: healthy }",
        "long: { expect: healthy }",
    ));
    assert!(
        said.contains("wrong.yaml:23:3: variant \"long\" runs the same as \"calm\""),
        "{said}"
    );
}

#[test]
fn a_share_beyond_the_whole_and_a_time_without_unit_are_mistakes() {
    let said =
        diagnostic(with("at-least: 50%", "at-least: 150%").replace("every: 10ms", "every: 10"));
    assert!(said.contains("wrong.yaml:10:"), "{said}");
    assert!(said.contains("wrong.yaml:15:"), "{said}");
}

#[test]
fn a_field_that_nobody_knows_is_named_with_its_place() {
    let said = diagnostic(with("nodes: 1", "nodse: 1"));
    assert!(said.contains("wrong.yaml:4:3: "), "{said}");
    assert!(said.contains("did you mean \"nodes\"?"), "{said}");
}

#[test]
fn duplicate_keys_tabs_emptiness_and_other_text_are_mistakes() {
    diagnostic("");
    diagnostic("\tname: x\n");
    diagnostic("name: a\nname: b\n");
    diagnostic("{{{ not yaml");
    diagnostic("just words\n");
}

#[test]
fn bytes_that_are_no_text_and_megabytes_of_garbage_are_mistakes_said_in_short() {
    diagnostic(b"name: \xff\xfe\n");
    let garbage: Vec<u8> = (0..10_000_000_u64)
        .map(|n| b' ' + (n * 7_919 % 94) as u8)
        .collect();
    let said = diagnostic(garbage);
    assert!(
        said.len() < 2_000,
        "{} bytes are no short answer",
        said.len()
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = Ground::new().chainbreak(&["check", "nowhere.yaml"]);
    exits(&output, 2);
    assert!(text(&output.stderr).contains("nowhere.yaml"));
}

#[test]
fn a_manifest_of_a_kind_that_no_lab_can_run_is_a_mistake_of_its_file() {
    let ground = Ground::new();
    ground.write(
        "web.yaml",
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: { name: tick }\n",
    );
    let output = ground.chainbreak(&["check", "short.yaml"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert!(said.contains("web.yaml:2:7: "), "{said}");
    assert!(said.contains("CronJob"), "{said}");
}

#[test]
fn a_name_that_two_files_have_is_a_mistake_that_names_both() {
    let ground = Ground::new();
    ground.write("namesake.yaml", include_str!("ground/short.yaml"));
    for verb in ["check", "plan", "run"] {
        let output = ground.chainbreak(&[verb, "short.yaml", "namesake.yaml"]);
        exits(&output, 2);
        let said = text(&output.stderr);
        let mistake = "namesake.yaml: the name \"short\" is that of the scenario in short.yaml: ";
        assert!(said.contains(mistake), "{said}");
        assert!(
            said.contains("1 of 2 scenario files cannot be used"),
            "{said}"
        );
    }
}

#[test]
fn a_file_that_is_named_twice_is_read_once() {
    let output = Ground::new().chainbreak(&["check", "short.yaml", "./short.yaml"]);
    exits(&output, 0);
    assert_eq!(text(&output.stdout), "1 scenario, no mistake\n");
}

/// Each would hang, or be read until no memory is left.
#[test]
fn what_is_no_regular_file_or_too_large_is_a_mistake_at_once() {
    let ground = Ground::new();
    mkfifo(&ground.path().join("fifo.yaml"), Mode::S_IRWXU).unwrap();
    let sparse = fs::File::create(ground.path().join("sparse.yaml")).unwrap();
    sparse.set_len(20 << 30).unwrap();
    ground.write("fifos.yaml", with("[web.yaml]", "[fifo.yaml]"));
    ground.write("zeros.yaml", with("[web.yaml]", "[/dev/zero]"));
    let regular = "it is no regular file";
    let cases = [
        (["check", "fifo.yaml"], regular),
        (["check", "/dev/zero"], regular),
        (["check", "fifos.yaml"], regular),
        (["check", "zeros.yaml"], regular),
        (["report", "fifo.yaml"], regular),
        (["report", "/dev/zero"], regular),
        (["check", "sparse.yaml"], "at most 2097152 are read"),
        (["report", "sparse.yaml"], "at most 4294967296 are read"),
    ];
    for (args, words) in cases {
        let output = ground.chainbreak(&args);
        exits(&output, 2);
        let said = text(&output.stderr);
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// Root may read what who wrote the scenario may not.
#[test]
fn no_line_of_a_file_outside_the_scenarios_folder_is_quoted() {
    let ground = Ground::new();
    ground.write("secret.yaml", "root:*:20228:0\n");
    fs::create_dir(ground.path().join("in")).unwrap();
    ground.write("in/wrong.yaml", with("[web.yaml]", "[../secret.yaml]"));
    ground.write("in/linking.yaml", with("[web.yaml]", "[link.yaml]"));
    symlink("../secret.yaml", ground.path().join("in/link.yaml")).unwrap();
    for file in ["in/wrong.yaml", "in/linking.yaml", "in/link.yaml"] {
        let output = ground.chainbreak(&["check", file]);
        exits(&output, 2);
        let said = text(&output.stderr);
        assert!(!said.contains("20228"), "{said}");
        assert!(said.contains("is not in the scenario's folder"), "{said}");
    }
}

#[test]
fn a_file_that_is_not_there_is_one_line_with_the_nearest_name() {
    let ground = Ground::new();
    let output = ground.chainbreak(&["check", "shrot.yaml"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    let told = "chainbreak: no such file: shrot.yaml; did you mean \"short.yaml\"?\n";
    assert_eq!(said, told);
    let said = diagnostic(with("[web.yaml]", "[wbe.yaml]"));
    assert!(said.contains("did you mean \"web.yaml\"?"), "{said}");
}

#[test]
fn a_manifest_in_place_of_a_scenario_is_one_mistake() {
    let output = Ground::new().chainbreak(&["check", "web.yaml"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert!(
        said.contains("this is a Kubernetes object, and no scenario"),
        "{said}"
    );
    assert!(said.contains("1 mistake in web.yaml"), "{said}");
}

#[test]
fn a_version_newer_than_every_known_one_is_said_once() {
    let ground = Ground::new();
    let newer = ground.chainbreak(&["plan", "short.yaml", "--matrix", "kube-proxy=1.99"]);
    exits(&newer, 0);
    assert_eq!(
        text(&newer.stderr)
            .matches("no kube-proxy 1.99 is known here")
            .count(),
        1
    );
    let known = ground.chainbreak(&["plan", "short.yaml", "--matrix", "kube-proxy=1.36"]);
    assert_eq!(text(&known.stderr), "");
}

#[test]
fn a_world_that_is_no_number_is_told_what_names_worlds() {
    let output = Ground::new().chainbreak(&["clean", "nope"]);
    exits(&output, 2);
    assert!(text(&output.stderr).contains("`chainbreak clean` names those"));
}
