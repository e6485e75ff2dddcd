//! The parent's side of a case: its worker from start to end, whatever end that is.

use std::{io::ErrorKind, path::Path, process::ExitStatus, time::Duration};

use chainbreak_engine::{
    backend::{BackendFactory, Ground},
    log::CaseClock,
    run::{Artifact, stopped},
    timeline,
};
use chainbreak_lab::{
    machine::{Changed, Machine},
    worker::{Worker, WorldOptions, spawn_other, spawn_worker},
};
use chainbreak_model::{
    case::{Case, Step},
    event::{Event, EventKind, Phase},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{Instant, sleep_until},
};

use crate::{
    backend_choice::BackendChoice,
    record::{CaseHistory, Room},
    worker::{Order, STOP, Said},
};

/// What is said of a case that an interrupted run had not begun.
const NOT_STARTED: &str = "not started: the run was interrupted";
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
    /// Whether nothing is to be waited for any more.
    pub(crate) given_up: &'a watch::Receiver<bool>,
    /// What cases wait for that run side by side.
    pub(crate) turns: &'a Turns,
}

/// What not every case may have at a time: two that take all of a machine leave each other too little to tell.
#[derive(Debug)]
pub(crate) struct Turns {
    /// A place for each cluster that may start: [`BackendFactory::starts`].
    starts: Semaphore,
    /// One case fills conntrack tables.
    fills: Semaphore,
}

impl Turns {
    pub(crate) fn new(factory: &dyn BackendFactory) -> Self {
        Self {
            starts: Semaphore::new(factory.starts()),
            fills: Semaphore::new(1),
        }
    }

    /// When the case may start: what it holds to its end, and until it is ready.
    async fn of(
        &self,
        steps: &[Step],
    ) -> anyhow::Result<(Option<SemaphorePermit<'_>>, SemaphorePermit<'_>)> {
        let fill = if steps.iter().any(Step::fills_conntrack) {
            Some(self.fills.acquire().await?)
        } else {
            None
        };
        Ok((fill, self.starts.acquire().await?))
    }
}

/// So many bytes of files are kept of a case, beside its history.
const ARTIFACTS: usize = 64 << 20;
/// So many bytes are taken over of a world: events, and files. No case of the catalogue tells 1 MiB.
const TAKEN: usize = 512 << 20;
/// How long a world is kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// A cluster that is not ready after this waits for something, and leaves its place to the next.
const STARTING: Duration = Duration::from_secs(2);
/// What a case may take beside its timeline and until it is ready: the last requests, the end of its cluster.
const BESIDE: Duration = Duration::from_secs(60);

/// Runs a case in a worker of its own, records what happens, and returns the files to keep. The history always ends with
/// what went wrong, if anything did: a worker that died or hung is trouble, not silence.
pub(crate) async fn run(
    case: &Case,
    options: RunOptions<'_>,
    stop: watch::Receiver<bool>,
    history: &mut CaseHistory<'_>,
) -> anyhow::Result<Vec<Artifact>> {
    let mut parent = Parent {
        clock: CaseClock::starting_now(),
        history,
        artifacts: Vec::new(),
        taken: 0,
    };
    if *stop.borrow() {
        parent.trouble(&anyhow::anyhow!(NOT_STARTED)).await?;
        return Ok(parent.artifacts);
    }
    let changed = match change(case) {
        Ok(changed) => changed,
        Err(error) => {
            parent.trouble(&error).await?;
            return Ok(parent.artifacts);
        }
    };
    if let Some(changed) = &changed {
        let name = "this machine's settings".to_owned();
        let value = changed.told();
        parent.event(EventKind::Fact { name, value }).await?;
    }
    let worked = work(case, options, stop, &mut parent).await;
    // Before anything is written: that may have to wait for the disk.
    let set_back = changed.map_or(Ok(Vec::new()), Changed::set_back);
    if let Err(error) = worked {
        parent.trouble(&error).await?;
    }
    match set_back {
        Ok(said) => {
            for text in said {
                parent.event(EventKind::Step { text }).await?;
            }
        }
        Err(error) => parent.trouble(&error.into()).await?,
    }
    Ok(parent.artifacts)
}

