//! What scripts read: answers with `--format json`, and the summary of a run.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use crate::ground::{Ground, exits, text};

/// The document that a verb answers, with its exit code.
#[track_caller]
fn answer(ground: &Ground, args: &[&str], code: i32) -> Value {
    let output = ground.chainbreak(&[args, &["--format", "json"]].concat());
    exits(&output, code);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A member of each value of a list.
fn each<'a>(list: &'a Value, member: &str) -> Vec<&'a str> {
    let values = list.as_array().unwrap().iter();
    values.map(|it| it[member].as_str().unwrap()).collect()
}

#[test]
fn list_names_each_case_in_parts_and_the_file_it_comes_from() {
    let ground = Ground::new();
    let args = [
        "list",
        "short.yaml",
        "short/calm",
        "--matrix",
        "iptables=legacy,nft",
    ];
    let case = |iptables: &str| {
        json!({
            "case": format!("short/calm[iptables={iptables}]"),
            "scenario": "short",
            "variant": "calm",
            "matrix": { "iptables": iptables },
            "file": "short.yaml",
        })
    };
    let told = answer(&ground, &args, 0);
    assert_eq!(told, json!([case("legacy"), case("nft")]));
    let words = text(&ground.chainbreak(&args).stdout);
    let words: Vec<&str> = words.lines().collect();
    assert_eq!(each(&told, "case"), words);
}

#[test]
fn plan_has_what_runs_apart_from_what_is_skipped_and_what_is_missing_with_what_mends_it() {
    let ground = Ground::new();
    let chosen = ["--variant", "calm", "--variant", "needs-what-no-lab-has"];
    let told = answer(&ground, &[&["plan", "short.yaml"][..], &chosen].concat(), 0);
    assert_eq!(each(&told["run"], "case"), ["short/calm"]);
    assert_eq!(each(&told["run"], "file"), ["short.yaml"]);
    let skipped = json!([{
        "case": "short/needs-what-no-lab-has",
        "scenario": "short",
        "variant": "needs-what-no-lab-has",
        "matrix": {},
        "outside": [],
        "missing": [{
            "capability": "bpf-service-nat",
            "reason": "Felix's model has no eBPF programs, a real Felix has",
            "hint": "chainbreak run --allow-ebpf --agent felix=PATH",
        }],
    }]);
    assert_eq!(told["skip"], skipped);
}

#[test]
fn plan_says_why_a_case_is_not_meant_to_run_like_this() {
    let exclude = ["--exclude", "kube-proxy>=1.32: the image has no nft"];
    let args = ["plan", "short.yaml", "short/calm"];
    let told = answer(&Ground::new(), &[&args[..], &exclude].concat(), 0);
    assert_eq!(told["run"], json!([]));
    let outside = &told["skip"][0]["outside"];
    assert!(
        outside[0]
            .as_str()
            .unwrap()
            .contains("the image has no nft"),
        "{told}"
    );
}

#[test]
fn check_of_right_files_has_no_mistake() {
    let told = answer(&Ground::new(), &["check", "short.yaml"], 0);
    let right = json!({ "scenarios": 1, "mistakes": [], "more": 0 });
    assert_eq!(told, right);
}

#[test]
fn check_has_every_mistake_of_every_file_with_its_place_and_exits_as_ever() {
    let ground = Ground::new();
    let short = include_str!("ground/short.yaml");
    let wrong = short.replacen("from: pod/client", "from: pod/clinet", 1);
    ground.write("wrong.yaml", wrong);
    ground.write("namesake.yaml", short);
    ground.write("\u{202e}.yaml", "name: [\n");
    let files = [
        "check",
        "short.yaml",
        "wrong.yaml",
        "namesake.yaml",
        "\u{202e}.yaml",
    ];
    let told = answer(&ground, &files, 2);
    assert_eq!(told["scenarios"], 4);
    let mistakes = &told["mistakes"];
    let named: BTreeSet<&str> = each(mistakes, "file").into_iter().collect();
    let expected = ["namesake.yaml", "wrong.yaml", "\u{202e}.yaml"];
    assert_eq!(named, BTreeSet::from(expected));
    let of = |file: &str| {
        let mut mistakes = mistakes.as_array().unwrap().iter();
        mistakes.find(|it| it["file"] == file).unwrap()
    };
    let unknown = of("wrong.yaml");
    assert_eq!(
        (&unknown["line"], &unknown["column"]),
        (&json!(10), &json!(17))
    );
    let message = unknown["message"].as_str().unwrap();
    assert!(
        message.starts_with("unknown pod \"default/clinet\""),
        "{message}"
    );
    let hint = unknown["hint"].as_str().unwrap();
    assert!(hint.contains("did you mean \"client\"?"), "{hint}");
    let namesake = of("namesake.yaml");
    assert_eq!(namesake["line"], Value::Null);
    let message = namesake["message"].as_str().unwrap();
    assert!(
        message.starts_with("the name \"short\" is that of"),
        "{message}"
    );
}

