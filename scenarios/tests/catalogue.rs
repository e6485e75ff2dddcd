//! The catalogue: `README.md` lists every scenario, under its area, and nothing else, and each case is a test.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// The case of every test.
const TESTS: &[&str] = include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// Every scenario as `AREA/NAME.yaml`: the YAML files of the areas that have variants, as no manifest does.
fn shipped() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.to_owned()];
    let mut scenarios = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if is_scenario(&path) {
                let name = path.strip_prefix(root).expect("it lies below");
                scenarios.insert(name.display().to_string());
            }
        }
    }
    scenarios
}

fn is_scenario(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "yaml")
        && fs::read_to_string(path)
            .expect("a text")
            .lines()
            .any(|line| line.starts_with("variants:"))
}

/// The rows of the tables: area, cells.
fn rows() -> Vec<(String, Vec<String>)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(file).expect("the catalogue is there");
    let mut area = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut area);
        }
        let cells = line
            .strip_prefix("| [")
            .map(|_| line.trim_matches('|').split(" | "));
        if let Some(cells) = cells {
            let cells = cells.map(|cell| cell.trim().to_owned()).collect();
            rows.push((area.clone(), cells));
        }
    }
    rows
}

/// `[name](area/name.yaml)`.
fn link(cell: &str) -> (&str, &str) {
    let link = cell.strip_prefix('[').and_then(|it| it.strip_suffix(')'));
    link.and_then(|it| it.split_once("]("))
        .unwrap_or_else(|| panic!("{cell} is no link"))
}

#[test]
fn the_catalogue_lists_every_scenario_and_nothing_that_is_not_there() {
    let rows = rows();
    let listed: BTreeSet<String> = rows
        .iter()
        .map(|(_, cells)| link(&cells[0]).1.to_owned())
        .collect();
    assert_eq!(listed, shipped());
    assert_eq!(listed.len(), rows.len(), "each once");
}

#[test]
fn each_row_stands_under_its_area_and_names_symptom_cause_and_fix() {
    for (area, cells) in rows() {
        let (name, file) = link(&cells[0]);
        assert_eq!(file, format!("{area}/{name}.yaml"));
        let [_, _, symptom, cause, fix] = &cells[..] else {
            panic!("{name}: {cells:?}");
        };
        for cell in [symptom, cause, fix] {
            assert!(!cell.is_empty(), "{name}: {cells:?}");
        }
    }
}

/// The plan's names of cases. A cell that a variant is not about is no case.
fn planned() -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainbreak-scenarios"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.args(["plan", "."]).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("a text");
    let lines = text.lines().filter_map(|line| {
        let (what, rest) = line.split_once(' ')?;
        let (name, reason) = rest.trim().split_once(": ").unwrap_or((rest.trim(), ""));
        let is_case = what == "run" || what == "skip" && !reason.starts_with("is about");
        is_case.then(|| name.to_owned())
    });
    lines.collect()
}

#[test]
fn the_tests_are_the_cases_of_the_plan() {
    let tested: BTreeSet<String> = TESTS.iter().map(|id| (*id).to_owned()).collect();
    assert_eq!(tested.len(), TESTS.len(), "each once");
    assert_eq!(tested, planned());
}
