//! The event log of a running case: anything appends, the sink gets events in order of arrival.

mod write;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chainbreak_model::event::{Event, Phase, WatchTarget, Watched, What};
use tokio::{
    sync::{broadcast, mpsc},
    time::timeout,
};

pub use write::Write;

/// How many writes an observer may lag behind before it is told only that there were some.
const BACKLOG: usize = 256;

/// How long a barrier waits for observers, and an observer for its look: a look takes some milliseconds. What nobody has looked at by then
/// was not watched.
pub(crate) const LOOKED_WITHIN: Duration = Duration::from_secs(2);

/// A point of the run before which every observer looks, and the history's answer from each.
#[derive(Debug, Clone)]
pub struct Barrier(mpsc::UnboundedSender<Option<(WatchTarget, u64)>>);

impl Barrier {
    /// The observer has looked, and has watched that since then without a gap; `None` when it has not. Whether it was in time:
    /// a barrier that has gone by was passed without that look.
    pub fn answer(self, watched: Option<(WatchTarget, u64)>) -> bool {
        self.0.send(watched).is_ok()
    }
}

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
}

impl EventLog {
    /// A log whose time begins now, and the end where its events come out.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (sink, events) = mpsc::unbounded_channel();
        let (writes, _) = broadcast::channel(BACKLOG);
        let (barriers, _) = broadcast::channel(BACKLOG);
        let inner = Inner {
            start: Instant::now(),
            sink,
            writes,
            barriers,
        };
        (
            Self {
                inner: Arc::new(inner),
            },
            events,
        )
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
    pub fn append(&self, what: What) {
        self.append_at(self.now_us(), what);
    }

    /// Appends what happened at the given time.
    pub fn append_at(&self, at_us: u64, what: What) {
        if let What::Command(command) = &what
            && let Some(write) = Write::of(at_us, command)
        {
            // Nobody observes: nobody to tell.
            drop(self.inner.writes.send(write));
        }
        // The receiver is gone only when the run is over: nobody is left to tell.
        drop(self.inner.sink.send(Event { at_us, what }));
    }

    /// Appends something from which, or up to which, promises are judged: every observer looks first, so that
    /// what they saw last is what was there then. Who does not look in time has watched nothing.
    pub async fn barrier(&self, what: What) {
        let (barrier, mut answers) = mpsc::unbounded_channel();
        // Without observers there is nothing to wait for.
        let observers = self
            .inner
            .barriers
            .send(Barrier(barrier))
            .unwrap_or_default();
        let mut answered = Vec::new();
        let all = async {
            while let Some(answer) = answers.recv().await {
                answered.push(answer);
            }
        };
        let begun = tokio::time::Instant::now();
        // What is missing when the time is over is counted below.
        drop(timeout(LOOKED_WITHIN, all).await);
        let now_us = self.now_us();
        let silent = observers.saturating_sub(answered.len());
        for (target, from_us) in answered.into_iter().flatten() {
            self.watched(target, from_us, now_us, None);
        }
        if silent > 0 {
            let unanswered = What::Unanswered {
                moment: name(&what),
                silent,
                observers,
                waited_us: micros(begun.elapsed()),
            };
            self.append_at(now_us, unanswered);
        }
        self.append_at(now_us, what);
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
        self.append(What::Watched(watched));
    }

    /// What observers are to look before.
    pub fn barriers(&self) -> broadcast::Receiver<Barrier> {
        self.inner.barriers.subscribe()
    }

    /// What recorded commands may just have changed. A promise about rules is looked at then: only what
    /// came and went within the few milliseconds of one look is missed.
    pub fn writes(&self) -> broadcast::Receiver<Write> {
        self.inner.writes.subscribe()
    }
}

/// A length of time as the history has it.
pub(crate) fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// What a barrier is called in the history.
fn name(what: &What) -> String {
    match what {
        What::Phase(Phase::Judging) => "the judged time begins".to_owned(),
        What::Phase(Phase::Judged) => "the judged time ends".to_owned(),
        What::Mark { name } => format!("the mark {name}"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_model::{event::Command, names::NodeName};

    use super::*;

    fn command(line: &str, input: &str, exit: i32) -> What {
        What::Command(Command {
            who: "felix".to_owned(),
            node: NodeName::from("n1"),
            argv: line.split(' ').map(str::to_owned).collect(),
            input: input.to_owned(),
            exit,
            stderr: String::new(),
            took_us: 1,
        })
    }

    fn target(node: &str) -> WatchTarget {
        let at = chainbreak_model::case::Origin::Node(node.into());
        WatchTarget::Rules { at }
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_comes_after_the_looks_of_all_observers_and_says_how_many_never_looked() {
        let (log, mut events) = EventLog::new();
        let mark = |name: &str| What::Mark { name: name.into() };
        log.barrier(mark("alone")).await;
        let (mut quick, mut blind, _never) = (log.barriers(), log.barriers(), log.barriers());
        let observing = async {
            let barrier = quick.recv().await.unwrap();
            tokio::time::sleep_until(tokio::time::Instant::now() + LOOKED_WITHIN / 2).await;
            log.append(mark("looked"));
            assert!(barrier.answer(Some((target("n1"), 7))));
        };
        let looking = async { assert!(blind.recv().await.unwrap().answer(None)) };
        tokio::join!(log.barrier(mark("watched")), observing, looking);
        let mut told: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        let unanswered = told.remove(3).what;
        assert!(
            matches!(&unanswered, What::Unanswered { moment, silent: 1, observers: 3, waited_us: 2_000_000.. }
                if moment == "the mark watched"),
            "{unanswered:?}"
        );
        let What::Watched(watched) = told.remove(2).what else {
            panic!("{told:?}")
        };
        let marked = told.pop().unwrap();
        assert_eq!(
            (watched.target, watched.from_us, watched.ended),
            (target("n1"), 7, None)
        );
        assert_eq!(
            watched.to_us, marked.at_us,
            "it was watched up to the moment"
        );
        let names = told.into_iter().chain([marked]).map(|event| event.what);
        assert!(names.eq(["alone", "looked", "watched"].map(mark)));
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
