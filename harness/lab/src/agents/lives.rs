//! One life of an agent after the other: what it is, how it ends, and when there are no more.

use std::{
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chainbreak_engine::{log::EventLog, logbook::Writer};
use chainbreak_model::{
    event::EventKind,
    names::{AgentName, NodeName},
};
use futures::future::LocalBoxFuture;
use tokio::time::{Instant, sleep_until};

use super::handle::AgentControl;

/// What stands between two lives of an agent that exited, as with runsv and a first restart by the
/// kubelet.
const RESTART: Duration = Duration::from_secs(1);
/// A life that is no longer than this has done nothing.
const EARLY: Duration = Duration::from_secs(5);
/// So many lives that have done nothing, one after the other and from the beginning, are trouble. One or
/// two may be bad luck that a restart heals, as it would in a cluster. An agent that has once lived longer
/// is restarted forever, whatever becomes of it: that is the product's doing, which is to be judged.
const MAX_EARLY_EXITS: u32 = 3;

/// One life of an agent, from its start to the exit of its process. It pauses when it is told to; dropping
/// it ends it.
pub(super) type Life =
    Box<dyn Fn(LogWriter, AgentControl) -> LocalBoxFuture<'static, Death> + Send>;

/// What an agent lives by, which another version of it replaces.
#[derive(Clone)]
pub(super) struct Lives(Arc<Mutex<Life>>);

impl std::fmt::Debug for Lives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lives")
    }
}

impl Lives {
    pub(super) fn new(life: Life) -> Self {
        Self(Arc::new(Mutex::new(life)))
    }

    /// The next life is this one.
    pub(super) fn replace(&self, life: Life) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = life;
    }

    fn begin(&self, writer: LogWriter, control: AgentControl) -> LocalBoxFuture<'static, Death> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)(writer, control)
    }
}

/// Writes down what an agent says in one of its lives.
#[derive(Clone)]
pub(super) struct LogWriter {
    pub(super) write: Rc<dyn Fn(String)>,
    /// From 1.
    pub(super) life: u32,
}

/// How a life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Death {
    /// `exit status 1`.
    pub(super) reason: String,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As agents do in order to read their configuration again; also each end of a model.
    Planned,
    /// Of a process, for reasons of its own.
    Own,
    /// It could not even be started.
    NotStarted,
}

/// One life after the other, until the first ones were too short. A life that was ended from outside counts
/// for nothing.
pub(super) async fn live(
    agent: AgentName,
    node: NodeName,
    lives: Lives,
    (write, mut control): (Writer, AgentControl),
    log: EventLog,
) {
    let write = Rc::new(write);
    let mut early_exits = Some(0);
    for number in 1.. {
        control.may_live().await;
        let started = Instant::now();
        let to = Rc::clone(&write);
        let writer = LogWriter {
            write: Rc::new(move |entry| to.write(entry)),
            life: number,
        };
        let death = tokio::select! {
            death = lives.begin(writer, control.clone()) => death,
            () = control.stopped() => continue,
        };
        early_exits = early_exits.and_then(|so_far| count(so_far, death.kind, started.elapsed()));
        if early_exits.is_some_and(|count| count >= MAX_EARLY_EXITS) {
            write.end(obituary(&death));
            return;
        }
        log.append(EventKind::Step {
            text: format!(
                "{agent} on {node} exited and is started again: {}",
                death.reason
            ),
        });
        sleep_until(Instant::now() + RESTART).await;
    }
}

/// How many early exits there are after another life; `None` once a life was long enough.
fn count(so_far: u32, kind: Kind, lived: Duration) -> Option<u32> {
    match kind {
        Kind::NotStarted => Some(MAX_EARLY_EXITS),
        _ if lived >= EARLY => None,
        Kind::Planned => Some(so_far),
        Kind::Own => Some(so_far + 1),
    }
}

fn obituary(death: &Death) -> String {
    let (reason, seconds) = (&death.reason, EARLY.as_secs());
    match death.kind {
        Kind::Own => {
            format!("{reason}, {MAX_EARLY_EXITS} times in a row within {seconds} s of its start")
        }
        Kind::Planned | Kind::NotStarted => reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_lives_of_a_process_can_be_too_short() {
        let moment = Duration::from_millis(20);
        assert_eq!(count(0, Kind::Own, moment), Some(1));
        assert_eq!(count(2, Kind::Own, moment), Some(MAX_EARLY_EXITS));
        assert_eq!(count(2, Kind::Own, EARLY), None);
        assert_eq!(count(2, Kind::Planned, moment), Some(2));
        assert_eq!(count(2, Kind::Planned, EARLY), None);
        assert_eq!(count(0, Kind::NotStarted, moment), Some(MAX_EARLY_EXITS));
    }
}