/// What the parent takes over from a worker, and adds to it.
struct Parent<'a, 'r> {
    clock: CaseClock,
    history: &'a mut CaseHistory<'r>,
    artifacts: Vec<Artifact>,
    /// How many bytes were taken over.
    taken: usize,
}

impl Parent<'_, '_> {
    /// Takes over a line of the worker; the phase that it says was reached.
    async fn take(&mut self, room: Room<'_>, line: &str) -> anyhow::Result<Option<Phase>> {
        self.taken += line.len();
        let mib = TAKEN >> 20;
        anyhow::ensure!(
            self.taken <= TAKEN,
            "what happens in the world is told in more than {mib} MiB: it was ended"
        );
        match serde_json::from_str(line)? {
            Said::Began(clock) => self.clock = clock,
            Said::Artifact(artifact) => {
                let name = &artifact.name;
                anyhow::ensure!(is_plain(name), "the worker names a file {name:?}");
                keep(&mut self.artifacts, artifact);
            }
            Said::Event(event) => {
                return self.history.raw(room, event).await;
            }
        }
        Ok(None)
    }

    /// Adds something that happens now.
    async fn event(&mut self, what: EventKind) -> anyhow::Result<()> {
        let at_us = self.clock.now_us();
        self.history.event(&Event { at_us, what }).await
    }

    async fn trouble(&mut self, error: &anyhow::Error) -> anyhow::Result<()> {
        let text = crate::in_full(error);
        self.event(EventKind::Trouble { text }).await
    }
}

/// Whether a file of that name lies in the folder in which it is made.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    name.chars().all(plain) && name.chars().any(|c| c != '.')
}

/// Keeps a file of the worker, or says that it does not.
fn keep(artifacts: &mut Vec<Artifact>, mut artifact: Artifact) {
    let kept: usize = artifacts.iter().map(|it| it.text.len()).sum();
    let bytes = artifact.text.len();
    if kept + bytes > ARTIFACTS {
        artifact.text = format!("left out: {bytes} bytes, and {ARTIFACTS} of a case are kept\n");
    }
    artifacts.push(artifact);
}

/// The machine as the case asks for it, where it asks for anything.
fn change(case: &Case) -> anyhow::Result<Option<Changed>> {
    let settings = &case.cluster.host_sysctls;
    if settings.is_empty() {
        return Ok(None);
    }
    Ok(Some(Machine::default().change(settings)?))
}

/// The worker of a case, with its order.
async fn worker_of(case: &Case, options: RunOptions<'_>) -> anyhow::Result<Worker> {
    let factory = options.backend.factory();
    let world = WorldOptions {
        show: case.cluster.agent_paths(),
        ebpf: options.backend.has_ebpf(),
    };
    let mut worker = match factory.ground() {
        Ground::World => spawn_worker(Path::new(SELF), &world)?,
        Ground::Real => spawn_other(Path::new(SELF), &["--outside"])?,
    };
    let order = Order {
        backend: options.backend.clone(),
        case: case.clone(),
        keep: options.keep,
        ready_within: options.ready_within,
    };
    let ordered = worker.order(&serde_json::to_string(&order)?).await;
    // A worker that could not make its world does not read: its end says why.
    ordered.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })?;
    Ok(worker)
}

