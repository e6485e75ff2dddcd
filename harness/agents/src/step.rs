//! How a sans-IO core is written and stepped.
//!
//! A core is an `async fn` over an [`Io`]: it asks for a command or for a time by awaiting, and does
//! nothing else to the world. [`Stepper`] polls it: in goes the time and one [`Reply`], out come log
//! lines and requests. No clock, no process and no socket is inside, so the same core runs live under
//! the driver and can be stepped in any order by a scheduler.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A command that a core wants run. Programs are names (`iptables-restore`), not paths: the driver
/// knows the node's iptables backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Standard input.
    pub input: String,
}

/// What a command gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Exit code; 128 + n for signal n; 127 when it could not be started (the reason in `stderr`).
    pub exit: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it ran. The driver measures it; a scheduler invents it.
    pub took: Duration,
}

/// Names one request of one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u64);

/// What goes into a core.
#[derive(Debug)]
pub enum Reply<E> {
    /// A requested command ended.
    Ran(RequestId, Output),
    /// Something changed in the API (the core's own event type).
    Event(E),
    /// Time went on: whatever is due by now wakes.
    Tick,
}

/// What a core wants after a step.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Commands to start now. Several may be under way at once.
    pub run: Vec<(RequestId, Command)>,
    /// Points that were reached: each goes on with a [`Reply::Ran`], whatever the output.
    pub points: Vec<(RequestId, &'static str)>,
    /// Log lines written in this step.
    pub logs: Vec<LogLine>,
    /// When to step again with [`Reply::Tick`] at the latest, on the core's clock.
    pub wake_at: Option<Duration>,
    /// The core ended: the process would exit with these words.
    pub exited: Option<String>,
}

/// A log line before its header, which carries the wall-clock time and is the driver's to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How bad it is.
    pub severity: Severity,
    /// Source file and line as the real program prints them: `proxier.go:1564`, `felix/table.go 739`.
    pub site: &'static str,
    /// Everything after the header; may have several lines.
    pub text: String,
}

/// How bad a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `I` / `INFO`.
    Info,
    /// `W` / `WARNING`.
    Warning,
    /// `E` / `ERROR`.
    Error,
    /// `F` / `PANIC`.
    Fatal,
}

/// A core's only way to the world.
#[derive(Debug)]
pub struct Io<E> {
    state: Rc<RefCell<State<E>>>,
}

#[derive(Debug)]
struct State<E> {
    now: Duration,
    next_id: u64,
    log_from: Severity,
    wanted: Wanted,
    outputs: BTreeMap<RequestId, Output>,
    events: VecDeque<E>,
    deadlines: BTreeMap<u64, Duration>,
}

impl<E> Clone for Io<E> {
    fn clone(&self) -> Self {
        Self {
            state: Rc::clone(&self.state),
        }
    }
}

impl<E> Io<E> {
    /// The core's clock: time since its process started.
    pub fn now(&self) -> Duration {
        self.state.borrow().now
    }

    /// Writes a log line, unless it is below what [`Self::log_from`] asks for.
    pub fn log(&self, severity: Severity, site: &'static str, text: impl Into<String>) {
        if severity < self.state.borrow().log_from {
            return;
        }
        let line = LogLine {
            severity,
            site,
            text: text.into(),
        };
        self.state.borrow_mut().wanted.logs.push(line);
    }

    /// Lines below that severity are not written from now on.
    pub fn log_from(&self, severity: Severity) {
        self.state.borrow_mut().log_from = severity;
    }

    /// Runs a command to its end.
    pub async fn run(&self, argv: &[&str], input: String) -> Output {
        let id = self.next_id();
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let command = Command { argv, input };
        self.state.borrow_mut().wanted.run.push((id, command));
        self.ran(id).await
    }

    fn next_id(&self) -> RequestId {
        let mut state = self.state.borrow_mut();
        state.next_id += 1;
        RequestId(state.next_id)
    }

    async fn ran(&self, id: RequestId) -> Output {
        poll_fn(|_| match self.state.borrow_mut().outputs.remove(&id) {
            Some(output) => Poll::Ready(output),
            None => Poll::Pending,
        })
        .await
    }

    /// Reaches a point between two things that the real program does one after the other without
    /// waiting for anything, but at which it may lose the processor. Events come meanwhile.
    pub async fn point(&self, name: &'static str) {
        let id = self.next_id();
        self.state.borrow_mut().wanted.points.push((id, name));
        self.ran(id).await;
    }

    /// Waits until the clock shows `due`.
    pub async fn at(&self, due: Duration) {
        let id = {
            let mut state = self.state.borrow_mut();
            state.next_id += 1;
            state.next_id
        };
        let _guard = Deadline { io: self, id };
        poll_fn(|_| {
            let mut state = self.state.borrow_mut();
            if state.now >= due {
                return Poll::Ready(());
            }
            state.deadlines.insert(id, due);
            Poll::Pending
        })
        .await;
    }

