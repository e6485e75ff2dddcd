//! What GitHub is told of a run that it runs: annotations, and the summary of the step.

use std::{
    fs,
    process::{Command, Output},
};

use crate::ground::{Ground, exits, output, text};

const FIGHT: &str = "fight-nobody-expects";

/// In a step whose summary is in `step.md`.
fn in_step(mut command: Command) -> Output {
    command.env("GITHUB_ACTIONS", "true");
    command.env("GITHUB_STEP_SUMMARY", "step.md");
    output(&mut command)
}

fn run(ground: &Ground, scenario: &str, variant: &str) -> Command {
    ground.command(&["run", scenario, "--variant", variant, "--out", "out"])
}

/// The lines that the runner would obey.
fn commands(output: &Output) -> Vec<String> {
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    let said = text(&said);
    let lines = said.split(['\n', '\r']);
    let commands = lines.filter(|line| line.trim_start().starts_with("::") || line.contains("##["));
    commands.map(str::to_owned).collect()
}

fn summary(ground: &Ground) -> String {
    fs::read_to_string(ground.path().join("step.md")).unwrap()
}

#[test]
fn a_case_not_as_expected_is_annotated_where_its_variant_stands_and_is_in_the_summary_of_the_step()
{
    let ground = Ground::new();
    ground.write("step.md", "of the step before\n");
    let ran = in_step(run(&ground, "short.yaml", FIGHT));
    exits(&ran, 10);
    let commands = commands(&ran);
    let [annotation] = commands.as_slice() else {
        panic!("{commands:?}")
    };
    let file = ground.path().canonicalize().unwrap().join("short.yaml");
    let id = format!("short/{FIGHT}");
    let file = file.display();
    let told = format!("::error file={file},line=20,title={id}%3A not as expected::");
    let message = annotation.strip_prefix(&told);
    assert!(
        message.is_some_and(|it| it.contains("felix")),
        "{annotation}"
    );
    let page = summary(&ground);
    let head = "of the step before\n\n\n## chainbreak\n\n1 case: 1 not as expected\n";
    assert!(page.starts_with(head), "{page}");
    let row = format!("<tr><td><code>{id}</code></td><td>✗ not as expected</td><td>");
    assert!(page.contains(&row), "{page}");
    let again = format!("<code>chainbreak run 'short.yaml' '{id}'</code>");
    assert!(page.contains(&again), "{page}");
    assert!(
        page.contains(&format!("<details><summary>✗ <code>{id}</code></summary>")),
        "{page}"
    );
}

#[test]
fn a_healthy_run_has_no_annotation() {
    let ground = Ground::new();
    let ran = in_step(run(&ground, "short.yaml", "calm"));
    exits(&ran, 0);
    assert_eq!(commands(&ran), [""; 0]);
    let page = "\n\n## chainbreak\n\n1 case: 1 as expected\n";
    assert_eq!(summary(&ground), page);
}

#[test]
fn the_name_of_a_file_is_no_second_command() {
    let ground = Ground::new();
    let name = "x,title=mine::y%0A\n::error::z\r##[error]w.yaml";
    ground.write(name, include_str!("ground/short.yaml"));
    let ran = in_step(run(&ground, name, FIGHT));
    exits(&ran, 10);
    let commands = commands(&ran);
    let [annotation] = commands.as_slice() else {
        panic!("{commands:?}")
    };
    assert!(annotation.starts_with("::error file="), "{annotation}");
    assert!(annotation.contains("/x%2Ctitle=mine%3A%3Ay%250A%0A"));
    assert_eq!(annotation.matches(",title=").count(), 1, "{annotation}");
}

#[test]
fn outside_of_github_nothing_is_told_and_what_is_merged_is_not_annotated_again() {
    let ground = Ground::new();
    let mut outside = run(&ground, "short.yaml", FIGHT);
    let ran = output(outside.env("GITHUB_STEP_SUMMARY", "step.md"));
    exits(&ran, 10);
    assert_eq!(commands(&ran), [""; 0]);
    assert!(!ground.path().join("step.md").exists());
    let merged = in_step(ground.command(&["merge", "out/latest", "--out", "merged"]));
    exits(&merged, 10);
    assert_eq!(commands(&merged), [""; 0]);
    let page = summary(&ground);
    let row = format!("<tr><td><code>short/{FIGHT}</code></td>");
    assert!(page.contains(&row), "{page}");
    assert!(!page.contains("chainbreak run"), "{page}");
}

#[test]
fn a_summary_that_cannot_be_written_is_complained_of_and_changes_no_exit_code() {
    let ground = Ground::new();
    fs::create_dir(ground.path().join("step.md")).unwrap();
    let ran = in_step(run(&ground, "short.yaml", "calm"));
    exits(&ran, 0);
    let said = text(&ran.stderr);
    assert!(said.contains("could not write step.md: "), "{said}");
}
