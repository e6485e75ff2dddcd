//! The event log of a running case: anything appends, the sink gets events in order of arrival.

use std::{sync::Arc, time::Instant};

use chainbreak_model::{
    event::{Command, Event, What},
    names::NodeName,
};
use tokio::sync::{broadcast, mpsc};

/// How many writes an observer may lag behind before it is told only that there were some.
const BACKLOG: usize = 256;

/// Appends events to a case's history. Cheap to clone; never blocks.
#[derive(Debug, Clone)]
pub struct EventLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: Instant,
    sink: mpsc::UnboundedSender<Event>,
    writes: broadcast::Sender<NodeName>,
}

impl EventLog {
    /// A log whose time begins now, and the end where its events come out.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (sink, events) = mpsc::unbounded_channel();
        let (writes, _) = broadcast::channel(BACKLOG);
        let inner = Inner {
            start: Instant::now(),
            sink,
            writes,
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
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Appends what happened now.
    pub fn append(&self, what: What) {
        self.append_at(self.now_us(), what);
    }

    /// Appends what happened at the given time.
    pub fn append_at(&self, at_us: u64, what: What) {
        if let What::Command(command) = &what
            && may_write(command)
        {
            // Nobody observes: nobody to tell.
            drop(self.inner.writes.send(command.node.clone()));
        }
        // The receiver is gone only when the run is over: nobody is left to tell.
        drop(self.inner.sink.send(Event { at_us, what }));
    }

    /// Nodes whose netfilter rules a recorded command may just have changed. A promise about rules
    /// is looked at then, so that nothing between two looks is missed.
    pub fn writes(&self) -> broadcast::Receiver<NodeName> {
        self.inner.writes.subscribe()
    }
}

/// Whether a command may have changed rules: everything but reading, and attempts that failed whole.
fn may_write(command: &Command) -> bool {
    let reads = |word: &String| matches!(word.as_str(), "-C" | "-S" | "-L" | "list" | "--version");
    let saves = command
        .argv
        .first()
        .is_some_and(|program| program.ends_with("-save"));
    !saves && !command.argv.iter().any(reads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> What {
        What::Command(Command {
            who: "felix".to_owned(),
            node: NodeName::from("n1"),
            argv: line.split(' ').map(str::to_owned).collect(),
            input: String::new(),
            exit: 0,
            stderr: String::new(),
            took_us: 1,
        })
    }

    #[test]
    fn observers_hear_of_commands_that_write_and_of_no_others() {
        let (log, _events) = EventLog::new();
        let mut writes = log.writes();
        log.append(command("iptables-legacy-save -t nat"));
        log.append(command(
            "iptables -w 5 -C PREROUTING -t nat -j KUBE-SERVICES",
        ));
        assert!(writes.try_recv().is_err());
        log.append(command("iptables-legacy-restore --noflush"));
        assert_eq!(writes.try_recv().ok(), Some(NodeName::from("n1")));
    }
}
