//! Lives whose processes do what a test tells them, over the trait that a backend has.

use std::{future::ready, iter, sync::Arc};

use chainbreak_model::event::{Event, EventKind};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use tokio::{
    sync::{
        Mutex,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        watch,
    },
    time::Instant,
};

use super::*;
use crate::{
    log::EventLog,
    logbook::{AgentLog, LogItem},
};

const FELIX: AgentName = AgentName::Felix;
/// What Felix says when it has begun its work.
const BEGUN: &str = "Completed first update to dataplane. secs=1.1";
/// Of the tests' clock, which goes on by itself.
const LONG: Duration = Duration::from_secs(60);

/// What a process does next.
enum Does {
    Runs,
    Says(&'static str),
    Exits(Kind),
}

/// An agent whose process does as it is told, and that says it has begun its work when it is told to end.
struct Fake {
    does: Arc<Mutex<UnboundedReceiver<Does>>>,
    /// The number of the life that has begun last.
    life: watch::Sender<u32>,
}

impl Supervised for Fake {
    type Life = BoxFuture<'static, Option<Death>>;

    fn begin(&mut self, writer: LogWriter, mut control: LifeControl) -> Self::Life {
        self.life.send_replace(writer.life());
        let process = Arc::clone(&self.does);
        async move {
            let mut process = process.lock().await;
            loop {
                tokio::select! {
                    biased;
                    wish = control.next() => match wish {
                        Signal::Stop => {
                            writer.write(BEGUN.to_owned());
                            return None;
                        }
                        Signal::Pause | Signal::Run => control.is_so(wish),
                    },
                    Some(does) = process.recv() => match does {
                        Does::Runs => control.is_so(Signal::Run),
                        Does::Says(text) => writer.write(text.to_owned()),
                        Does::Exits(kind) => {
                            let reason = "exit status 1".to_owned();
                            return Some(Death { reason, kind });
                        }
                    },
                }
            }
        }
        .boxed()
    }
}

/// Felix on n1, supervised.
struct Supervising {
    supervisor: Supervisor,
    node: NodeName,
    process: UnboundedSender<Does>,
    life: watch::Receiver<u32>,
    events: UnboundedReceiver<Event>,
}

impl Supervising {
    fn with(patience: Option<Duration>) -> Self {
        let (log, events) = EventLog::new();
        let (process, does) = mpsc::unbounded_channel();
        let (begun, life) = watch::channel(0);
        let node = NodeName::from("n1");
        let mut supervisor = Supervisor::new(Logbook::default(), patience);
        let fake = Fake {
            does: Arc::new(Mutex::new(does)),
            life: begun,
        };
        tokio::spawn(supervisor.add(FELIX, &node).live(fake, log));
        Self {
            supervisor,
            node,
            process,
            life,
            events,
        }
    }

    /// One that runs.
    async fn running() -> Self {
        let agent = Self::with(None);
        agent.does(Does::Runs);
        agent.signal(Signal::Run).await.unwrap();
        agent
    }

    fn does(&self, does: Does) {
        assert!(self.process.send(does).is_ok(), "it is dead");
    }

    async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.supervisor.signal(FELIX, &self.node, signal).await
    }

    async fn restart(&self) -> Result<(), SignalError> {
        let nothing = ready(Ok(()));
        self.supervisor.restart(FELIX, &self.node, nothing).await
    }

    /// Which life it is when nothing happens any more.
    async fn life(&self) -> u32 {
        let mut life = self.life.clone();
        let quiet = timeout(LONG, life.wait_for(|_| false)).await.is_err();
        assert!(quiet, "it is dead");
        *self.life.borrow()
    }

    fn log(&self) -> AgentLog {
        self.supervisor.logbook().read(FELIX, &self.node)
    }

