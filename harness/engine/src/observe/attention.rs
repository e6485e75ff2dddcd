//! Whether looks at a place came soon enough to say that it was watched.

use std::time::Duration;

use chainbreak_model::{case::Origin, event::WatchTarget};

use crate::{
    cluster::Cluster,
    log::{EventLog, LOOKED_WITHIN},
};

/// Distance of two looks at rules without a recorded write, where a backend records writes.
const PERIOD: Duration = Duration::from_secs(2);
/// Distance of two looks at rules where nobody records who writes.
const PERIOD_UNRECORDED: Duration = Duration::from_millis(250);

/// The stretch of time over which a place has been watched.
#[derive(Debug)]
pub(super) struct Attention {
    target: WatchTarget,
    /// Whether the backend tells of writes.
    records: bool,
    within_us: u64,
    /// Since when without a gap.
    since_us: Option<u64>,
    last: Option<Look>,
}

/// The last look, which has ended.
#[derive(Debug, Clone, Copy)]
struct Look {
    began_us: u64,
    ended_us: u64,
}

impl Attention {
    pub(super) fn new(at: &Origin, cluster: &dyn Cluster) -> Self {
        Self {
            target: WatchTarget::Rules { at: at.clone() },
            records: cluster.records(),
            within_us: micros(cluster.sees_within()),
            since_us: None,
            last: None,
        }
    }

    /// How long nobody looks when nothing is written.
    pub(super) fn period(&self) -> Duration {
        if self.records {
            PERIOD
        } else {
            PERIOD_UNRECORDED
        }
    }

    /// A look has ended just now. `written_us` is the first recorded write that it was the first to come after.
    pub(super) fn looked(&mut self, written_us: Option<u64>, began_us: u64, log: &EventLog) {
        let ended_us = log.now_us();
        if let Some((due_us, why)) = self.missed(written_us, began_us) {
            self.end(due_us, why, log);
        }
        self.since_us.get_or_insert(began_us);
        self.last = Some(Look { began_us, ended_us });
    }

    /// A look has not ended in time.
    pub(super) fn lost(&mut self, began_us: u64, log: &EventLog) {
        let why = format!("a look took longer than {LOOKED_WITHIN:?}");
        self.end(began_us, why, log);
    }

    /// What is watched, and since when without a gap.
    pub(super) fn watching(&self) -> Option<(WatchTarget, u64)> {
        Some((self.target.clone(), self.since_us?))
    }

    /// When that look was due, and why it came too late, if it did.
    fn missed(&self, written_us: Option<u64>, began_us: u64) -> Option<(u64, String)> {
        let last = self.last?;
        let idle = |since_us: u64| {
            let seconds = began_us.saturating_sub(since_us) as f64 / 1e6;
            (since_us, format!("nobody looked for {seconds:.2} s"))
        };
        let due = if self.records {
            let written = written_us.map(|at_us| {
                let late = began_us.saturating_sub(at_us) as f64 / 1e3;
                let why = format!("the look after a recorded write came {late:.0} ms later");
                (at_us, why)
            });
            let (since_us, why) = idle(last.ended_us);
            written.unwrap_or((since_us + micros(PERIOD), why))
        } else {
            idle(last.began_us)
        };
        (began_us > due.0 + self.within_us).then_some(due)
    }

    fn end(&mut self, at_us: u64, why: String, log: &EventLog) {
        if let Some(since_us) = self.since_us.take() {
            log.watched(
                self.target.clone(),
                since_us,
                at_us.max(since_us),
                Some(why),
            );
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
