//! The event log of a running case: anything appends, the sink gets events in order of arrival.

mod barrier;
mod clock;
mod write;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chainbreak_model::event::{Event, EventKind, Phase, WatchTarget, Watched};
use tokio::sync::{broadcast, mpsc, watch};

pub use barrier::Barrier;
pub(crate) use barrier::LOOKED_WITHIN;
pub use clock::CaseClock;
pub use write::Write;

/// How many writes an observer may lag behind before it is told only that there were some.
const BACKLOG: usize = 256;

/// Looks of observers that took longer than this all together are taken once more: half of the lab's bound.
const OLD: Duration = Duration::from_millis(100);

/// Appends events to a case's history. Cheap to clone; never blocks.
#[derive(Debug, Clone)]
pub struct EventLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: Instant,
    sink: mpsc::UnboundedSender<Event>,
    writes: broadcast::Sender<Write>,
    barriers: broadcast::Sender<Barrier>,
    moments: broadcast::Sender<Barrier>,
    troubled: watch::Sender<bool>,
}

impl EventLog {
    /// A log whose time begins now, and the end where its events come out.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (sink, events) = mpsc::unbounded_channel();
        let (writes, _) = broadcast::channel(BACKLOG);
        let (barriers, _) = broadcast::channel(BACKLOG);
        let (moments, _) = broadcast::channel(BACKLOG);
        let (troubled, _) = watch::channel(false);
        let inner = Inner {
            start: Instant::now(),
            sink,
            writes,
            barriers,
            moments,
            troubled,
        };
        (
            Self {
                inner: Arc::new(inner),
            },
            events,
        )
    }

    /// The clock of its times, for another process.
    pub fn clock(&self) -> CaseClock {
        CaseClock::started(self.inner.start.elapsed())
    }

    /// Microseconds since the case began.
    pub fn now_us(&self) -> u64 {
        self.at(Instant::now())
    }

    /// The case's time at that instant; 0 for one before its beginning.
    pub fn at(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.inner.start);
        micros(since)
    }

    /// The case's time of a `CLOCK_MONOTONIC` reading, the clock that `Instant` reads too.
    pub fn at_monotonic(&self, monotonic_us: u64) -> u64 {
        let ago = chainbreak_probe::clock::monotonic_us().saturating_sub(monotonic_us);
        Instant::now()
            .checked_sub(Duration::from_micros(ago))
            .map_or(0, |instant| self.at(instant))
    }

    /// Appends what happened now.
    pub fn append(&self, what: EventKind) {
        self.append_at(self.now_us(), what);
    }

    /// Appends what happened at the given time.
    pub fn append_at(&self, at_us: u64, what: EventKind) {
        if let EventKind::Command(command) = &what
            && let Some(write) = Write::of(at_us, command)
        {
            // Nobody observes: nobody to tell.
            drop(self.inner.writes.send(write));
        }
        if matches!(what, EventKind::Trouble { .. }) {
            self.inner.troubled.send_replace(true);
        }
        // The receiver is gone only when the run is over: nobody is left to tell.
        drop(self.inner.sink.send(Event { at_us, what }));
    }

    /// Returns when there was trouble, at once if there was: whatever happens then, nothing is judged.
    pub(crate) async fn troubled(&self) {
        let mut troubled = self.inner.troubled.subscribe();
        // The sender is in this log.
        drop(troubled.wait_for(|&it| it).await);
    }

    /// Appends something from which, or up to which, promises are judged: every observer looks first, so that
    /// what they saw last is what was there then. The moment is when they have; what was written to logs before it is
    /// read before this returns. Who does not look or read in time has watched nothing.
    pub async fn barrier(&self, what: EventKind) {
        let begun = tokio::time::Instant::now();
        let mut looked = barrier::ask(&self.inner.barriers, Instant::now()).await;
        // On a busy machine the first look is old when the last one is over.
        if looked.all_answered() && begun.elapsed() > OLD {
            looked = barrier::ask(&self.inner.barriers, Instant::now()).await;
        }
        let moment = Instant::now();
        let read = barrier::ask(&self.inner.moments, moment).await;
        let at_us = self.at(moment);
        let observers = looked.asked + read.asked;
        let answered = looked.watched.len() + read.watched.len();
        for watched in looked.watched.into_iter().chain(read.watched).flatten() {
            self.append(EventKind::Watched(watched));
        }
        let silent = observers.saturating_sub(answered);
        if silent > 0 {
            let unanswered = EventKind::Unanswered {
                moment: name(&what),
                silent,
                observers,
                waited_us: micros(begun.elapsed()),
            };
            self.append_at(at_us, unanswered);
        }
        self.append_at(at_us, what);
    }

    /// Appends that something was watched without a gap, and why no longer.
    pub(crate) fn watched(
        &self,
        target: WatchTarget,
        from_us: u64,
        to_us: u64,
        ended: Option<String>,
    ) {
        let watched = Watched {
            target,
            from_us,
            to_us,
            ended,
        };
        self.append(EventKind::Watched(watched));
    }

    /// What observers are to look before.
    pub fn barriers(&self) -> broadcast::Receiver<Barrier> {
        self.inner.barriers.subscribe()
    }

    /// What those who follow logs are to read up to.
    pub fn moments(&self) -> broadcast::Receiver<Barrier> {
        self.inner.moments.subscribe()
    }

    /// What recorded commands may just have changed. A promise about rules is looked at then: only what
    /// came and went within the few milliseconds of one look is missed.
    pub fn writes(&self) -> broadcast::Receiver<Write> {
        self.inner.writes.subscribe()
    }
}

