//! The process of one case: a world, the engine in it, and the history as JSON lines on standard
//! output.

mod outside;
mod said;

use std::{io, process::ExitCode, sync::Mutex, thread, time::Duration};

use anyhow::Context;
use chainbreak_engine::{
    backend::{Backend, Ground},
    log::{CaseClock, EventLog},
    run::After,
};
use chainbreak_lab::worker::{Lifeline, WorldOptions};
use chainbreak_model::{
    case::Case,
    event::{Event, EventKind, Phase},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncWriteExt, BufWriter, Stdout},
    sync::{mpsc, watch},
};

use crate::backend_choice::BackendChoice;
pub(crate) use outside::outside;
use said::Line;
pub(crate) use said::Said;

/// What a worker is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) backend: BackendChoice,
    pub(crate) case: Case,
    /// Keep the world after the run until told to stop.
    pub(crate) keep: bool,
    /// How long the world may take until it is ready.
    pub(crate) ready_within: Duration,
}

/// What a worker is told later, as a line: end the run, heal and destroy.
pub(crate) const STOP: &str = "stop";

/// Two threads: the engine and the API server must not wait for each other's work.
const THREADS: usize = 2;

/// Where the program's futures run. Tokio panics where it gets no threads: whether there are some is tried before.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let gate = Mutex::new(());
    let started: io::Result<()> = thread::scope(|scope| {
        let _shut = gate.lock();
        let one = |_| thread::Builder::new().spawn_scoped(scope, || drop(gate.lock()));
        (0..THREADS).try_for_each(|nth| one(nth).map(drop))
    });
    started.context("could not start a thread: `ulimit -u` says how many a user may have")?;
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?)
}

/// Becomes the worker, with its world. Called before any thread exists.
pub(crate) fn main(options: &WorldOptions) -> anyhow::Result<ExitCode> {
    let lifeline = chainbreak_lab::worker::enter(options).context("could not make a world")?;
    let runtime = runtime()?;
    runtime.block_on(in_world(lifeline))?;
    // Threads that still wait for something end with the process.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn in_world(lifeline: Lifeline) -> anyhow::Result<()> {
    let order: Order = serde_json::from_str(&lifeline.first).context("could not read the order")?;
    let (stop, stopped) = watch::channel(false);
    let listening = tokio::spawn(listen(lifeline.lines, stop));
    work(&order, stopped).await?;
    listening.abort();
    Ok(())
}

/// Runs the case, and takes down what its backend still has, whatever became of it.
async fn work(order: &Order, stopped: watch::Receiver<bool>) -> anyhow::Result<()> {
    let backend = order.backend.open();
    let worked = run(backend.as_ref(), order, stopped).await;
    backend.finish().await.context("left behind")?;
    worked
}

async fn run(
    backend: &dyn Backend,
    order: &Order,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let (log, events) = EventLog::new();
    let clock = log.clock();
    let keep = if order.keep {
        After::Keep
    } else {
        After::Destroy
    };
    let ground = order.backend.factory().ground();
    let writing = tokio::spawn(write(clock, events, ground, keep));
    let (case, within) = (&order.case, order.ready_within);
    let artifacts = chainbreak_engine::run::run(backend, case, &log, within, stopped, keep).await;
    let mut out = writing.await??;
    for artifact in artifacts {
        line(&mut out, &Line::Artifact(artifact)).await?;
    }
    out.flush().await?;
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
    clock: CaseClock,
    mut events: mpsc::UnboundedReceiver<Event>,
    ground: Ground,
    after: After,
) -> anyhow::Result<BufWriter<Stdout>> {
    let mut out = BufWriter::new(tokio::io::stdout());
    line(&mut out, &Line::Began(clock)).await?;
    while let Some(event) = events.recv().await {
        let last = event.what == EventKind::Phase(Phase::Destroyed);
        let world = ground == Ground::World;
        if world && after == After::Keep && event.what == EventKind::Phase(Phase::Judged) {
            chainbreak_lab::registry::mark()?;
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