    /// What the history has since this was asked last.
    fn history(&mut self) -> Vec<String> {
        let events = iter::from_fn(|| self.events.try_recv().ok());
        let text = |event: Event| match event.what {
            EventKind::Step { text } => text,
            other => format!("{other:?}"),
        };
        events.map(text).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_over_by_what_the_new_life_says_and_not_the_old_one_at_its_end() {
    let mut agent = Supervising::running().await;
    let mut restarting = agent.restart().boxed();
    let not_yet = "the new life has not started";
    assert!(timeout(LONG, &mut restarting).await.is_err(), "{not_yet}");
    agent.does(Does::Runs);
    agent.does(Does::Says("Loading kubernetes config"));
    let not_yet = "the new life has not begun its work";
    assert!(timeout(LONG, &mut restarting).await.is_err(), "{not_yet}");
    agent.does(Does::Says(BEGUN));
    restarting.await.unwrap();
    assert_eq!(agent.life().await, 2);
    assert_eq!(agent.history(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_changed_while_it_does_not_live_and_stays_ended_if_it_cannot_be() {
    let agent = Supervising::running().await;
    let change = async {
        let said = agent.log().next().await.unwrap().unwrap();
        assert_eq!(said, LogItem::Entry(BEGUN.to_owned()), "its last words");
        Err(SignalError("there is no such version".to_owned()))
    };
    let restarted = agent.supervisor.restart(FELIX, &agent.node, change).await;
    let why = SignalError("there is no such version".to_owned());
    assert_eq!(restarted, Err(why));
    assert_eq!(agent.life().await, 1);
}

#[tokio::test(start_paused = true)]
async fn two_restarts_at_once_are_over_with_the_same_new_life() {
    let mut agent = Supervising::running().await;
    let both = async { tokio::join!(agent.restart(), agent.restart()) };
    let mut both = both.boxed();
    assert!(timeout(LONG, &mut both).await.is_err());
    agent.does(Does::Runs);
    agent.does(Does::Says(BEGUN));
    assert_eq!(both.await, (Ok(()), Ok(())));
    assert_eq!(agent.life().await, 2);
    assert_eq!(agent.history(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_not_asked_for_is_in_the_history_and_a_new_life_follows_a_second_later() {
    let mut agent = Supervising::running().await;
    let before = Instant::now();
    agent.does(Does::Exits(Kind::Own));
    let mut runs = agent.life.clone();
    assert!(runs.wait_for(|&life| life == 2).await.is_ok());
    assert!(before.elapsed() >= Duration::from_secs(1));
    let again = "felix on n1 exited and is started again: exit status 1";
    assert_eq!(agent.history(), [again]);
    let mut run = agent.signal(Signal::Run).boxed();
    let early = timeout(LONG, &mut run).await;
    assert!(early.is_err(), "{early:?}: the new life has not started");
    agent.does(Does::Runs);
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_first_lives_were_too_short_is_dead_for_good_and_its_log_says_why() {
    let mut agent = Supervising::with(None);
    for _ in 0..3 {
        agent.does(Does::Exits(Kind::Own));
    }
    let died = agent.log().next().await.unwrap().unwrap_err();
    let why = "exit status 1, 3 times in a row within 5 s of its start, and it said nothing";
    assert_eq!(died.to_string(), why);
    let again = "felix on n1 exited and is started again: exit status 1";
    assert_eq!(agent.history(), [again; 2]);
    let dead = SignalError("it is dead for good".to_owned());
    assert_eq!(agent.signal(Signal::Run).await, Err(dead));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_stopped_while_it_starts_ends_and_lives_when_it_may() {
    let mut agent = Supervising::with(None);
    assert_eq!(agent.life().await, 1);
    agent.signal(Signal::Stop).await.unwrap();
    let said = agent.log().next().now_or_never().flatten();
    let last_words = LogItem::Entry(BEGUN.to_owned());
    assert_eq!(said, Some(Ok(last_words)), "it has ended");
    assert_eq!(agent.life().await, 1, "it is not started by itself");
    agent.does(Does::Runs);
    agent.signal(Signal::Run).await.unwrap();
    assert_eq!(agent.life().await, 2);
    assert_eq!(agent.history(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_obey_in_time_is_an_error_where_it_could_fail_to() {
    let agent = Supervising::with(Some(Duration::from_secs(20)));
    let late = "felix on n1 does not obey Run within 20s";
    let obeyed = agent.signal(Signal::Run).await;
    assert_eq!(obeyed, Err(SignalError(late.to_owned())));
    let node = NodeName::from("n2");
    let absent = agent.supervisor.signal(FELIX, &node, Signal::Stop).await;
    let why = "there is no felix on n2".to_owned();
    assert_eq!(absent, Err(SignalError(why)));
}
