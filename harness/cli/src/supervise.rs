//! The parent's side of a case: its worker from start to end, whatever end that is.

use std::{
    io::{self, ErrorKind},
    path::Path,
    process::ExitStatus,
    time::Duration,
};

use chainbreak_engine::{
    backend::Ground,
    log::CaseClock,
    run::{Artifact, stopped},
    timeline,
};
use chainbreak_lab::{
    machine::{Changed, Machine},
    registry::tools,
    worker::{Worker, WorldOptions, spawn_other, spawn_worker},
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
    record::{CaseHistory, Room},
    turns::{Place, Start, Turns},
    worker::{AS_EXPECTED, KEEP, Keep, LET_GO, Order, STOP, Said},
};

/// This program, also when its file was rebuilt meanwhile.
const SELF: &str = "/proc/self/exe";

/// What was asked for beside the case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunOptions<'a> {
    /// What raises the cluster.
    pub(crate) backend: &'a BackendChoice,
    /// Whether the world is kept after the run.
    pub(crate) keep: Keep,
    /// How long the world may take until it is ready.
    pub(crate) ready_within: Duration,
    /// Whether nothing is to be waited for any more.
    pub(crate) given_up: &'a watch::Receiver<bool>,
    /// What the cases of a run have in common.
    pub(crate) turns: &'a Turns,
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

/// Runs a case that has a place and may start, in a worker of its own, records what happens, and returns the files to keep, and its
/// place where it has it still.
/// The history always ends with what went wrong, if anything did: a worker that died or hung is trouble, not silence.
pub(crate) async fn run<'a>(
    case: &Case,
    options: RunOptions<'_>,
    (place, start): (Place<'a>, Start<'_>),
    stop: watch::Receiver<bool>,
    history: &mut CaseHistory<'_>,
) -> anyhow::Result<(Vec<Artifact>, Option<Place<'a>>)> {
    let mut parent = Parent {
        place: Some(place),
        clock: CaseClock::starting_now(),
        history,
        artifacts: Vec::new(),
        taken: 0,
    };
    in_a_worker(case, options, start, stop, &mut parent).await?;
    Ok((parent.artifacts, parent.place))
}

async fn in_a_worker(
    case: &Case,
    options: RunOptions<'_>,
    start: Start<'_>,
    stop: watch::Receiver<bool>,
    parent: &mut Parent<'_, '_, '_>,
) -> anyhow::Result<()> {
    let changed = match change(case) {
        Ok(changed) => changed,
        Err(error) => return parent.trouble(&error).await,
    };
    if let Some(changed) = &changed {
        let name = "this machine's settings".to_owned();
        let value = changed.told();
        parent.event(EventKind::Fact { name, value }).await?;
    }
    let worked = work(case, options, start, stop, parent).await;
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
    Ok(())
}

/// What the parent takes over from a worker, and adds to it.
struct Parent<'a, 'r, 'p> {
    /// Free for another case as soon as nothing more happens in this one.
    place: Option<Place<'p>>,
    clock: CaseClock,
    history: &'a mut CaseHistory<'r>,
    artifacts: Vec<Artifact>,
    /// How many bytes were taken over.
    taken: usize,
}

impl Parent<'_, '_, '_> {
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

    /// What the worker is told that asks what its case came to.
    fn decided(&self, case: &Case, options: RunOptions<'_>) -> &'static str {
        let failed = options.turns.over(case, self.history.verdict().case);
        match options.keep {
            _ if !failed => AS_EXPECTED,
            Keep::Failed if options.turns.keep() => KEEP,
            _ => LET_GO,
        }
    }

    /// The world is kept: the next case may run, and whoever kept it reads what they wait for.
    fn kept(&mut self, case: &Case) {
        self.place = None;
        let (id, verdict) = (case.id(), self.history.verdict().case);
        self.history.tell(&format!(
            "{id}: {verdict}, and the world is kept: `chainbreak shell` goes in, `chainbreak shell -- kubectl get pods -A` asks its API, \
             `chainbreak shell --list` says what is in it; Ctrl-C here ends it, or from elsewhere `chainbreak clean`"
        ));
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
    let mut show = case.cluster.agent_paths();
    if options.keep != Keep::Never {
        show.extend(tools());
    }
    let world = WorldOptions {
        show,
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
    told(&mut worker, &serde_json::to_string(&order)?).await?;
    Ok(worker)
}

/// Tells a worker a line. One that has ended, or could not make its world, does not read: its end says why.
async fn told(worker: &mut Worker, line: &str) -> io::Result<()> {
    let told = worker.order(line).await;
    told.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

async fn work(
    case: &Case,
    options: RunOptions<'_>,
    start: Start<'_>,
    stop: watch::Receiver<bool>,
    parent: &mut Parent<'_, '_, '_>,
) -> anyhow::Result<()> {
    let factory = options.backend.factory();
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
                    Some(Phase::Held) => told(&mut worker, parent.decided(case, options)).await?,
                    Some(Phase::Kept) => {
                        parent.kept(case);
                        // A person looks at it.
                        deadline += KEPT;
                    }
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
                told(&mut worker, STOP).await?;
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

    use super::*;

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
