//! `chainbreak parity`: the same cases on two backends, or in two runs, and where their verdicts differ.

use std::process::ExitCode;

use chainbreak_lab::machine;
use chainbreak_model::plan::{Planned, Skipped};
use chainbreak_report::{
    Ended, Run,
    parity::{Side, compare, exit_code, render},
    summary::summaries,
};

use crate::{
    args::{
        self, Format,
        course::{Keeping, Repetition, Told},
        selection::Selection,
    },
    backend_choice::BackendChoice,
    cases::{self, invalid},
    images::Absent,
    record::Recorded,
    registry::Registered,
    reports, run,
};

/// Compares, and succeeds when all that both have is the same.
pub(crate) async fn parity(args: args::Parity) -> anyhow::Result<ExitCode> {
    match (args.backends.as_slice(), args.selection.named.all()) {
        ([], [one, other]) => {
            let runs = [reports::read(one)?.0, reports::read(other)?.0];
            let names = [one, other].map(|path| path.display().to_string());
            tell(&runs, &names)
        }
        ([], _) => Err(invalid(
            "parity is between two runs, or of scenarios on two backends: --backends lab,kind",
        )),
        ([one, other], _) if one != other => backends(&args, [*one, *other]).await,
        _ => Err(invalid("--backends: name two of them, as lab,kind")),
    }
}

/// Runs what both backends can run on one after the other, and compares.
async fn backends(args: &args::Parity, backends: [Registered; 2]) -> anyhow::Result<ExitCode> {
    for text in machine::undo_left()? {
        crate::note(&format!("of a run that was killed: {text}"));
    }
    let names = backends.map(String::from);
    let [one, other] = backends.map(|it| on(args, it));
    let plans = [plan(&one.selection).await?, plan(&other.selection).await?];
    let shared = [
        without(&plans[0], &plans[1], &names[1]),
        without(&plans[1], &plans[0], &names[0]),
    ];
    let mut runs = Vec::new();
    for ((args, planned), name) in [one, other].iter().zip(shared).zip(&names) {
        let count = planned.iter().filter(|it| runs_here(it)).count();
        crate::note(&format!("{name}: {count} cases that both can run"));
        let backend = BackendChoice::of(&args.selection);
        let recorded = run::perform(args, &backend, planned).await?;
        if let Err(code) = run::reported(&recorded, false) {
            return Ok(code);
        }
        let Recorded { run, folder, .. } = recorded;
        crate::note(&format!("{name}: {}", folder.display()));
        if run.ended != Some(Ended::Complete) {
            return Ok(ExitCode::from(run::INTERRUPTED));
        }
        runs.push(run);
    }
    tell(&runs, &names)
}

/// What `run` would be given for one of the backends.
fn on(args: &args::Parity, backend: Registered) -> args::Run {
    args::Run {
        selection: Selection {
            backend,
            ..args.selection.clone()
        },
        jobs: args.jobs,
        repetition: Repetition::default(),
        out: args.out.clone(),
        allow_host_changes: false,
        allow_ebpf: false,
        keeping: Keeping::default(),
        ready_within: args.ready_within,
        require: Vec::new(),
        told: Told::default(),
        format: Format::Human,
    }
}

async fn plan(selection: &Selection) -> anyhow::Result<Vec<Planned>> {
    let backend = BackendChoice::of(selection);
    let capabilities = backend.demanded(backend.survey().await);
    cases::planned(selection, &capabilities, Absent::Pulled).await
}

fn runs_here(planned: &Planned) -> bool {
    matches!(planned, Planned::Run(_))
}

/// A plan without what the other backend does not run: that is skipped, and says why.
fn without(plan: &[Planned], other: &[Planned], name: &str) -> Vec<Planned> {
    let shared = plan.iter().cloned().map(|mine| {
        let id = mine.id();
        let theirs = other.iter().find(|it| it.id() == id);
        let why = match (runs_here(&mine), theirs) {
            (false, _) | (true, Some(Planned::Run(_))) => return mine,
            (true, Some(Planned::Skip(skipped))) => skipped.reason(),
            (true, None) => "it has no such case".to_owned(),
        };
        Planned::Skip(Skipped {
            id,
            outside: vec![format!("{name} does not run it: {why}")],
            missing: Vec::new(),
        })
    });
    shared.collect()
}

fn tell(runs: &[Run], names: &[String; 2]) -> anyhow::Result<ExitCode> {
    let summaries: Vec<_> = runs.iter().map(summaries).collect();
    let side = |index: usize| Side {
        name: &names[index],
        summaries: &summaries[index],
    };
    let sides = [side(0), side(1)];
    let compared = compare(sides);
    crate::tell(&render(sides, &compared, reports::terminal()))?;
    Ok(ExitCode::from(exit_code(&compared)))
}