    /// The next event; waits for one. Only one place of a core may wait here.
    pub async fn event(&self) -> E {
        poll_fn(|_| match self.state.borrow_mut().events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        })
        .await
    }

    /// The next event if one is there already.
    pub fn try_event(&self) -> Option<E> {
        self.state.borrow_mut().events.pop_front()
    }
}

/// Forgets a deadline when its wait is over or was given up.
struct Deadline<'a, E> {
    io: &'a Io<E>,
    id: u64,
}

impl<E> Drop for Deadline<'_, E> {
    fn drop(&mut self) {
        self.io.state.borrow_mut().deadlines.remove(&self.id);
    }
}

/// Steps one core.
pub struct Stepper<E> {
    io: Io<E>,
    core: Option<Pin<Box<dyn Future<Output = String>>>>,
}

impl<E> std::fmt::Debug for Stepper<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepper")
            .field("ended", &self.core.is_none())
            .finish_non_exhaustive()
    }
}

impl<E> Stepper<E> {
    /// Makes a core; it has done nothing yet. Its output is the reason for which its process exits.
    pub fn new<F>(core: impl FnOnce(Io<E>) -> F) -> Self
    where
        F: Future<Output = String> + 'static,
    {
        let state = State {
            now: Duration::ZERO,
            next_id: 0,
            log_from: Severity::Info,
            wanted: Wanted::default(),
            outputs: BTreeMap::new(),
            events: VecDeque::new(),
            deadlines: BTreeMap::new(),
        };
        let io = Io {
            state: Rc::new(RefCell::new(state)),
        };
        let core = core(io.clone());
        Self {
            io,
            core: Some(Box::pin(core)),
        }
    }

    /// Gives the core the time and one reply, lets it go on as far as it can, and says what it wants.
    /// `now` never goes back.
    pub fn step(&mut self, now: Duration, reply: Reply<E>) -> Wanted {
        {
            let mut state = self.io.state.borrow_mut();
            state.now = state.now.max(now);
            match reply {
                Reply::Ran(id, output) => drop(state.outputs.insert(id, output)),
                Reply::Event(event) => state.events.push_back(event),
                Reply::Tick => {}
            }
        }
        // Futures inside may be joined or selected by combinators that poll only what was woken, so
        // the core must use combinators that poll everything (`futures::join!`, `select!` of few).
        let mut context = Context::from_waker(Waker::noop());
        let ended = match self
            .core
            .as_mut()
            .map(|core| core.as_mut().poll(&mut context))
        {
            Some(Poll::Ready(reason)) => Some(reason),
            Some(Poll::Pending) | None => None,
        };
        let mut state = self.io.state.borrow_mut();
        let mut wanted = std::mem::take(&mut state.wanted);
        wanted.wake_at = state.deadlines.values().min().copied();
        if ended.is_some() {
            self.core = None;
            wanted.exited = ended;
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_asked_for_severity_is_not_written() {
        let mut stepper = Stepper::<()>::new(|io| async move {
            io.log(Severity::Info, "a", "before");
            io.log_from(Severity::Error);
            io.log(Severity::Warning, "a", "below");
            io.log(Severity::Error, "a", "at");
            String::new()
        });
        let said = stepper.step(Duration::ZERO, Reply::Tick).logs;
        let said: Vec<&str> = said.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(said, ["before", "at"]);
    }

    #[test]
    fn a_core_runs_commands_side_by_side_and_wakes_in_time() {
        let mut stepper = Stepper::<()>::new(|io| async move {
            let (a, b) =
                futures::join!(io.run(&["a"], String::new()), io.run(&["b"], String::new()));
            io.at(Duration::from_secs(5)).await;
            format!("{} {} at {:?}", a.exit, b.exit, io.now())
        });
        let wanted = stepper.step(Duration::ZERO, Reply::Tick);
        let ids: Vec<RequestId> = wanted.run.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids.len(), 2);
        let output = |exit| Output {
            exit,
            ..Output::default()
        };
        let now = Duration::from_secs(1);
        assert!(
            stepper
                .step(now, Reply::Ran(ids[1], output(2)))
                .wake_at
                .is_none()
        );
        let wanted = stepper.step(now, Reply::Ran(ids[0], output(1)));
        assert_eq!(wanted.wake_at, Some(Duration::from_secs(5)));
        let wanted = stepper.step(Duration::from_secs(6), Reply::Tick);
        assert_eq!(wanted.exited.as_deref(), Some("1 2 at 6s"));
    }
}
