//! From paths on the command line to cases: finding scenario files, reading them, planning.

mod documents;
mod read;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    process::ExitCode,
};

use chainbreak_engine::backend::Doing;
use chainbreak_model::{
    case::{AgentSource, Capabilities, repeated_case},
    names::AgentName,
    plan::{Planned, merged},
    scenario::Scenario,
    suggest,
};
use chainbreak_report::{summary, text::document};
use regex::Regex;

use self::{
    documents::{Checked, Listed, Plan},
    read::Read,
};
use crate::{
    args::{self, Answer, Players, named::Named, selection::Selection},
    backend_choice::BackendChoice,
    bundle, choice,
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

/// Words about one that is not among those that are known, with what was perhaps meant.
pub(crate) fn unknown<'a>(
    words: &str,
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let hint = suggest(word, known).map(|hint| format!("; {hint}"));
    format!("{words}{}", hint.unwrap_or_default())
}

/// `chainbreak check`.
pub(crate) fn check(args: &args::Check) -> anyhow::Result<ExitCode> {
    let read = Read::under(&args.paths)?;
    if args.format == Answer::Json {
        let checked = Checked::of(&read);
        crate::say_as_it_is(&document(&checked)?)?;
        return Ok(if checked.is_well() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(crate::USAGE)
        });
    }
    let count = read.scenarios()?.len();
    let noun = if count == 1 { "scenario" } else { "scenarios" };
    crate::say(&format!("{count} {noun}, no mistake\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// `chainbreak list`.
pub(crate) async fn list(args: &args::Listing) -> anyhow::Result<ExitCode> {
    let selection = &args.selection;
    let scenarios = scenarios(&selection.named)?;
    let choice = choice::of(selection, &scenarios, Absent::Left).await?;
    let (mut ids, mut files) = (Vec::<String>::new(), Vec::<&Path>::new());
    for scenario in &scenarios {
        let listed = chainbreak_model::list(scenario, &choice);
        files.extend(listed.iter().map(|_| scenario.file.as_path()));
        ids.extend(listed);
    }
    let chosen = Chosen::of(&selection.named, &ids)?;
    let cases = ids.iter().zip(files).filter(|(id, _)| chosen.has(id));
    match args.format {
        Answer::Human => {
            for (id, _) in cases {
                crate::say(&format!("{id}\n"))?;
            }
        }
        Answer::Json => {
            let cases = cases.map(|(id, file)| Listed::of(id, Some(file)));
            let cases: Vec<Listed<'_>> = cases.collect();
            crate::say_as_it_is(&document(&cases)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `chainbreak plan`.
pub(crate) async fn plan(args: &args::Listing) -> anyhow::Result<ExitCode> {
    let selection = &args.selection;
    let backend = BackendChoice::of(selection);
    let capabilities = backend.survey().await;
    // What a run meets in every case is said once.
    if let Some(reason) = backend.absent(&capabilities) {
        crate::note(&format!("{}: {reason}", backend.factory().name()));
    }
    let capabilities = backend.demanded(capabilities);
    let planned = planned(selection, &capabilities, Absent::Left).await?;
    let planned = backend.rewrite_namespaces(planned).await;
    let rehearsed = backend.rehearse(&planned).await;
    let rehearsed = rehearsed.unwrap_or_else(|error| {
        crate::note(&format!(
            "what is done to the cluster cannot be told: {error}"
        ));
        Vec::new()
    });
    match args.format {
        Answer::Human => tell(&planned, rehearsed)?,
        Answer::Json => {
            let planned = planned.into_iter().map(|plan| (plan.id(), plan));
            let planned: Vec<(String, Planned)> = planned.collect();
            crate::say_as_it_is(&document(&Plan::of(&planned, rehearsed))?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(planned: &[Planned], rehearsed: Vec<Vec<Doing>>) -> anyhow::Result<()> {
    let mut runs = 0;
    let mut rehearsed = rehearsed.into_iter();
    for plan in planned {
        let case = match plan {
            Planned::Run(case) => case,
            Planned::Skip(skipped) => {
                crate::say(&format!("skip  {}: {}\n", skipped.id, skipped.reason()))?;
                continue;
            }
        };
        runs += 1;
        crate::say(&format!("run   {}\n", case.id()))?;
        for Doing { does, what, how } in rehearsed.next().unwrap_or_default() {
            let how = if how.is_empty() {
                how
            } else {
                format!("  ({how})")
            };
            crate::say(&format!("      {does:<8}{what}{how}\n"))?;
        }
    }
    crate::say(&format!(
        "{runs} to run, {} to skip\n",
        planned.len() - runs
    ))
}

/// What would become of every chosen case on a machine with these capabilities. Which cells of the matrix
/// are one case is said.
pub(crate) async fn planned(
    selection: &Selection,
    capabilities: &Capabilities,
    absent: Absent,
) -> anyhow::Result<Vec<Planned>> {
    let bundle = bundle::Opened::named(selection)?;
    planned_of(selection, bundle.as_ref(), capabilities, absent).await
}

/// [`planned`], of a bundle that was opened or of scenarios.
pub(crate) async fn planned_of(
    selection: &Selection,
    bundle: Option<&bundle::Opened>,
    capabilities: &Capabilities,
    absent: Absent,
) -> anyhow::Result<Vec<Planned>> {
    let considered = considered(selection, bundle, capabilities, absent).await?;
    let notes = considered.notes.iter().chain(&considered.merged);
    notes.for_each(|note| crate::note(note));
    Ok(considered.planned)
}

/// What would become of the chosen cases, and what is to be known beside it.
pub(crate) struct Considered {
    pub(crate) planned: Vec<Planned>,
    /// Of agents and their versions.
    pub(crate) notes: Vec<String>,
    /// Which cells of the matrix are one case.
    merged: Vec<String>,
}

/// [`planned_of`], without a word.
pub(crate) async fn considered(
    selection: &Selection,
    bundle: Option<&bundle::Opened>,
    capabilities: &Capabilities,
    absent: Absent,
) -> anyhow::Result<Considered> {
    let scenarios = match bundle {
        Some(_) => Vec::new(),
        None => scenarios(&selection.named)?,
    };
    let choice = choice::of(selection, &scenarios, absent).await?;
    let plan = |scenario| chainbreak_model::plan(scenario, &choice, capabilities);
    let mut planned: Vec<Planned> = match bundle {
        Some(bundle) => bundle.planned(&choice, capabilities),
        None => scenarios.iter().flat_map(plan).collect(),
    };
    let ids: Vec<String> = planned.iter().map(Planned::id).collect();
    let chosen = Chosen::of(&selection.named, &ids)?;
    planned.retain(|plan| chosen.has(&plan.id()));
    let unheard = unheard_of(&planned, &choice.pinned).into_iter();
    let mut notes: Vec<String> = unheard
        .map(|(agent, version)| {
            format!("no {agent} {version} is known here: its model does what that of the newest release does")
        })
        .collect();
    let merged = scenarios
        .iter()
        .flat_map(|scenario| merged(scenario, &choice))
        .filter(|(id, _)| chosen.has(id))
        .map(|(id, cells)| format!("{id}: {cells} cells of the matrix run this same case"))
        .collect();
    let planned = match selection.shard {
        Some(shard) => shard.of(planned),
        None => planned,
    };
    if selection.players == Players::Real {
        notes.extend(provide::standing_in(&planned)?);
    }
    Ok(Considered {
        planned,
        notes,
        merged,
    })
}

/// Versions that models are to play, and that are newer than every release that was looked at.
fn unheard_of(
    planned: &[Planned],
    pinned: &BTreeMap<AgentName, Vec<String>>,
) -> BTreeSet<(AgentName, String)> {
    let minor = |version: &str| {
        let mut numbers = version.split('.').map(str::parse::<u16>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let agent = AgentName::KubeProxy;
    let pinned = pinned.get(&agent).into_iter().flatten();
    let newest = pinned.filter_map(|it| minor(it)).max();
    let versions = planned.iter().filter_map(|plan| match plan {
        Planned::Run(case) if case.cluster.source(agent) == Some(&AgentSource::Model) => {
            case.cluster.version(agent)
        }
        _ => None,
    });
    versions
        .filter(|version| newest.is_some() && minor(version) > newest)
        .map(|version| (agent, version.to_owned()))
        .collect()
}

/// The scenarios where a person says, those that have the wanted labels.
pub(crate) fn scenarios(named: &Named) -> anyhow::Result<Vec<Scenario>> {
    if let Some(why) = named.lost() {
        return Err(invalid(why));
    }
    let all = Read::under(&named.paths())?.scenarios()?;
    named.labelled(all).map_err(invalid)
}

/// The scenarios of a file or a folder.
pub(crate) fn all_under(path: &Path) -> anyhow::Result<Vec<Scenario>> {
    Read::under(&[path.to_owned()])?.scenarios()
}

/// Which of all cases a person wants.
struct Chosen(BTreeSet<String>);

impl Chosen {
    /// Of these. A name that is no case's is a mistake; that nothing failed, or matches, is none.
    fn of(wanted: &Named, ids: &[String]) -> anyhow::Result<Self> {
        let named = wanted.cases();
        let named = named_among(
            &named,
            ids,
            "no such file, and no case of that name: `chainbreak list` prints all, and `plan` those of a bundle",
        )?;
        let failed = wanted.failed.as_deref().map(failed).transpose()?;
        let is_wanted = |id: &String| {
            let case = repeated_case(id).unwrap_or(id);
            let has_failed = failed.as_ref().is_none_or(|failed| failed.contains(case));
            has_failed && wanted.matches(id)
        };
        Ok(Self(named.into_iter().filter(is_wanted).collect()))
    }

    fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }
}

/// Those of the cases that are named, all of them where none is. Each name is that of some case; `missing` says what is wrong with another.
pub(crate) fn named_among(
    named: &[(String, Regex)],
    ids: &[String],
    missing: &str,
) -> anyhow::Result<BTreeSet<String>> {
    for (text, regex) in named {
        if !ids.iter().any(|id| regex.is_match(id)) {
            let words = format!("{text}: {missing}");
            let known = ids.iter().map(String::as_str);
            return Err(invalid(unknown(&words, text, known)));
        }
    }
    let is_named = |id: &&String| named.is_empty() || named.iter().any(|(_, it)| it.is_match(id));
    Ok(ids.iter().filter(is_named).cloned().collect())
}

/// The cases of a run that did not come out as expected, those that were not judged among them, and those of which no repetition had begun.
fn failed(run: &Path) -> anyhow::Result<BTreeSet<String>> {
    let (run, _) = reports::read(run)?;
    Ok(summary::left(&run))
}