/// A length of time as the history has it.
pub fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// What a barrier is called in the history.
fn name(what: &EventKind) -> String {
    match what {
        EventKind::Phase(Phase::Judging) => "the judged time begins".to_owned(),
        EventKind::Phase(Phase::Judged) => "the judged time ends".to_owned(),
        EventKind::Mark { name } => format!("the mark {name}"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_model::{event::Command, names::NodeName};

    use super::*;

    fn command(line: &str, input: &str, exit: i32) -> EventKind {
        EventKind::Command(Command {
            who: "felix".to_owned(),
            node: NodeName::from("n1"),
            argv: line.split(' ').map(str::to_owned).collect(),
            input: input.to_owned(),
            exit,
            stderr: String::new(),
            took_us: 1,
            named: Vec::new(),
        })
    }

    fn seen(node: &str, from_us: u64, to_us: u64) -> Watched {
        let at = chainbreak_model::case::Origin::Node(node.into());
        Watched {
            target: WatchTarget::Rules { at },
            from_us,
            to_us,
            ended: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_took_long_are_taken_once_more() {
        let (log, _events) = EventLog::new();
        let (mut quick, mut slow) = (log.barriers(), log.barriers());
        let mark = EventKind::Mark {
            name: "late".into(),
        };
        let observing = async {
            let mut looks = 0;
            while let (Ok(first), Ok(second)) = (quick.recv().await, slow.recv().await) {
                assert!(first.answer(None));
                looks += 1;
                if looks == 1 {
                    tokio::time::sleep_until(tokio::time::Instant::now() + OLD * 2).await;
                }
                assert!(second.answer(None));
                if looks == 2 {
                    break;
                }
            }
            looks
        };
        let ((), looks) = tokio::join!(log.barrier(mark), observing);
        assert_eq!(looks, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_comes_after_the_looks_of_all_observers_and_says_how_many_never_looked() {
        let (log, mut events) = EventLog::new();
        let mark = |name: &str| EventKind::Mark { name: name.into() };
        log.barrier(mark("alone")).await;
        let (mut quick, mut blind, _never) = (log.barriers(), log.barriers(), log.barriers());
        let observing = async {
            let barrier = quick.recv().await.unwrap();
            tokio::time::sleep_until(tokio::time::Instant::now() + LOOKED_WITHIN / 2).await;
            log.append(mark("looked"));
            assert!(barrier.answer(Some(seen("n1", 7, 9))));
        };
        let looking = async { assert!(blind.recv().await.unwrap().answer(None)) };
        tokio::join!(log.barrier(mark("watched")), observing, looking);
        let mut told: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        let unanswered = told.remove(3).what;
        assert!(
            matches!(&unanswered, EventKind::Unanswered { moment, silent: 1, observers: 3, waited_us: 2_000_000.. }
                if moment == "the mark watched"),
            "{unanswered:?}"
        );
        let EventKind::Watched(watched) = told.remove(2).what else {
            panic!("{told:?}")
        };
        assert_eq!(
            watched,
            seen("n1", 7, 9),
            "up to its look, however long the moment waited for others"
        );
        let names = told.into_iter().map(|event| event.what);
        assert!(names.eq(["alone", "looked", "watched"].map(mark)));
    }

    #[tokio::test]
    async fn logs_are_read_past_the_moment_which_is_when_all_observers_have_looked() {
        let (log, mut events) = EventLog::new();
        let (mut looks, mut reads) = (log.barriers(), log.moments());
        let observing = async {
            let barrier = looks.recv().await.unwrap();
            assert!(reads.try_recv().is_err(), "there is no moment yet");
            let looked_us = log.now_us();
            assert!(barrier.answer(None));
            let moment = reads.recv().await.unwrap();
            let at_us = log.at(moment.at());
            assert!(at_us >= looked_us);
            assert!(moment.answer(None));
            at_us
        };
        let mark = EventKind::Mark {
            name: "read".into(),
        };
        let ((), at_us) = tokio::join!(log.barrier(mark.clone()), observing);
        let marked = Event { at_us, what: mark };
        assert_eq!(events.try_recv().ok(), Some(marked));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_answers_too_late_knows_it() {
        let (log, _events) = EventLog::new();
        let mut moments = log.moments();
        let reading = async {
            let moment = moments.recv().await.unwrap();
            moment.gone_by().await;
            assert!(!moment.answer(None));
        };
        let mark = EventKind::Mark {
            name: "gone".into(),
        };
        tokio::join!(log.barrier(mark), reading);
    }

    #[test]
    fn observers_hear_of_commands_that_write_and_of_no_others() {
        let (log, _events) = EventLog::new();
        let mut writes = log.writes();
        for reading in [
            "iptables-legacy-save -t nat",
            "iptables -w 5 -C PREROUTING -t nat -j KUBE-SERVICES",
        ] {
            log.append(command(reading, "", 0));
        }
        // The chain is there already.
        log.append(command("iptables -N KUBE-SERVICES -t nat", "", 1));
        assert!(writes.try_recv().is_err());
        // What stands before the line that failed may be committed.
        let input = "*filter\nCOMMIT\n*nat\n-A KUBE-SERVICES -j KUBE-SVC-GONE\nCOMMIT\n";
        log.append(command("iptables-restore --noflush", input, 1));
        assert!(writes.try_recv().is_ok());
    }

    #[test]
    fn a_write_concerns_its_node_and_the_tables_it_names_or_all_where_it_names_none() {
        let heard = |line, input| {
            let (log, _events) = EventLog::new();
            let mut writes = log.writes();
            log.append(command(line, input, 0));
            writes.try_recv().unwrap()
        };
        let (n1, n2) = (NodeName::from("n1"), NodeName::from("n2"));
        let write = heard("iptables -w 5 -N KUBE-SERVICES -t nat", "");
        assert!(write.concerns(&n1, &["nat"]) && !write.concerns(&n1, &["filter", "raw"]));
        assert!(!write.concerns(&n2, &["nat"]));
        let write = heard(
            "iptables-restore",
            "*filter\nCOMMIT\n# one more\n*nat\nCOMMIT\n",
        );
        assert!(write.concerns(&n1, &["nat"]) && write.concerns(&n1, &["filter"]));
        assert!(!write.concerns(&n1, &["raw"]));
        assert!(heard("nft flush ruleset", "").concerns(&n1, &["raw"]));
    }
}
