//! `chainbreak new`, and what `chainbreak.toml` passes.

use std::fs;

use crate::ground::{Ground, exits, text};

#[test]
fn a_new_scenario_shows_its_incident_and_its_fix_as_it_stands() {
    let ground = Ground::new();
    let made = ground.chainbreak(&["new", "my-outage"]);
    exits(&made, 0);
    assert!(text(&made.stdout).contains("chainbreak run 'my-outage.yaml'"));
    exits(&ground.chainbreak(&["check", "my-outage.yaml"]), 0);
    exits(
        &ground.chainbreak(&["run", "my-outage.yaml", "--out", "out"]),
        0,
    );
    let report = fs::read_to_string(ground.path().join("out/latest/report.txt")).unwrap();
    assert!(report.contains("2 cases: 2 as expected"), "{report}");
}

#[test]
fn a_new_scenario_takes_no_others_place_and_stands_where_scenarios_are() {
    let ground = Ground::new();
    let before = fs::read_to_string(ground.path().join("short.yaml")).unwrap();
    let made = ground.chainbreak(&["new", "short"]);
    exits(&made, 2);
    assert!(text(&made.stderr).contains("short.yaml is there already"));
    let after = fs::read_to_string(ground.path().join("short.yaml")).unwrap();
    assert_eq!(after, before);
    fs::create_dir(ground.path().join("scenarios")).unwrap();
    ground.write("scenarios/scenario.schema.json", "{}");
    exits(&ground.chainbreak(&["new", "short"]), 0);
    let made = fs::read_to_string(ground.path().join("scenarios/short.yaml")).unwrap();
    let first = "# yaml-language-server: $schema=scenario.schema.json\nname: short\n";
    assert!(made.starts_with(first), "{made}");
    exits(&ground.chainbreak(&["new", "other", "--dir", "nowhere"]), 2);
    let wrong = ground.chainbreak(&["new", "My Outage"]);
    exits(&wrong, 2);
    assert!(text(&wrong.stderr).contains("name cannot be \"My Outage\""));
    exits(&ground.chainbreak(&["new", "x # y"]), 2);
}

#[test]
fn what_a_team_always_passes_is_passed_and_said() {
    let ground = Ground::new();
    let team = "[profile.default]\npaths = [\"short.yaml\"]\nmatching = \"calm\"\n\n[profile.all]\nmatching = \"\"\n";
    ground.write("chainbreak.toml", team);
    let listed = ground.chainbreak(&["list"]);
    exits(&listed, 0);
    assert_eq!(text(&listed.stdout), "short/calm\n");
    let said = "chainbreak.toml adds: short.yaml --matching=calm\n";
    assert_eq!(text(&listed.stderr), said);
    let all = ground.chainbreak(&["list", "--profile", "all"]);
    assert!(text(&all.stdout).lines().count() > 3);
    let given = ground.chainbreak(&["list", "-k", "long"]);
    assert_eq!(text(&given.stdout), "short/long\n");
    ground.write(
        "chainbreak.toml",
        "[profile.default]\nallow-host-changes = true\n",
    );
    let refused = ground.chainbreak(&["list"]);
    exits(&refused, 2);
    assert!(text(&refused.stderr).contains("chainbreak.toml:2: allow-host-changes"));
}
