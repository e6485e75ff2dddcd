//! `chainbreak matrix`: the jobs of a CI that share the cells of a matrix.

mod backends;
mod jobs;

use std::{collections::BTreeSet, process::ExitCode};

use chainbreak_engine::shell::quoted;
use chainbreak_model::{
    matrix::MatrixKey,
    plan::{Planned, Shard},
};
use serde::Serialize;

use crate::{
    args::{self, Players, matrix::Format, selection::Selection},
    backend_choice::BackendChoice,
    cases,
    images::Absent,
};

/// So many jobs a matrix of GitHub Actions may have.
const GITHUB: usize = 256;

/// A job, as a workflow's `matrix.include` has it.
#[derive(Serialize)]
struct Job {
    /// What it is called: its combination, and its part if there are several.
    name: String,
    /// The same for the name of a file.
    id: String,
    /// What its `chainbreak run` is given beside the paths.
    args: String,
    /// How many cases it runs.
    cases: usize,
}

/// Prints the jobs.
pub(crate) async fn matrix(args: &args::matrix::Matrix) -> anyhow::Result<ExitCode> {
    if args.selection.shard.is_some() {
        return Err(cases::invalid(
            "--shard is for one job: --shards says how many parts there are",
        ));
    }
    let (mut jobs, mut said) = (Vec::new(), BTreeSet::new());
    for combination in combinations(&args.selection.matrix)? {
        jobs.extend(of(args, combination, &mut said).await?);
    }
    if jobs.is_empty() {
        return Err(cases::invalid("nothing of this matrix runs here"));
    }
    match args.format() {
        Format::Lines => {
            for job in &jobs {
                crate::say(&format!("{:4} cases  {}\n", job.cases, job.args))?;
            }
        }
        Format::Github => tell_github(&jobs)?,
        Format::Jobs => crate::say_as_it_is(&jobs::document(args, &jobs)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_github(jobs: &[Job]) -> anyhow::Result<()> {
    if jobs.len() > GITHUB {
        let jobs = jobs.len();
        return Err(cases::invalid(format!(
            "{jobs} jobs: GitHub Actions takes at most {GITHUB} in a matrix; vary less, or in fewer parts"
        )));
    }
    let include = serde_json::json!({ "include": jobs });
    crate::say(&format!("matrix={include}\n"))?;
    Ok(())
}

/// One value for each key.
#[derive(Debug, Clone, Default)]
struct Combination {
    /// `kube-proxy=1.31`, ….
    settings: Vec<String>,
    /// The keys of which these are not the first values: what they do not vary is the same case with the first ones, and run there.
    varying: Vec<MatrixKey>,
}

impl Combination {
    fn with(&self, key: MatrixKey, value: &str, is_first: bool) -> Self {
        let mut wider = self.clone();
        wider.settings.push(format!("{key}={value}"));
        wider.varying.extend((!is_first).then_some(key));
        wider
    }
}

/// Every combination.
fn combinations(texts: &[String]) -> anyhow::Result<Vec<Combination>> {
    let mut all = vec![Combination::default()];
    for (key, values) in crate::choice::matrix(texts)? {
        let wider = |before: &Combination| {
            let values = values.iter().enumerate();
            let with = values.map(|(at, value)| before.with(key, value, at == 0));
            with.collect::<Vec<_>>()
        };
        all = all.iter().flat_map(wider).collect();
    }
    Ok(all)
}

/// The jobs of one combination; one that runs no case is said and left out. What is to be known of several is said once. Which of its cells
/// are one case is each job's to say.
async fn of(
    args: &args::matrix::Matrix,
    combination: Combination,
    said: &mut BTreeSet<String>,
) -> anyhow::Result<Vec<Job>> {
    let what = combination.settings.join(" ");
    let mut selection = Selection {
        matrix: combination.settings,
        ..args.selection.clone()
    };
    selection.varying.extend(combination.varying);
    let capabilities = BackendChoice::of(&selection).survey().await;
    let considered = cases::considered(&selection, None, &capabilities, Absent::Left).await?;
    let notes = considered.notes.into_iter();
    for note in notes.filter(|it| said.insert(it.clone())) {
        crate::note(&note);
    }
    let planned = considered.planned;
    let runs = |planned: &[Planned]| {
        let runs = planned.iter().filter(|it| matches!(it, Planned::Run(_)));
        runs.count()
    };
    if runs(&planned) == 0 {
        let why = planned.iter().find_map(|plan| match plan {
            Planned::Skip(skipped) => Some(skipped.reason()),
            Planned::Run(_) => None,
        });
        let why = why.unwrap_or_else(|| "its cases are those of another one".to_owned());
        crate::note(&format!("{what}: no job, {why}"));
        return Ok(Vec::new());
    }
    let more = [chosen_by(&selection), passed_on(&selection)].join(" ");
    let more = more.trim();
    let jobs = Shard::all(args.shards).filter_map(|shard| {
        let cases = runs(&shard.of(planned.clone()));
        let part = match args.shards.get() {
            1 => String::new(),
            _ => shard.to_string(),
        };
        (cases > 0).then(|| job(&what, &part, more, cases))
    });
    Ok(jobs.collect())
}

/// A job that runs a part of a combination; none of either is an empty text.
fn job(what: &str, part: &str, more: &str, cases: usize) -> Job {
    let flag = |name: &str, value: &str| match value {
        "" => String::new(),
        _ => format!("{name} {value}"),
    };
    let words = [
        flag("--matrix", what),
        flag("--shard", part),
        more.to_owned(),
    ];
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|it| !it.is_empty())
        .collect();
    let name = match [what, part].join(" ").trim() {
        "" => "all".to_owned(),
        name => name.to_owned(),
    };
    Job {
        id: name.replace([' ', '/'], "-"),
        name,
        args: words.join(" "),
        cases,
    }
}

/// A flag with each of these values, quoted for a shell.
pub(crate) fn flags(flag: &str, values: &[String]) -> impl Iterator<Item = String> {
    values
        .iter()
        .map(move |value| format!("{flag} {}", quoted(value)))
}

/// By what cases are chosen that are not named, quoted for a shell.
fn chosen_by(selection: &Selection) -> String {
    let (matching, labels) = selection.named.chosen_by();
    let matching = matching.map(ToString::to_string);
    let words = flags("-k", matching.as_slice()).chain(flags("--label", labels));
    words.collect::<Vec<_>>().join(" ")
}

/// What of a selection each job is given as it is, quoted for a shell.
pub(crate) fn passed_on(selection: &Selection) -> String {
    let mut words: Vec<String> = flags("--variant", &selection.variants).collect();
    let varying = selection.varying.iter();
    words.extend(varying.map(|key| format!("--varying {key}")));
    words.extend(flags("--agent", &selection.agents));
    if selection.players == Players::Real {
        words.push("--agents real".to_owned());
    }
    words.extend(flags("--exclude", &selection.exclude));
    words.extend(backends::passed_on(selection));
    if selection.seed != 0 {
        words.push(format!("--seed {}", selection.seed));
    }
    words.join(" ")
}
