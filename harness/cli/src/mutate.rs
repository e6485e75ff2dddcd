//! `chainbreak mutate`: whether scenarios can fail. Every variant runs, in one cell of its matrix, as it
//! is, without each of its faults, and, where none of them is what breaks it, on the ground of healthy variants:
//! something has to change its verdict. What came of it is also judged by each opposite expectation.

use std::{collections::BTreeSet, process::ExitCode};

use chainbreak_model::{
    case::{Case, Expect},
    mutation::{Mutant, on_healthy_ground, opposites, without_faults},
    plan::Planned,
    verdict::{CaseVerdict, PromiseVerdict, Verdict},
};
use futures::StreamExt;
use tokio::sync::watch;

use crate::{
    args,
    backend_choice::BackendChoice,
    cases::{self, invalid},
    images::Absent,
    record::CaseHistory,
    supervise::{self, RunOptions},
    turns::Turns,
    worker::Keep,
};

/// No mutation changed a verdict.
const SURVIVED: u8 = 10;
/// Some verdict could not be had.
const INCONCLUSIVE: u8 = 11;

/// A case to try, and what it can be tried without.
struct Subject {
    case: Case,
    /// Without each of its faults.
    faults: Vec<Mutant>,
    /// On the ground of each healthy variant.
    grounds: Vec<Mutant>,
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
    let backend = BackendChoice::of(&args.selection);
    let capabilities = backend.demanded(backend.survey().await);
    let planned = cases::planned(&args.selection, &capabilities, Absent::Pulled).await?;
    let planned = crate::provide::provide(planned).await?;
    let planned = backend.rewrite_namespaces(planned).await;
    let subjects = subjects(planned);
    if subjects.is_empty() {
        return Err(invalid("nothing of this runs here"));
    }
    // Nobody stops it but a signal, with which every world ends.
    let (_stop, stopped) = watch::channel(false);
    let turns = Turns::new(backend.factory(), args.jobs);
    let options = RunOptions {
        keep: Keep::Never,
        ready_within: args
            .ready_within
            .unwrap_or_else(|| backend.factory().ready_within()),
        backend: &backend,
        given_up: &stopped,
        turns: &turns,
    };
    let count = subjects.len();
    let mut worst = Outcome::Well;
    let mut bad = 0;
    let mut ended = futures::stream::iter(subjects)
        .map(|subject| attempt(subject, options, stopped.clone()))
        .buffer_unordered(turns.most());
    while let Some(outcomes) = ended.next().await {
        for (outcome, text) in outcomes {
            crate::tell(&format!("{}\n", chainbreak_report::text::shown(&text)))?;
            bad += usize::from(outcome != Outcome::Well);
            worst = worst.max(outcome);
        }
    }
    crate::tell(&format!(
        "{count} cases, {bad} findings that are not well\n"
    ))?;
    Ok(match worst {
        Outcome::Well => ExitCode::SUCCESS,
        Outcome::Inconclusive => ExitCode::from(INCONCLUSIVE),
        Outcome::Bad => ExitCode::from(SURVIVED),
    })
}

/// The first cell of each variant.
fn subjects(planned: Vec<Planned>) -> Vec<Subject> {
    let cases = planned.into_iter().filter_map(|planned| match planned {
        Planned::Run(case) => Some(*case),
        Planned::Skip(_) => None,
    });
    let cases: Vec<Case> = cases.collect();
    let mut seen = BTreeSet::new();
    let first = cases
        .iter()
        .filter(|it| seen.insert((it.scenario.clone(), it.variant.clone())));
    let subject = |case: &Case| Subject {
        faults: without_faults(case),
        grounds: on_healthy_ground(case, &cases),
        case: case.clone(),
    };
    first.map(subject).collect()
}

