//! `chainbreak mutate`: whether scenarios can fail. Every variant runs, in one cell of its matrix, as it
//! is and without each of its faults; what came of it is also judged by each opposite expectation.

use std::{collections::BTreeSet, process::ExitCode};

use chainbreak_engine::cluster::Backend;
use chainbreak_lab::Lab;
use chainbreak_model::{
    case::Case,
    event::Event,
    judge,
    mutation::{Mutant, opposites, without_faults},
    plan::Planned,
    verdict::CaseVerdict,
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

/// The first cell of each variant, as it is and without each fault.
fn trials(planned: Vec<Planned>) -> Vec<Trial> {
    let mut seen = BTreeSet::new();
    let cases = planned.into_iter().filter_map(|planned| match planned {
        Planned::Run(case) => Some(*case),
        Planned::Skip(_) => None,
    });
    let first = cases.filter(|it| seen.insert((it.scenario.clone(), it.variant.clone())));
    first
        .flat_map(|case| {
            let mutants = without_faults(&case).into_iter();
            let mutants = mutants.map(|Mutant { what, case }| Trial {
                case,
                change: Some(what),
            });
            let mutants: Vec<Trial> = mutants.collect();
            let as_it_is = Trial { case, change: None };
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
        return std::iter::once(as_it_is).chain(survivors).collect();
    };
    vec![match verdict.case {
        CaseVerdict::AsExpected => (Outcome::Bad, survived(&id, change)),
        CaseVerdict::NotAsExpected => (Outcome::Well, format!("noticed          {id} {change}")),
        CaseVerdict::Inconclusive => {
            let why = verdict.trouble.join("; ");
            let text = format!("inconclusive     {id} {change}: {why}");
            (Outcome::Inconclusive, text)
        }
    }]
}

fn survived(id: &str, change: &str) -> String {
    format!("SURVIVED         {id} {change}")
}