async fn work(
    case: &Case,
    options: RunOptions<'_>,
    stop: watch::Receiver<bool>,
    parent: &mut Parent<'_, '_>,
) -> anyhow::Result<()> {
    let factory = options.backend.factory();
    let (_fill, start) = tokio::select! {
        turn = options.turns.of(&case.timeline) => turn?,
        () = stopped(stop.clone()) => anyhow::bail!(NOT_STARTED),
    };
    let mut start = Some(start);
    let started = Instant::now() + STARTING;
    let mut worker = worker_of(case, options).await?;
    let mut deadline =
        Instant::now() + options.ready_within + length(case) + BESIDE + factory.grace();
    let mut stopping = false;
    let mut destroyed = false;
    loop {
        let room = parent.history.room();
        tokio::select! {
            // A worker whose events cannot be written yet waits.
            (room, line) = async { (room.await, worker.lines.next_line().await) } => {
                let Some(line) = line? else { break };
                match parent.take(room, &line).await? {
                    // A kept world has no deadline: a person looks at it.
                    Some(Phase::Kept) => deadline += KEPT,
                    Some(Phase::Ready) => {
                        start = None;
                        deadline = Instant::now() + length(case) + BESIDE + factory.grace();
                    }
                    Some(Phase::Destroyed) => destroyed = true,
                    _ => {}
                }
            }
            () = sleep_until(started), if start.is_some() => start = None,
            () = stopped(stop.clone()), if !stopping => {
                stopping = true;
                deadline = Instant::now() + factory.grace();
                worker.order(STOP).await?;
            }
            () = stopped(options.given_up.clone()) => {
                anyhow::bail!("given up: the worker was killed with its world");
            }
            () = sleep_until(deadline) => {
                anyhow::bail!("the worker did not end in time and was killed with its world");
            }
        }
    }
    let status = worker.wait().await?;
    ended_well(status, &worker.last_words().await, destroyed)
}

/// The timeline, and the requests that may be under way before and after it.
fn length(case: &Case) -> Duration {
    let timeouts = case.traffic.values().map(|traffic| traffic.timeout);
    timeline::length(&case.timeline) + 2 * timeouts.max().unwrap_or_default()
}

fn ended_well(status: ExitStatus, words: &str, destroyed: bool) -> anyhow::Result<()> {
    if status.success() && destroyed {
        return Ok(());
    }
    anyhow::ensure!(
        words.is_empty(),
        "the worker died ({status}); it said last:\n{words}"
    );
    anyhow::bail!("the worker died ({status})")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use chainbreak_lab::LabFactory;
    use chainbreak_model::case::{Entries, Fault};
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn of_cases_that_fill_conntrack_one_runs_at_a_time_and_others_beside_it() {
        let fill = Fault::FillConntrack {
            node: None,
            entries: Entries::Number(1000),
        };
        let filling = [Step::Fault {
            fault: fill,
            duration: None,
        }];
        let turns = Turns::new(&LabFactory);
        let (first, started) = turns.of(&filling).await.unwrap();
        drop(started);
        assert!(turns.of(&filling).now_or_never().is_none());
        assert!(turns.of(&[]).now_or_never().is_some());
        drop(first);
        assert!(turns.of(&filling).now_or_never().is_some());
    }

    #[test]
    fn a_kept_file_lies_in_the_folder_of_its_case_whatever_it_is_called() {
        assert!(is_plain("n1.iptables-save") && is_plain("n1-kube-proxy.log"));
        for name in ["", ".", "..", "../x", "/etc/x", "a/b", "a\0b", "\u{1b}[2J"] {
            assert!(!is_plain(name), "{name:?}");
        }
    }

    #[test]
    fn why_a_worker_died_is_told_in_its_own_words() {
        let died = ExitStatus::from_raw(1 << 8);
        let told = |words, destroyed| ended_well(died, words, destroyed).unwrap_err().to_string();
        let full = "could not make a place: No space left on device";
        assert_eq!(
            told(full, false),
            format!("the worker died (exit status: 1); it said last:\n{full}")
        );
        assert_eq!(told("", true), "the worker died (exit status: 1)");
        assert!(ended_well(ExitStatus::from_raw(0), full, false).is_err());
        assert!(ended_well(ExitStatus::from_raw(0), full, true).is_ok());
    }

    #[test]
    fn what_a_worker_keeps_is_bounded_and_what_is_left_out_is_said() {
        let mut kept = Vec::new();
        let half = "x".repeat(ARTIFACTS / 2 + 1);
        for name in ["one", "two"] {
            let text = half.clone();
            let name = name.to_owned();
            keep(&mut kept, Artifact { name, text });
        }
        let left_out = format!(
            "left out: {} bytes, and {ARTIFACTS} of a case are kept\n",
            half.len()
        );
        let kept: Vec<_> = kept.into_iter().map(|it| it.text).collect();
        assert!(kept == [half, left_out]);
    }
}
