//! Writes a test for each scenario file, with a case for each variant and matrix cell, so that
//! `cargo test default_cleanup` runs what it says. Only names are read here: `chainbreak check` does
//! the understanding.

use std::{
    env,
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use serde_yaml::{Mapping, Value};

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for area in fs::read_dir(".")? {
        let area = area?.path();
        if area.is_dir() && !area.ends_with("src") && !area.ends_with("tests") {
            println!("cargo:rerun-if-changed={}", area.display());
            collect(&area, &mut files)?;
        }
    }
    println!("cargo:rerun-if-changed=.");
    files.sort();
    let (mut tests, mut names) = (String::new(), String::new());
    for file in files {
        let text = fs::read_to_string(&file)?;
        // A file of manifests has several documents, or no variants: it is not a scenario.
        let Ok(Value::Mapping(scenario)) = serde_yaml::from_str(&text) else {
            continue;
        };
        if let Some(Value::Mapping(variants)) = scenario.get("variants") {
            write_test(&mut tests, &mut names, &file, &scenario, variants)?;
        }
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("names.rs"), format!("&[\n{names}]\n"))?;
    Ok(fs::write(out.join("cases.rs"), tests)?)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            files.push(path.strip_prefix(".").unwrap_or(&path).to_owned());
        }
    }
    Ok(())
}

/// Not run, and seen to be not run: the lab's models lack the capability, or nobody allowed to change the machine.
const IGNORE: &str = "#[ignore = \"needs a capability that the lab lacks unasked\"]\n";

/// One function for each scenario, named after its file, and the names that the plan has for its cases.
fn write_test(
    tests: &mut String,
    names: &mut String,
    file: &Path,
    scenario: &Mapping,
    variants: &Mapping,
) -> Result<(), Box<dyn Error>> {
    let stem = file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .ok_or("a file name in UTF-8")?;
    let cells = cells(scenario);
    let mut cases = String::new();
    for (variant, overrides) in variants {
        let variant = variant.as_str().ok_or("a variant's name is text")?;
        let cluster = overrides.get("cluster");
        let changes_host = cluster.is_some_and(|it| it.get("host-sysctls").is_some());
        let needs = overrides.get("needs").is_some() || changes_host;
        for cell in cells.iter().filter(|cell| is_about(overrides, cell)) {
            let name = identifier(&format!("{variant} {}", cell.replace('=', " ")));
            // rstest takes an attribute as belonging to the case below it.
            let ignore = if needs { IGNORE } else { "" };
            writeln!(cases, "{ignore}#[case::{name}({variant:?}, {cell:?})]")?;
            writeln!(names, "    ({stem:?}, {variant:?}, {cell:?}),")?;
        }
    }
    let name = identifier(stem);
    let file = file.to_str().ok_or("a path in UTF-8")?;
    write!(
        tests,
        "#[rstest]\n{cases}fn {name}(#[case] variant: &str, #[case] cell: &str) {{\n    \
         comes_out_as_expected({file:?}, variant, cell);\n}}\n\n"
    )?;
    Ok(())
}

/// `iptables=legacy ip-family=IPv4`, …: the cells of a scenario's matrices, or one empty cell.
fn cells(scenario: &Mapping) -> Vec<String> {
    match scenario.get("matrix") {
        Some(Value::Sequence(matrices)) => {
            let matrices = matrices.iter().filter_map(Value::as_mapping);
            matrices.flat_map(cells_of).collect()
        }
        Some(Value::Mapping(matrix)) => cells_of(matrix),
        _ => vec![String::new()],
    }
}

fn cells_of(matrix: &Mapping) -> Vec<String> {
    let mut cells = vec![String::new()];
    for (key, values) in matrix {
        let (Some(key), Some(values)) = (key.as_str(), values.as_sequence()) else {
            continue;
        };
        let values = values.iter().filter_map(Value::as_str);
        cells = values
            .flat_map(|value| {
                cells
                    .iter()
                    .map(move |cell| format!("{cell} {key}={value}"))
            })
            .map(|cell| cell.trim().to_owned())
            .collect();
    }
    cells
}

/// Whether a variant's `only` lets it run in a cell: of the others there is nothing to test.
fn is_about(variant: &Value, cell: &str) -> bool {
    let settings = cell
        .split(' ')
        .filter_map(|setting| setting.split_once('='));
    let mut ranges = settings.filter_map(|(key, version)| {
        let range = variant.get("only")?.get(key)?.as_str()?;
        Some((range, version))
    });
    ranges.all(|(range, version)| {
        range
            .split(',')
            .all(|bound| is_within(bound.trim(), version))
    })
}

/// Whether a version is on the right side of a bound, as far as that is written. A minor version is its last patch.
fn is_within(bound: &str, version: &str) -> bool {
    let written = bound.trim_start_matches(['<', '>', '=']);
    let numbers = |text: &str| -> Vec<u16> {
        let text = text.trim().trim_start_matches('v');
        text.split('.').map_while(|it| it.parse().ok()).collect()
    };
    let (limit, mut version) = (numbers(written), numbers(version));
    version.resize(limit.len(), u16::MAX);
    match bound.strip_suffix(written).unwrap_or_default() {
        ">=" => version >= limit,
        "<=" => version <= limit,
        ">" => version > limit,
        "<" => version < limit,
        _ => version == limit,
    }
}

fn identifier(text: &str) -> String {
    let letters = text.trim().chars();
    letters
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect()
}
