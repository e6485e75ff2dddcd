//! docs/tutorial.md and README.md keep their word.

use std::fs;

use crate::ground::{Ground, exits};

const README: &str = include_str!("../../../../README.md");
const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");

/// The blocks of YAML.
fn blocks(text: &str) -> Vec<&str> {
    let blocks = text.split("```yaml\n").skip(1);
    blocks.filter_map(|it| it.split("```").next()).collect()
}

#[test]
fn the_tutorials_scenario_is_the_sum_of_its_steps_and_comes_out_as_it_says() {
    // The last one is the whole file.
    let mut steps = blocks(TUTORIAL);
    let whole = steps.pop().unwrap();
    for line in steps.iter().flat_map(|step| step.lines()) {
        assert!(whole.contains(line), "{line}");
    }
    let ground = Ground::new();
    ground.write("connections-hang-now-and-then.yaml", whole);
    let run = ["run", "connections-hang-now-and-then.yaml", "--out", "out"];
    exits(&ground.chainbreak(&run), 0);
    let report = fs::read_to_string(ground.path().join("out/latest/report.txt")).unwrap();
    assert!(report.contains("3 cases: 3 as expected"), "{report}");
}

#[test]
fn the_readmes_scenario_comes_out_as_it_says_with_the_manifests_of_a_new_one() {
    let ground = Ground::new();
    exits(&ground.chainbreak(&["new", "template"]), 0);
    let template = fs::read_to_string(ground.path().join("template.yaml")).unwrap();
    let manifests = template.split("manifests:\n").nth(1).unwrap();
    let manifests = manifests.lines().take_while(|line| line.starts_with("  "));
    // Items of a list, as documents of a file.
    let web = manifests.map(|line| match line.strip_prefix("  - ") {
        Some(first) => format!("---\n{first}\n"),
        None => format!("{}\n", line.strip_prefix("    ").unwrap_or(line)),
    });
    ground.write("web.yaml", web.collect::<String>());
    ground.write("readme.yaml", blocks(README)[0]);
    exits(
        &ground.chainbreak(&["run", "readme.yaml", "--out", "out"]),
        0,
    );
}
