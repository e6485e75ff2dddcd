//! One life of an agent after the other: how it ends, and when there are no more.

use std::{sync::Arc, time::Duration};

use chainbreak_model::{
    event::EventKind,
    names::{AgentName, NodeName},
};
use tokio::time::{Instant, sleep_until};

use super::control::LifeControl;
use crate::{cluster::Signal, log::EventLog, logbook::Writer};

/// What stands between two lives of an agent that exited, as with runsv and a first restart by the
/// kubelet.
const RESTART: Duration = Duration::from_secs(1);
/// A life that is no longer than this has done nothing.
const EARLY: Duration = Duration::from_secs(5);
/// So many lives that have done nothing, one after the other and from the beginning, are trouble. One or
/// two may be bad luck that a restart heals, as it would in a cluster. An agent that has once lived longer
/// is restarted forever, whatever becomes of it: that is the product's doing, which is to be judged.
const MAX_EARLY_EXITS: u32 = 3;

/// What a backend knows of an agent: how it begins to live, and how it does what it is told.
pub trait Supervised {
    /// One life, from its start to the exit of its process. `None` when it ended because it was told to.
    type Life: Future<Output = Option<Death>>;

    /// Begins a life. It says by `control` when it runs, and obeys what it hears there until it has ended: whatever it said
    /// is written by then.
    fn begin(&mut self, writer: LogWriter, control: LifeControl) -> Self::Life;
}

/// Writes down what an agent says in one of its lives.
#[derive(Debug, Clone)]
pub struct LogWriter {
    book: Arc<Writer>,
    life: u32,
}

impl LogWriter {
    /// Adds an entry.
    pub fn write(&self, entry: String) {
        self.book.write(entry);
    }

    /// How many lives the agent has had, with this one.
    pub fn life(&self) -> u32 {
        self.life
    }
}

/// How a life ended that was not told to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// `exit status 1`.
    pub reason: String,
    /// Whose doing it was.
    pub kind: Kind,
}

/// Whose doing the end of a life was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As agents do in order to read their configuration again; also each end of a model.
    Planned,
    /// Of a process, for reasons of its own.
    Own,
    /// It could not even be started.
    NotStarted,
}

/// An agent on a node, which is to live.
#[derive(Debug)]
pub struct Supervision {
    agent: AgentName,
    node: NodeName,
    writer: Writer,
    control: LifeControl,
}

impl Supervision {
    pub(super) fn new(
        agent: AgentName,
        node: NodeName,
        writer: Writer,
        control: LifeControl,
    ) -> Self {
        Self {
            agent,
            node,
            writer,
            control,
        }
    }

    /// The agent will not live, for this reason.
    pub fn give_up(self, reason: String) {
        self.writer.end(reason);
    }

    /// One life after the other, until the first ones were too short. A life that was ended from outside counts
    /// for nothing.
    pub async fn live(self, mut lives: impl Supervised, log: EventLog) {
        let (agent, node, mut control) = (self.agent, self.node, self.control);
        let book = Arc::new(self.writer);
        let mut early_exits = Some(0);
        for number in 1.. {
            control.may_live().await;
            let started = Instant::now();
            let writer = LogWriter {
                book: Arc::clone(&book),
                life: number,
            };
            let death = lives.begin(writer, control.clone()).await;
            let asked = control.is_to_stop();
            let Some(death) = death.filter(|_| !asked) else {
                control.is_so(Signal::Stop);
                continue;
            };
            let lived = started.elapsed();
            early_exits = early_exits.and_then(|so_far| count(so_far, death.kind, lived));
            if early_exits.is_some_and(|count| count >= MAX_EARLY_EXITS) {
                book.end(obituary(&death));
                return;
            }
            log.append(EventKind::Step {
                text: format!(
                    "{agent} on {node} exited and is started again: {}",
                    death.reason
                ),
            });
            control.is_so(Signal::Stop);
            sleep_until(Instant::now() + RESTART).await;
        }
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
