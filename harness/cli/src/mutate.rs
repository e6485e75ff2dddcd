//! `chainbreak mutate`: whether scenarios can fail. Every variant runs, in one cell of its matrix, as it
//! is and without each of its faults, or, where what breaks it is no step, on the ground of each healthy variant;
//! what came of it is also judged by each opposite expectation.

use std::{collections::BTreeSet, process::ExitCode};

use chainbreak_engine::cluster::Backend;
use chainbreak_lab::Lab;
use chainbreak_model::{
    case::{Case, Expect},
    event::Event,
    judge,
    mutation::{Mutant, on_healthy_ground, opposites, without_faults},
    plan::Planned,
    verdict::{CaseVerdict, PromiseVerdict, Verdict},
};
use futures::StreamExt;
use tokio::sync::watch;

use crate::{
    args,
    cases::{self, invalid},
    run::default_jobs,
    supervise::{self, Terms},
};

/// Some mutation changed no verdict.
const SURVIVED: u8 = 10;
/// Some verdict could not be had.
const INCONCLUSIVE: u8 = 11;

/// A case to run, and what of it is changed, if anything is.
struct Trial {
    case: Case,
    change: Option<String>,
    /// Whether anything can be changed that may be what breaks it.
    blamed: bool,
}

/// What became of what is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// As it must be.
    Well,
    Inconclusive,
    /// A mutation that changed nothing, or a case that is not as expected as it is.
    Bad,
}

/// Runs, and says what survived.
pub(crate) async fn mutate(args: args::Mutate) -> anyhow::Result<ExitCode> {
    let capabilities = Lab::default().survey().await;
    let planned = cases::planned(&args.selection, &capabilities).await?;
    let trials = trials(planned);
    if trials.is_empty() {
        return Err(invalid("nothing of this runs here"));
    }
    let terms = Terms {
        keep: false,
        ready_within: args.ready_within,
    };
    // Nobody stops it but a signal, with which every world ends.
    let (_stop, stopped) = watch::channel(false);
    let jobs = args.jobs.map_or_else(default_jobs, usize::from);
    let count = trials.len();
    let mut worst = Outcome::Well;
    let mut bad = 0;
    let mut ended = futures::stream::iter(trials)
        .map(|trial| attempt(trial, terms, stopped.clone()))
        .buffer_unordered(jobs);
    while let Some(outcomes) = ended.next().await {
        for (outcome, text) in outcomes {
            crate::tell(&format!("{text}\n"))?;
            bad += usize::from(outcome != Outcome::Well);
            worst = worst.max(outcome);
        }
    }
    crate::tell(&format!(
        "{count} runs, {bad} mutations or cases that are not well\n"
    ))?;
    Ok(match worst {
        Outcome::Well => ExitCode::SUCCESS,
        Outcome::Inconclusive => ExitCode::from(INCONCLUSIVE),
        Outcome::Bad => ExitCode::from(SURVIVED),
    })
}

/// The first cell of each variant, as it is and without what breaks it.
fn trials(planned: Vec<Planned>) -> Vec<Trial> {
    let mut seen = BTreeSet::new();
    let cases = planned.into_iter().filter_map(|planned| match planned {
        Planned::Run(case) => Some(*case),
        Planned::Skip(_) => None,
    });
    let cases: Vec<Case> = cases.collect();
    let first = cases
        .iter()
        .filter(|it| seen.insert((it.scenario.clone(), it.variant.clone())));
    first
        .flat_map(|case| {
            let mut mutants = without_faults(case);
            if mutants.is_empty() {
                mutants = on_healthy_ground(case, &cases);
            }
            let as_it_is = Trial {
                case: case.clone(),
                change: None,
                blamed: !mutants.is_empty(),
            };
            let mutants = mutants.into_iter().map(|Mutant { what, case }| Trial {
                case,
                change: Some(what),
                blamed: true,
            });
            std::iter::once(as_it_is).chain(mutants)
        })
        .collect()
}

/// Runs a trial; what is to be said of it.
async fn attempt(
    trial: Trial,
    terms: Terms,
    stopped: watch::Receiver<bool>,
) -> Vec<(Outcome, String)> {
    let mut history: Vec<Event> = Vec::new();
    supervise::run(&trial.case, terms, stopped, |event| history.push(event)).await;
    let (case, id) = (&trial.case, trial.case.id());
    let verdict = judge(case, &history);
    let Some(change) = &trial.change else {
        let outcome = match verdict.case {
            CaseVerdict::AsExpected => Outcome::Well,
            CaseVerdict::Inconclusive => Outcome::Inconclusive,
            CaseVerdict::NotAsExpected => Outcome::Bad,
        };
        let as_it_is = (outcome, format!("{:<17}{id} as it is", verdict.case));
        let opposites = opposites(case).into_iter();
        let survivors =
            opposites.filter(|it| judge(&it.case, &history).case == CaseVerdict::AsExpected);
        let survivors = survivors.map(|it| (Outcome::Bad, survived(&id, &it.what)));
        let unproven = (case.expect != Expect::Healthy && !trial.blamed).then(|| {
            let why = "no fault to take away, no healthy variant that runs here";
            (Outcome::Bad, format!("UNPROVEN         {id}: {why}"))
        });
        return std::iter::once(as_it_is)
            .chain(survivors)
            .chain(unproven)
            .collect();
    };
    vec![match verdict.case {
        CaseVerdict::AsExpected => (Outcome::Bad, survived(&id, change)),
        CaseVerdict::NotAsExpected => (Outcome::Well, format!("noticed          {id} {change}")),
        CaseVerdict::Inconclusive => {
            let why = doubts(&verdict);
            let text = format!("inconclusive     {id} {change}: {why}");
            (Outcome::Inconclusive, text)
        }
    }]
}

/// Why a verdict says nothing.
fn doubts(verdict: &Verdict) -> String {
    let unknown = verdict
        .promises
        .iter()
        .filter_map(|(name, judged)| match &judged.verdict {
            PromiseVerdict::Unknown { cause } => Some(format!("{name}: {cause}")),
            PromiseVerdict::Kept(_) | PromiseVerdict::Broken(_) => None,
        });
    let all: Vec<String> = verdict.trouble.iter().cloned().chain(unknown).collect();
    all.join("; ")
}

fn survived(id: &str, change: &str) -> String {
    format!("SURVIVED         {id} {change}")
}
