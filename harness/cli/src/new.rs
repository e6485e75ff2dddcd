//! `chainbreak new`: a scenario to begin with, which holds as it stands.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use chainbreak_engine::shell::quoted;
use chainbreak_model::{Diagnostic, scenario::Scenario};

use crate::{
    args::{New, selection::SCENARIOS},
    cases::invalid,
};

const SCENARIO: &str = include_str!("new/scenario.yaml");
/// Where it stands in the scenario.
const NAME: &str = "NAME";
const SCHEMA: &str = "scenario.schema.json";

/// Writes it, and says what comes next. A file that is there already stays as it is.
pub(crate) fn new(args: &New) -> anyhow::Result<ExitCode> {
    let folder = args.dir.clone().unwrap_or_else(usual);
    let path = folder.join(&args.name).with_extension("yaml");
    let text = text(&args.name, &folder);
    let read = read(&path, &text)?;
    // YAML has its own mind of blanks, quotes and `#`.
    if read.name.as_str() != args.name {
        let why = format!("the scenario's name cannot be {:?}", args.name);
        return Err(invalid(why));
    }
    write(&path, &text)?;
    let file = quoted(&path.display().to_string());
    crate::say(&format!(
        "{}\n\nIt shows an incident and a fix as it stands. Make them yours, and meanwhile:\n  \
         chainbreak check {file}\n  chainbreak run {file}\n  chainbreak mutate {file}\n",
        path.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn usual() -> PathBuf {
    let scenarios = PathBuf::from(SCENARIOS);
    if scenarios.is_dir() {
        scenarios
    } else {
        PathBuf::new()
    }
}

/// The scenario, with the schema for editors where there is one.
fn text(name: &str, folder: &Path) -> String {
    let scenario = SCENARIO.replacen(NAME, name, 1);
    let near = ["", "../"].map(|way| format!("{way}{SCHEMA}"));
    match near.iter().find(|way| folder.join(way).exists()) {
        Some(way) => format!("# yaml-language-server: $schema={way}\n{scenario}"),
        None => scenario,
    }
}

/// A scenario of such a text, which needs no other files.
pub(crate) fn read(path: &Path, text: &str) -> anyhow::Result<Scenario> {
    let no_manifests = |_: &Path| Err(io::ErrorKind::NotFound.into());
    chainbreak_model::read(path, text.as_bytes(), &no_manifests).map_err(|mistakes| {
        let mistakes = mistakes.iter().map(Diagnostic::message);
        invalid(mistakes.collect::<Vec<_>>().join("; "))
    })
}

/// Writes a file that is not there yet.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    let written = created.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => invalid(format!("{} is there already", path.display())),
        _ => invalid(format!("could not write {}: {error}", path.display())),
    })
}
