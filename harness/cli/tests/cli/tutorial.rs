//! docs/tutorial.md keeps its word.

use std::fs;

use crate::ground::{Ground, exits};

const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");

/// The blocks of YAML, the last of which is the whole file.
fn blocks() -> Vec<&'static str> {
    let blocks = TUTORIAL.split("```yaml\n").skip(1);
    blocks.filter_map(|it| it.split("```").next()).collect()
}

#[test]
fn the_tutorials_scenario_is_the_sum_of_its_steps_and_comes_out_as_it_says() {
    let mut steps = blocks();
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
