//! Finding scenario files, and reading them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal,
    path::PathBuf,
};

use chainbreak_model::{
    Diagnostics, load, names::ScenarioName, nearest_file, scenario::Scenario, scenario_files,
};
use miette::{GraphicalReportHandler, GraphicalTheme};

use super::invalid;

/// Every scenario file under some paths, read once.
pub(super) struct Read {
    /// How many files there are, at least one.
    pub(super) files: usize,
    /// Of those that can be read.
    pub(super) scenarios: Vec<Scenario>,
    /// Of the others, what is wrong with each.
    pub(super) wrong: Vec<Diagnostics>,
}

impl Read {
    /// Reads them. No file at all is an error.
    pub(super) fn under(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let files = files(paths)?;
        if files.is_empty() {
            let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            return Err(invalid(format!("no scenario in {}", paths.join(", "))));
        }
        let (mut scenarios, mut wrong) = (Vec::new(), Vec::new());
        for file in &files {
            match load(file) {
                Ok(scenario) => scenarios.push(scenario),
                Err(diagnostics) => wrong.push(diagnostics),
            }
        }
        Ok(Self {
            files: files.len(),
            scenarios,
            wrong,
        })
    }

    /// Scenarios whose name another one has before them, and what is wrong with that.
    pub(super) fn namesakes(&self) -> Vec<(&Scenario, String)> {
        let mut firsts: BTreeMap<&ScenarioName, &Scenario> = BTreeMap::new();
        let mut found = Vec::new();
        for scenario in &self.scenarios {
            if let Some(first) = firsts.get(&scenario.name) {
                let (name, first) = (scenario.name.as_str(), first.file.display());
                let why = format!(
                    "the name {name:?} is that of the scenario in {first}: their cases could not be told apart"
                );
                found.push((scenario, why));
            } else {
                firsts.insert(&scenario.name, scenario);
            }
        }
        found
    }

    /// The scenarios of files of which every one can be used. Else all mistakes of all files are said before the error returns.
    pub(super) fn scenarios(self) -> anyhow::Result<Vec<Scenario>> {
        self.wrong.iter().for_each(note);
        let mut wrong = self.wrong.len();
        for (scenario, why) in self.namesakes() {
            crate::note(&format!("{}: {why}", scenario.file.display()));
            wrong += 1;
        }
        if wrong == 0 {
            return Ok(self.scenarios);
        }
        let all = self.files;
        Err(invalid(format!(
            "{wrong} of {all} scenario files cannot be used"
        )))
    }
}

/// Each once, also where several paths lead to it.
fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(scenario_files(path)?);
        } else if path.try_exists().is_ok_and(|exists| !exists) {
            let like = nearest_file(path)
                .map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
            return Err(invalid(format!("no such file: {}{like}", path.display())));
        } else {
            files.push(path.clone());
        }
    }
    let mut known = BTreeSet::new();
    // One whose way cannot be followed is itself: reading it says why.
    files.retain(|file| known.insert(file.canonicalize().unwrap_or_else(|_unknown| file.clone())));
    Ok(files)
}

/// With carets and colours in a terminal, plain lines elsewhere.
fn note(diagnostics: &Diagnostics) {
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode());
    if std::io::stderr().is_terminal() && handler.render_report(&mut text, diagnostics).is_ok() {
        crate::note_as_it_is(&text);
    } else {
        crate::note(&diagnostics.plain());
    }
}
