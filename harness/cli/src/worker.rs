//! The process of one case: a world, the engine in it, and the history as JSON lines on standard
//! output.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use chainbreak_engine::{
    log::EventLog,
    run::{After, Artifact},
};
use chainbreak_lab::{Lab, worker::Lifeline};
use chainbreak_model::{
    case::Case,
    event::{Event, Phase, What},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncWriteExt, BufWriter, Stdout},
    sync::{mpsc, watch},
};

/// What a worker is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) case: Case,
    /// Keep the world after the run until told to stop.
    pub(crate) keep: bool,
    /// How long the world may take until it is ready.
    pub(crate) ready_within: Duration,
}

/// What a worker is told later, as a line: end the run, heal and raze.
pub(crate) const STOP: &str = "stop";

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    Event(Event),
    Artifact(Artifact),
}

/// Two threads: the engine and the API server must not wait for each other's work.
const THREADS: usize = 2;

/// Becomes the worker, whose world shows these paths. Called before any thread exists.
pub(crate) fn main(show: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let lifeline = chainbreak_lab::worker::enter(show).context("could not make a world")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    runtime.block_on(work(lifeline))?;
    // Threads that still wait for something end with the process.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn work(lifeline: Lifeline) -> anyhow::Result<()> {
    let Order {
        case,
        keep,
        ready_within,
    } = serde_json::from_str(&lifeline.first).context("could not read the order")?;
    let (log, events) = EventLog::new();
    let (stop, stopped) = watch::channel(false);
    let listening = tokio::spawn(listen(lifeline.lines, stop));
    let after = if keep { After::Keep } else { After::Raze };
    let writing = tokio::spawn(write(events, after));
    let lab = Lab::default();
    let artifacts =
        chainbreak_engine::run::run(&lab, &case, &log, ready_within, stopped, after).await;
    let mut out = writing.await??;
    for artifact in artifacts {
        line(&mut out, &Line::Artifact(artifact)).await?;
    }
    out.flush().await?;
    listening.abort();
    Ok(())
}

async fn listen(mut orders: mpsc::UnboundedReceiver<String>, stop: watch::Sender<bool>) {
    while let Some(order) = orders.recv().await {
        if order == STOP {
            stop.send_replace(true);
        }
    }
}

/// Writes events until the last one of the run, flushing whenever there is nothing more to write.
async fn write(
    mut events: mpsc::UnboundedReceiver<Event>,
    after: After,
) -> anyhow::Result<BufWriter<Stdout>> {
    let mut out = BufWriter::new(tokio::io::stdout());
    while let Some(event) = events.recv().await {
        let last = event.what == What::Phase(Phase::Razed);
        if after == After::Keep && event.what == What::Phase(Phase::Judged) {
            chainbreak_lab::keep::mark()?;
        }
        line(&mut out, &Line::Event(event)).await?;
        if events.is_empty() {
            out.flush().await?;
        }
        if last {
            break;
        }
    }
    Ok(out)
}

async fn line(out: &mut BufWriter<Stdout>, line: &Line) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(out.write_all(&text).await?)
}
