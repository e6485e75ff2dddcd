//! The parent's side of a case: its worker from start to end, whatever end that is.

use std::{path::Path, process::ExitStatus, time::Duration};

use chainbreak_engine::{
    log::EventLog,
    run::{Artifact, kept, stopped},
    timeline,
};
#[cfg(feature = "clusters")]
use chainbreak_lab::worker::spawn_other;
use chainbreak_lab::{
    machine::{Changed, Machine},
    worker::spawn_worker,
};
use chainbreak_model::{
    case::Case,
    event::{Event, EventKind, Phase},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    backend_choice::BackendChoice,
    worker::{Line, Order, STOP},
};

/// This program, also when its file was rebuilt meanwhile.
const SELF: &str = "/proc/self/exe";
/// What was asked for beside the case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunOptions<'a> {
    /// What raises the cluster.
    pub(crate) backend: &'a BackendChoice,
    /// Keep the world after the run.
    pub(crate) keep: bool,
    /// How long the world may take until it is ready.
    pub(crate) ready_within: Duration,
}

/// How long a world is kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// What a case may take beside its timeline and until it is ready: the last requests, the end of its cluster.
const BESIDE: Duration = Duration::from_secs(60);

/// Runs a case in a worker of its own and returns the files to keep. Each event is given to `see` as it
/// comes. The history always ends with what went wrong, if anything did: a worker that died or hung is
/// trouble, not silence.
pub(crate) async fn run(
    case: &Case,
    options: RunOptions<'_>,
    stop: watch::Receiver<bool>,
    mut see: impl FnMut(Event),
) -> Vec<Artifact> {
    // Times of the parent's own words: the worker's clock starts a few milliseconds later.
    let (clock, _events) = EventLog::new();
    let mut artifacts = Vec::new();
    let mut take = |line| match line {
        Line::Event(event) => see(event),
        Line::Artifact(artifact) => artifacts.push(artifact),
    };
    let event = |what| {
        let at_us = clock.now_us();
        Line::Event(Event { at_us, what })
    };
    let trouble = |error: anyhow::Error| {
        let text = format!("{error:#}");
        event(EventKind::Trouble { text })
    };
    if *stop.borrow() {
        let why = anyhow::anyhow!("not started: the run was interrupted");
        take(trouble(why));
        return artifacts;
    }
    let changed = match change(case) {
        Ok(changed) => changed,
        Err(error) => {
            take(trouble(error));
            return artifacts;
        }
    };
    if let Some(changed) = &changed {
        take(event(EventKind::Fact {
            name: "this machine's settings".to_owned(),
            value: changed.told(),
        }));
    }
    let worked = work(case, options, stop, &mut take).await;
    if let Err(error) = worked {
        take(trouble(error));
    }
    match changed.map_or(Ok(Vec::new()), Changed::set_back) {
        Ok(said) => said
            .into_iter()
            .for_each(|text| take(event(EventKind::Step { text }))),
        Err(error) => take(trouble(error.into())),
    }
    artifacts
}

/// The machine as the case asks for it, where it asks for anything.
fn change(case: &Case) -> anyhow::Result<Option<Changed>> {
    let settings = &case.cluster.host_sysctls;
    if settings.is_empty() {
        return Ok(None);
    }
    Ok(Some(Machine::default().change(settings)?))
}

async fn work(
    case: &Case,
    options: RunOptions<'_>,
    stop: watch::Receiver<bool>,
    take: &mut impl FnMut(Line),
) -> anyhow::Result<()> {
    let mut worker = match options.backend {
        BackendChoice::Lab => spawn_worker(Path::new(SELF), &case.cluster.agent_paths())?,
        #[cfg(feature = "clusters")]
        BackendChoice::Kind(_) | BackendChoice::Cluster(_) => {
            spawn_other(Path::new(SELF), &["--outside"])?
        }
    };
    let order = Order {
        backend: options.backend.clone(),
        case: case.clone(),
        keep: options.keep,
        ready_within: options.ready_within,
    };
    worker.order(&serde_json::to_string(&order)?).await?;
    let mut deadline =
        Instant::now() + options.ready_within + length(case) + BESIDE + options.backend.grace();
    let mut stopping = false;
    let mut destroyed = false;
    loop {
        tokio::select! {
            line = worker.lines.next_line() => {
                let Some(line) = line? else { break };
                let line: Line = serde_json::from_str(&line)?;
                if let Line::Event(event) = &line {
                    destroyed |= event.what == EventKind::Phase(Phase::Destroyed);
                    // A kept world has no deadline: a person looks at it.
                    if options.keep && event.what == kept() {
                        deadline += KEPT;
                    }
                }
                take(line);
            }
            () = stopped(stop.clone()), if !stopping => {
                stopping = true;
                deadline = Instant::now() + options.backend.grace();
                worker.order(STOP).await?;
            }
            () = sleep_until(deadline) => {
                anyhow::bail!("the worker did not end in time and was killed with its world");
            }
        }
    }
    ended_well(worker.wait().await?, destroyed)
}

/// The timeline, and the requests that may be under way before and after it.
fn length(case: &Case) -> Duration {
    let timeouts = case.traffic.values().map(|traffic| traffic.timeout);
    timeline::length(&case.timeline) + 2 * timeouts.max().unwrap_or_default()
}

fn ended_well(status: ExitStatus, destroyed: bool) -> anyhow::Result<()> {
    anyhow::ensure!(status.success() && destroyed, "the worker died ({status})");
    Ok(())
}
