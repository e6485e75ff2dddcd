//! The parent's side of a case: its worker from start to end, whatever end that is.

use std::{process::ExitStatus, time::Duration};

use chainbreak_engine::{log::EventLog, run::Artifact, timeline};
use chainbreak_lab::worker::spawn_worker;
use chainbreak_model::{
    case::Case,
    event::{Event, Phase, What},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::worker::{Line, Order, STOP};

/// What a case may take beside its timeline: raising, the last requests, razing.
const BESIDE: Duration = Duration::from_secs(120);
/// What a worker may take to end a run that it was told to end.
const GRACE: Duration = Duration::from_secs(15);

/// What is left of a case when its worker is gone.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) events: Vec<Event>,
    pub(crate) artifacts: Vec<Artifact>,
}

/// Runs a case in a worker of its own. Each event is shown to `see` as it comes. The history always
/// ends with what went wrong, if anything did: a worker that died or hung is trouble, not silence.
pub(crate) async fn run(
    case: &Case,
    keep: bool,
    stop: watch::Receiver<bool>,
    mut see: impl FnMut(&Event),
) -> Ended {
    // Times of the parent's own words: the worker's clock starts a few milliseconds later.
    let (clock, _events) = EventLog::new();
    let mut ended = Ended {
        events: Vec::new(),
        artifacts: Vec::new(),
    };
    let failed = {
        let mut take = |line| match line {
            Line::Event(event) => {
                see(&event);
                ended.events.push(event);
            }
            Line::Artifact(artifact) => ended.artifacts.push(artifact),
        };
        work(case, keep, stop, &mut take).await.err()
    };
    if let Some(error) = failed {
        let event = Event {
            at_us: clock.now_us(),
            what: What::Trouble {
                text: format!("{error:#}"),
            },
        };
        see(&event);
        ended.events.push(event);
    }
    ended
}

async fn work(
    case: &Case,
    keep: bool,
    mut stop: watch::Receiver<bool>,
    take: &mut impl FnMut(Line),
) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let mut worker = spawn_worker(&program)?;
    let order = Order {
        case: case.clone(),
        keep,
    };
    worker.order(&serde_json::to_string(&order)?).await?;
    let mut deadline = Instant::now() + timeline::length(&case.timeline) + BESIDE;
    let mut stopping = false;
    let mut razed = false;
    loop {
        tokio::select! {
            line = worker.lines.next_line() => {
                let Some(line) = line? else { break };
                let line: Line = serde_json::from_str(&line)?;
                if let Line::Event(Event { what: What::Phase(phase), .. }) = &line {
                    razed |= *phase == Phase::Razed;
                    // A kept world has no deadline: a person looks at it.
                    if keep && *phase == Phase::Judged {
                        deadline += Duration::from_secs(24 * 60 * 60);
                    }
                }
                take(line);
            }
            () = wanted(&mut stop), if !stopping => {
                stopping = true;
                deadline = Instant::now() + GRACE;
                worker.order(STOP).await?;
            }
            () = sleep_until(deadline) => {
                anyhow::bail!("the worker did not end in time and was killed with its world");
            }
        }
    }
    ended_well(worker.wait().await?, razed)
}

async fn wanted(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn ended_well(status: ExitStatus, razed: bool) -> anyhow::Result<()> {
    anyhow::ensure!(status.success() && razed, "the worker died ({status})");
    Ok(())
}