/// Runs a case as it is, and without what may be what breaks it, until something is seen to be; what is to be
/// said of it. A step may be there to show that it changes nothing, but something has to.
async fn attempt(
    subject: Subject,
    options: RunOptions<'_>,
    stopped: watch::Receiver<bool>,
) -> Vec<(Outcome, String)> {
    let case = &subject.case;
    let id = case.id();
    let mut said = as_it_is(case, options, &stopped).await;
    if case.expect == Expect::Healthy {
        return said;
    }
    let mut noticed = false;
    for mutant in &subject.faults {
        noticed |= tried(&id, mutant, options, &stopped, &mut said).await;
    }
    for mutant in &subject.grounds {
        if noticed {
            break;
        }
        noticed = tried(&id, mutant, options, &stopped, &mut said).await;
    }
    if !noticed {
        let text =
            format!("SURVIVED         {id}: nothing that was taken from it changed its verdict");
        said.push((Outcome::Bad, text));
    }
    said
}

/// What a case comes to as it is, and by each opposite expectation.
async fn as_it_is(
    case: &Case,
    options: RunOptions<'_>,
    stopped: &watch::Receiver<bool>,
) -> Vec<(Outcome, String)> {
    let id = case.id();
    let opposites = opposites(case);
    let history = CaseHistory::of(case).judged_by(opposites.iter().map(|it| &it.case));
    let history = run(case, options, stopped, history).await;
    let verdict = history.verdict();
    let outcome = match verdict.case {
        CaseVerdict::AsExpected => Outcome::Well,
        CaseVerdict::Inconclusive => Outcome::Inconclusive,
        CaseVerdict::NotAsExpected => Outcome::Bad,
    };
    let found = format!("{:<17}{id} as it is", verdict.case);
    if outcome != Outcome::Well {
        return vec![(outcome, format!("{found}: {}", seen(&verdict)))];
    }
    let found = (outcome, found);
    let survivors = opposites
        .iter()
        .zip(history.other_verdicts())
        .filter(|(_, verdict)| verdict.case == CaseVerdict::AsExpected)
        .map(|(it, _)| (Outcome::Bad, format!("SURVIVED         {id} {}", it.what)));
    std::iter::once(found).chain(survivors).collect()
}

/// Runs a mutant; whether its verdict is another.
async fn tried(
    id: &str,
    Mutant { what, case }: &Mutant,
    options: RunOptions<'_>,
    stopped: &watch::Receiver<bool>,
    said: &mut Vec<(Outcome, String)>,
) -> bool {
    let history = run(case, options, stopped, CaseHistory::of(case)).await;
    let verdict = history.verdict();
    said.push(match verdict.case {
        CaseVerdict::AsExpected => (Outcome::Well, format!("no matter        {id} {what}")),
        CaseVerdict::NotAsExpected => (Outcome::Well, format!("noticed          {id} {what}")),
        CaseVerdict::Inconclusive => {
            let text = format!("inconclusive     {id} {what}: {}", seen(&verdict));
            (Outcome::Well, text)
        }
    });
    verdict.case == CaseVerdict::NotAsExpected
}

async fn run<'a>(
    case: &Case,
    options: RunOptions<'_>,
    stop: &watch::Receiver<bool>,
    mut history: CaseHistory<'a>,
) -> CaseHistory<'a> {
    let ran = async {
        let place = options.turns.place(case).await?;
        let start = options.turns.start().await?;
        supervise::run(case, options, (place, start), stop.clone(), &mut history).await
    };
    if let Err(error) = ran.await {
        history.ended_by(&error);
    }
    history
}

/// Why a verdict is what it is.
fn seen(verdict: &Verdict) -> String {
    let promises = verdict
        .promises
        .iter()
        .filter_map(|(name, judged)| match &judged.verdict {
            PromiseVerdict::Unknown { cause } => Some(format!("{name}: {cause}")),
            PromiseVerdict::Broken(evidence) => Some(format!("{name} broken: {evidence}")),
            PromiseVerdict::Kept(_) => None,
        });
    let all: Vec<String> = verdict.trouble.iter().cloned().chain(promises).collect();
    if all.is_empty() {
        return "every promise is kept".to_owned();
    }
    all.join("; ")
}
