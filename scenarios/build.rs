//! Writes a test for each case of each scenario, so that `cargo test default_cleanup` runs what it says. Scenarios are
//! found, read and planned by the product's own code: one with a mistake fails the build, in the words of
//! `chainbreak check`.

#![expect(clippy::print_stderr, reason = "how a build script says why it failed")]

use std::{
    env,
    error::Error,
    fmt::{self, Write},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use chainbreak_model::{
    case::{Capabilities, Step},
    load,
    names::VariantName,
    plan,
    plan::{Choice, Planned},
    scenario::{Scenario, Variant},
    scenario_files,
};

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=.");
    match scenarios().and_then(|scenarios| write(&scenarios)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Every scenario, or every mistake of all of them.
fn scenarios() -> Result<Vec<Scenario>, Box<dyn Error>> {
    let (mut scenarios, mut mistakes) = (Vec::new(), String::new());
    for file in scenario_files(Path::new("."))? {
        match load(file.strip_prefix(".").unwrap_or(&file)) {
            Ok(scenario) => scenarios.push(scenario),
            Err(diagnostics) => mistakes += &diagnostics.plain(),
        }
    }
    if mistakes.is_empty() {
        Ok(scenarios)
    } else {
        Err(mistakes.into())
    }
}

/// Two files for the tests: the functions, and the names that the product has for their cases.
fn write(scenarios: &[Scenario]) -> Result<(), Box<dyn Error>> {
    let (mut tests, mut names) = (String::new(), String::new());
    for scenario in scenarios {
        write_test(&mut tests, &mut names, scenario)?;
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("names.rs"), format!("&[\n{names}]\n"))?;
    Ok(fs::write(out.join("cases.rs"), tests)?)
}

/// Not run, and seen to be not run: the lab's models lack the capability, or nobody allowed to change the machine.
const IGNORE: &str = "#[ignore = \"needs a capability that the lab lacks unasked\"]\n";

/// One function for each scenario, named after it.
fn write_test(tests: &mut String, names: &mut String, scenario: &Scenario) -> fmt::Result {
    let mut cases = String::new();
    for (variant, what) in &scenario.variants {
        // rstest takes an attribute as belonging to the case below it.
        let ignore = if needs_more(what) { IGNORE } else { "" };
        for id in ids(scenario, variant) {
            let cell = cell(&id);
            let name = identifier(&format!("{variant} {}", cell.replace('=', " ")));
            let variant = variant.as_str();
            writeln!(cases, "{ignore}#[case::{name}({variant:?}, {cell:?})]")?;
            writeln!(names, "    {id:?},")?;
        }
    }
    let name = identifier(scenario.name.as_str());
    let take = if fills_conntrack(scenario) {
        "let _alone = one_at_a_time();\n    "
    } else {
        ""
    };
    let file = format!("{:?}", scenario.file.to_string_lossy());
    write!(
        tests,
        "#[rstest]\n{cases}fn {name}(#[case] variant: &str, #[case] cell: &str) {{\n    \
         {take}comes_out_as_expected({file}, variant, cell);\n}}\n\n"
    )
}

/// Whether some of its cases are not to run side by side.
fn fills_conntrack(scenario: &Scenario) -> bool {
    let mut variants = scenario.variants.values();
    variants.any(|variant| variant.run.timeline.iter().any(Step::fills_conntrack))
}

/// The cases of a variant. Of versions that it is not about there is nothing to test. Whether the others can run here is
/// for the tests to say: which machine they run on is not known yet.
fn ids(scenario: &Scenario, variant: &VariantName) -> Vec<String> {
    let choice = Choice {
        backend: "lab".to_owned(),
        variants: vec![variant.clone()],
        ..Choice::default()
    };
    let planned = plan(scenario, &choice, &Capabilities::default()).into_iter();
    let possible = planned
        .filter(|plan| !matches!(plan, Planned::Skip(skipped) if !skipped.outside.is_empty()));
    possible.map(|plan| plan.id()).collect()
}

/// Whether a variant needs what `make packages` does not install.
fn needs_more(variant: &Variant) -> bool {
    !variant.needs.is_empty() || !variant.run.cluster.host_sysctls.is_empty()
}

/// `iptables=legacy ip-family=IPv4`, …: what a case's name says of its cell.
fn cell(id: &str) -> String {
    let (_, cell) = id.split_once('[').unwrap_or_default();
    cell.trim_end_matches(']').replace(',', " ")
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
