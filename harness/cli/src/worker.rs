//! The process of one case: a world, the engine in it, and the history as JSON lines on standard
//! output.

mod outside;
mod said;

use std::{
    io,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Context;
use chainbreak_engine::{
    backend::{Backend, Ground},
    log::{CaseClock, EventLog},
    run::{After, Fate},
};
use chainbreak_lab::worker::{Lifeline, WorldOptions};
use chainbreak_model::{
    case::Case,
    event::{Event, EventKind, Phase},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncWriteExt, BufWriter, Stdout},
    sync::{mpsc, oneshot, watch},
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
    pub(crate) keep: Keep,
    /// How long the world may take until it is ready.
    pub(crate) ready_within: Duration,
}

/// Whether the world stays after the run until its worker is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keep {
    Never,
    Always,
    /// Only where the case did not come out as expected, for which the worker asks by [`Phase::Held`].
    Failed,
}

/// What a worker is told later, as a line: end the run, heal and destroy.
pub(crate) const STOP: &str = "stop";
/// The same, after [`Phase::Held`]: the case came out as expected, and the world goes.
pub(crate) const AS_EXPECTED: &str = "as expected";
/// It did not, and the world goes.
pub(crate) const LET_GO: &str = "let go";
/// It did not, and the world stays.
pub(crate) const KEEP: &str = "keep";

/// Beside the one that began: the engine, which runs there, and the API server must not wait for each other's work. Each more costs the whole
/// catalogue a percent of its processor time, for waking each other.
const THREADS: usize = 1;

/// Where the program's futures run. Tokio panics where it gets no threads: whether there are some is tried before.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let gate = Mutex::new(());
    let started: io::Result<()> = thread::scope(|scope| {
        let _shut = gate.lock();
        let one = |_| thread::Builder::new().spawn_scoped(scope, || drop(gate.lock()));
        (0..THREADS).try_for_each(|nth| one(nth).map(drop))
    });
    started.context("could not start a thread: `ulimit -u` says how many a user may have")?;
    // What is said of a thread that waited for a processor names it. Those of futures begin first.
    let begun = AtomicUsize::new(0);
    let name = move || match begun.fetch_add(1, Ordering::Relaxed) {
        number if number < THREADS => "harness".to_owned(),
        _ => "harness-blocks".to_owned(),
    };
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name_fn(name)
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
    let (mut orders, given) = orders();
    let mut lines = lifeline.lines;
    let listening = tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            orders.take(&line);
        }
    });
    work(&order, given).await?;
    listening.abort();
    Ok(())
}

/// What a worker hears while it works.
struct Orders {
    stop: watch::Sender<bool>,
    fate: Option<oneshot::Sender<Fate>>,
}

/// What comes of it.
struct Given {
    stopped: watch::Receiver<bool>,
    fate: oneshot::Receiver<Fate>,
}

fn orders() -> (Orders, Given) {
    let (stop, stopped) = watch::channel(false);
    let (told, fate) = oneshot::channel();
    let orders = Orders {
        stop,
        fate: Some(told),
    };
    (orders, Given { stopped, fate })
}

impl Orders {
    fn take(&mut self, line: &str) {
        let fate = match line {
            AS_EXPECTED => Fate::AsExpected,
            LET_GO => Fate::Doubtful,
            KEEP => Fate::Kept,
            STOP => return self.stop(),
            _ => return,
        };
        // A run that is over does not ask.
        if let Some(told) = self.fate.take() {
            told.send(fate).unwrap_or_default();
        }
    }

    fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Runs the case, and takes down what its backend still has, whatever became of it.
async fn work(order: &Order, given: Given) -> anyhow::Result<()> {
    let backend = order.backend.open();
    let worked = run(backend.as_ref(), order, given).await;
    backend.finish().await.context("left behind")?;
    worked
}

async fn run(backend: &dyn Backend, order: &Order, given: Given) -> anyhow::Result<()> {
    let (log, events) = EventLog::new();
    let clock = log.clock();
    let after = match order.keep {
        Keep::Always => After::Keep,
        Keep::Failed => After::Told(given.fate),
        // Maps of Felix's programs take seconds, and are kept of no case that came out as expected.
        Keep::Never if order.case.loads_programs() => After::Told(given.fate),
        Keep::Never => After::Destroy,
    };
    let ground = order.backend.factory().ground();
    let writing = tokio::spawn(write(clock, events, ground));
    let (case, within, stopped) = (&order.case, order.ready_within, given.stopped);
    let artifacts = chainbreak_engine::run::run(backend, case, &log, within, stopped, after).await;
    let mut out = writing.await??;
    for artifact in artifacts {
        line(&mut out, &Line::Artifact(artifact)).await?;
    }
    out.flush().await?;
    Ok(())
}

/// Writes events until the last one of the run, flushing whenever there is nothing more to write.
async fn write(
    clock: CaseClock,
    mut events: mpsc::UnboundedReceiver<Event>,
    ground: Ground,
) -> anyhow::Result<BufWriter<Stdout>> {
    let mut out = BufWriter::new(tokio::io::stdout());
    line(&mut out, &Line::Began(clock)).await?;
    while let Some(event) = events.recv().await {
        let last = event.what == EventKind::Phase(Phase::Destroyed);
        if ground == Ground::World && event.what == EventKind::Phase(Phase::Kept) {
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