/// A document commands no terminal either: what would be obeyed is written by its number.
#[test]
fn a_document_has_no_character_that_a_terminal_obeys() {
    let ground = Ground::new();
    ground.write("\u{202e}\u{9b}2J.yaml", "name: [\n");
    let output = ground.chainbreak(&["check", "\u{202e}\u{9b}2J.yaml", "--format", "json"]);
    exits(&output, 2);
    assert!(output.stdout.is_ascii(), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn without_any_scenario_there_is_no_document() {
    let ground = Ground::new();
    fs::create_dir(ground.path().join("empty")).unwrap();
    let output = ground.chainbreak(&["check", "empty", "--format", "json"]);
    exits(&output, 2);
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("no scenario in empty"));
}

#[test]
fn doctor_says_of_each_capability_whether_it_is_there_and_exits_by_the_labs() {
    let ground = Ground::new();
    let output = ground.chainbreak(&["doctor", "--format", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lab = told["lab"].as_bool().unwrap();
    exits(&output, if lab { 0 } else { 12 });
    let capabilities = told["capabilities"].as_array().unwrap();
    for it in capabilities {
        let present = it["present"].as_bool().unwrap();
        assert_eq!(present, it["reason"].is_null(), "{it}");
        assert!(!present || it["hint"].is_null(), "{it}");
    }
    let of_lab = capabilities.iter().find(|it| it["name"] == "lab");
    assert_eq!(of_lab.unwrap()["present"], lab);
}

#[test]
fn versions_has_every_pin_and_what_became_of_it_only_where_that_was_asked() {
    let ground = Ground::new();
    let told = answer(&ground, &["versions"], 0);
    let words = text(&ground.chainbreak(&["versions"]).stdout);
    let (kind, pins) = words.split_once('\n').unwrap();
    let at_least = told["kind"]["at-least"].as_str().unwrap();
    assert_eq!(kind, format!("kind        {at_least} or newer"));
    let told = told["pins"].as_array().unwrap();
    assert_eq!(told.len(), pins.lines().count());
    for (pin, line) in told.iter().zip(pins.lines()) {
        let (what, name) = (pin["what"].as_str().unwrap(), pin["name"].as_str().unwrap());
        assert_eq!(line, format!("{what:<12}{name}"));
        assert_eq!(pin.get("checked"), None);
    }
}

#[test]
fn a_format_that_there_is_not_is_a_wrong_command_line() {
    let ground = Ground::new();
    for verb in ["list", "plan", "check", "doctor", "versions"] {
        let output = ground.chainbreak(&[verb, "--format", "jsonl"]);
        exits(&output, 2);
        let said = text(&output.stderr);
        assert!(
            said.contains("[possible values: human, json]"),
            "{verb}: {said}"
        );
    }
}

#[test]
fn the_summary_of_a_run_has_what_its_case_came_to_and_where_its_files_are() {
    let ground = Ground::new();
    exits(&ground.run("fight-nobody-expects", &[]), 10);
    let summary = fs::read(ground.newest("summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["format"], 2);
    assert_eq!(summary["ended"], "complete");
    assert_eq!(summary["exit-code"], 10);
    assert_eq!(summary["counts"]["not-as-expected"], 1);
    let case = &summary["cases"][0];
    assert_eq!(case["case"], "short/fight-nobody-expects");
    assert_eq!(case["file"], "short.yaml");
    assert_eq!(each(&case["promises"], "name"), ["answers", "jump-stays"]);
    assert_eq!(case["promises"][1]["state"], "broken");
    let kept = case["kept"].as_array().unwrap();
    assert!(!kept.is_empty());
    for path in kept {
        let path = ground.newest(path.as_str().unwrap());
        assert!(path.exists(), "{}", path.display());
    }
}

#[test]
fn a_run_says_when_it_was_over_and_how_long_it_took() {
    let ground = Ground::new();
    exits(&ground.run("calm", &[]), 0);
    let summary = fs::read(ground.newest("summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    // It is judged for 300 ms.
    let took = summary["took-us"].as_u64().unwrap();
    assert!(took > 300_000, "{took}");
    assert!(summary["finished"].is_string(), "{summary}");
    let report = fs::read_to_string(ground.newest("report.txt")).unwrap();
    assert!(report.starts_with("chainbreak "), "{report}");
    assert!(report.contains("\n  took "), "{report}");
    assert!(
        report.contains("\n    jump-stays: kept, as expected\n"),
        "{report}"
    );
    assert!(report.ends_with("\n1 case: 1 as expected\n"), "{report}");
    // A merged run took as long as its parts from the first to the last.
    let merged = ground.chainbreak(&["merge", "out/latest", "--out", "merged"]);
    exits(&merged, 0);
    let whole = fs::read(ground.path().join("merged/latest/summary.json")).unwrap();
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(whole, summary);
}
