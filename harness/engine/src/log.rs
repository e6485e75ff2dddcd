//! The event log of a running case: anything appends, the sink gets events in order of arrival.

use std::{sync::Arc, time::Instant};

use chainbreak_model::event::{Event, What};
use tokio::sync::mpsc;

/// Appends events to a case's history. Cheap to clone; never blocks.
#[derive(Debug, Clone)]
pub struct EventLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: Instant,
    sink: mpsc::UnboundedSender<Event>,
}

impl EventLog {
    /// A log whose time begins now, and the end where its events come out.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (sink, events) = mpsc::unbounded_channel();
        let inner = Inner {
            start: Instant::now(),
            sink,
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
        // The receiver is gone only when the run is over: nobody is left to tell.
        drop(self.inner.sink.send(Event { at_us, what }));
    }
}
