//! From paths on the command line to cases: finding scenario files, reading them, planning.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use chainbreak_model::{
    Diagnostics,
    case::Capabilities,
    load,
    names::ScenarioName,
    plan::{Planned, merged},
    scenario::Scenario,
    scenario_files, suggest,
};
use chainbreak_report::summary;
use miette::{GraphicalReportHandler, GraphicalTheme};

use crate::{
    args::{
        Players,
        named::Named,
        selection::{Paths, Selection},
    },
    backend_choice::BackendChoice,
    choice,
    images::Absent,
    provide, reports,
};

/// The command line or a scenario is wrong; what is wrong has been said or is in the words.
#[derive(Debug)]
pub(crate) struct Invalid(String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// An error that ends with the exit status of a wrong command line.
pub(crate) fn invalid(words: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Invalid(words.into()))
}

/// `chainbreak check`.
pub(crate) fn check(paths: &Paths) -> anyhow::Result<ExitCode> {
    let count = scenarios(&paths.paths)?.len();
    let noun = if count == 1 { "scenario" } else { "scenarios" };
    crate::say(&format!("{count} {noun}, no mistake\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// `chainbreak list`.
pub(crate) async fn list(selection: &Selection) -> anyhow::Result<ExitCode> {
    let scenarios = scenarios(&selection.named.paths())?;
    let choice = choice::of(selection, &scenarios, Absent::Left).await?;
    let listed = |scenario| chainbreak_model::list(scenario, &choice);
    let ids: Vec<String> = scenarios.iter().flat_map(listed).collect();
    let chosen = Chosen::of(&selection.named, &ids)?;
    for id in ids.iter().filter(|id| chosen.has(id)) {
        crate::say(&format!("{id}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `chainbreak plan`.
pub(crate) async fn plan(selection: &Selection) -> anyhow::Result<ExitCode> {
    let capabilities = BackendChoice::of(selection).survey().await;
    let planned = planned(selection, &capabilities, Absent::Left).await?;
    for plan in &planned {
        crate::say(&match plan {
            Planned::Run(case) => format!("run   {}\n", case.id()),
            Planned::Skip(skipped) => format!("skip  {}: {}\n", skipped.id, skipped.reason()),
        })?;
    }
    let runs = planned
        .iter()
        .filter(|plan| matches!(plan, Planned::Run(_)))
        .count();
    crate::say(&format!(
        "{runs} to run, {} to skip\n",
        planned.len() - runs
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What would become of every chosen case on a machine with these capabilities. Which cells of the matrix
/// are one case is said.
pub(crate) async fn planned(
    selection: &Selection,
    capabilities: &Capabilities,
    absent: Absent,
) -> anyhow::Result<Vec<Planned>> {
    let scenarios = scenarios(&selection.named.paths())?;
    let choice = choice::of(selection, &scenarios, absent).await?;
    let plan = |scenario| chainbreak_model::plan(scenario, &choice, capabilities);
    let mut planned: Vec<Planned> = scenarios.iter().flat_map(plan).collect();
    let ids: Vec<String> = planned.iter().map(Planned::id).collect();
    let chosen = Chosen::of(&selection.named, &ids)?;
    planned.retain(|plan| chosen.has(&plan.id()));
    for (id, cells) in scenarios
        .iter()
        .flat_map(|scenario| merged(scenario, &choice))
        .filter(|(id, _)| chosen.has(id))
    {
        crate::note(&format!(
            "{id}: {cells} cells of the matrix run this same case"
        ));
    }
    let planned = match selection.shard {
        Some(shard) => shard.of(planned),
        None => planned,
    };
    if selection.players == Players::Real {
        let standing_in = provide::standing_in(&planned)?;
        for line in &standing_in {
            crate::note(line);
        }
    }
    Ok(planned)
}

/// Which of all cases a person wants.
struct Chosen(BTreeSet<String>);

impl Chosen {
    /// Of these. A name that is no case's is a mistake; that nothing failed, or matches, is none.
    fn of(wanted: &Named, ids: &[String]) -> anyhow::Result<Self> {
        let named = wanted.cases();
        for (text, regex) in &named {
            if !ids.iter().any(|id| regex.is_match(id)) {
                let hint = suggest(text, ids.iter().map(String::as_str));
                let hint = hint.map(|it| format!("; {it}")).unwrap_or_default();
                return Err(invalid(format!(
                    "{text}: no such file, and no case of that name: `chainbreak list` prints all{hint}"
                )));
            }
        }
        let failed = wanted.failed.as_deref().map(failed).transpose()?;
        let is_wanted = |id: &&String| {
            let is_named = named.is_empty() || named.iter().any(|(_, regex)| regex.is_match(id));
            let has_failed = failed.as_ref().is_none_or(|failed| failed.contains(*id));
            is_named && has_failed && wanted.matches(id)
        };
        Ok(Self(ids.iter().filter(is_wanted).cloned().collect()))
    }

    fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }
}

/// The cases of a run that did not come out as expected, those that were not judged among them.
fn failed(run: &Path) -> anyhow::Result<BTreeSet<String>> {
    let (run, _) = reports::read(run)?;
    // One case is in memory at a time.
    let failed = summary::each(&run).filter(|summary| summary.outcome.has_failed());
    Ok(failed.map(|summary| summary.case().to_owned()).collect())
}

/// Reads every scenario under the paths, each file once. All mistakes of all files are said before the error returns.
fn scenarios(paths: &[PathBuf]) -> anyhow::Result<Vec<Scenario>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(scenario_files(path)?);
        } else {
            files.push(path.clone());
        }
    }
    let mut known = BTreeSet::new();
    // A file that cannot be found is itself: reading it says why.
    files.retain(|file| known.insert(file.canonicalize().unwrap_or_else(|_absent| file.clone())));
    let mut scenarios = Vec::new();
    let mut wrong = 0;
    for file in &files {
        match load(file) {
            Ok(scenario) => scenarios.push(scenario),
            Err(diagnostics) => {
                wrong += 1;
                note(&diagnostics);
            }
        }
    }
    for (scenario, first) in namesakes(&scenarios) {
        wrong += 1;
        crate::note(&format!(
            "{}: the name {:?} is that of the scenario in {}: their cases could not be told apart",
            scenario.file.display(),
            scenario.name.as_str(),
            first.file.display()
        ));
    }
    match (wrong, files.len()) {
        (_, 0) => {
            let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            Err(invalid(format!("no scenario in {}", paths.join(", "))))
        }
        (0, _) => Ok(scenarios),
        (wrong, all) => Err(invalid(format!(
            "{wrong} of {all} scenario files cannot be used"
        ))),
    }
}

/// Scenarios whose name another one has before them, with that one.
fn namesakes(scenarios: &[Scenario]) -> Vec<(&Scenario, &Scenario)> {
    let mut firsts: BTreeMap<&ScenarioName, &Scenario> = BTreeMap::new();
    let mut found = Vec::new();
    for scenario in scenarios {
        if let Some(first) = firsts.get(&scenario.name) {
            found.push((scenario, *first));
        } else {
            firsts.insert(&scenario.name, scenario);
        }
    }
    found
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
