//! Whether looks at a place came soon enough to say that it was watched: whether nothing that was there for longer than the
//! backend's bound can have been missed.

use std::time::Duration;

use chainbreak_model::{
    case::Origin,
    event::{EventKind, WatchTarget, Watched},
};

use crate::{
    cluster::Cluster,
    log::{EventLog, LOOKED_WITHIN, micros},
};

/// Distance of two looks at rules without a recorded write, where a backend records writes.
const PERIOD: Duration = Duration::from_secs(2);
/// Distance of two looks at rules where nobody records who writes.
const PERIOD_UNRECORDED: Duration = Duration::from_millis(250);
/// What looks alone can promise: that distance, and a look on a busy machine.
const WITHIN_UNRECORDED: Duration = Duration::from_secs(1);

/// How closely the cluster's places are watched, for the history.
pub(crate) fn watching(cluster: &dyn Cluster) -> EventKind {
    EventKind::Watching {
        within_us: micros(cluster.sees_within()),
        unrecorded_us: Some(micros(unrecorded(cluster))),
    }
}

/// The bound in pods and on hosts.
fn unrecorded(cluster: &dyn Cluster) -> Duration {
    cluster.sees_within().max(WITHIN_UNRECORDED)
}

/// The stretch of time over which a place has been watched.
#[derive(Debug)]
pub(super) struct Attention {
    target: WatchTarget,
    /// Whether the backend tells of writes there.
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
    /// The recorded writes before it that no look before it came after.
    after: Option<Written>,
}

/// The recorded writes between two looks, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    first_us: u64,
    last_us: u64,
    /// What stood longest between two of them.
    longest: (u64, u64),
}

impl Written {
    /// There were so many that it is not known any more which.
    pub(super) const UNKNOWN: Self = Self {
        first_us: 0,
        last_us: u64::MAX,
        longest: (0, u64::MAX),
    };

    pub(super) fn at(at_us: u64) -> Self {
        Self {
            first_us: at_us,
            last_us: at_us,
            longest: (at_us, at_us),
        }
    }

    /// When the last of them ended; of [`Self::UNKNOWN`] it is not known, and no look has begun since.
    pub(super) fn last_us(self) -> u64 {
        self.last_us
    }

    /// Those, and then the others.
    pub(super) fn and(self, then: Self) -> Self {
        let between = (self.last_us, then.first_us);
        Self {
            first_us: self.first_us.min(then.first_us),
            last_us: self.last_us.max(then.last_us),
            longest: longer(longer(self.longest, between), then.longest),
        }
    }
}

fn longer(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    let length = |(from, to): (u64, u64)| to.saturating_sub(from);
    if length(other) > length(one) {
        other
    } else {
        one
    }
}

/// A time in which nobody watched.
struct Gap {
    from_us: u64,
    to_us: u64,
    why: String,
}

impl Attention {
    pub(super) fn new(at: &Origin, cluster: &dyn Cluster) -> Self {
        // What runs in pods and on hosts nobody records.
        let (records, within) = match at {
            Origin::Node(_) => (cluster.recording().is_some(), cluster.sees_within()),
            Origin::Pod { .. } | Origin::Host(_) => (false, unrecorded(cluster)),
        };
        Self {
            target: WatchTarget::Rules { at: at.clone() },
            records,
            within_us: micros(within),
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

    /// A look that was asked for then has ended just now, the first one after these writes. What it shows may be older by so
    /// much as somebody else had begun it before.
    pub(super) fn looked(
        &mut self,
        written: Option<Written>,
        began_us: u64,
        asked_us: u64,
        log: &EventLog,
    ) {
        let ended_us = log.now_us();
        if let Some(gap) = self.missed(written, asked_us) {
            self.end(gap.from_us, gap.why, log);
            self.since_us.get_or_insert(gap.to_us);
        }
        self.since_us.get_or_insert(asked_us);
        self.last = Some(Look {
            began_us,
            ended_us,
            after: written,
        });
    }

    /// A look that was to come before a barrier ended after it had gone by.
    pub(super) fn late(&mut self, asked_us: u64, log: &EventLog) {
        let why = format!("a look before a mark took longer than {LOOKED_WITHIN:?}");
        self.end(asked_us, why, log);
    }

    /// A look has not ended in time.
    pub(super) fn lost(&mut self, asked_us: u64, log: &EventLog) {
        let why = format!("a look took longer than {LOOKED_WITHIN:?}");
        self.end(asked_us, why, log);
    }

    /// What was watched without a gap, up to the end of the last look.
    pub(super) fn watched(&self) -> Option<Watched> {
        Some(Watched {
            target: self.target.clone(),
            from_us: self.since_us?,
            to_us: self.last?.ended_us,
            ended: None,
        })
    }

    /// What neither the last look nor one that was asked for then can have seen, if that lasted too long.
    fn missed(&self, written: Option<Written>, asked_us: u64) -> Option<Gap> {
        let last = self.last?;
        // Where writes are recorded, only those of somebody whom nobody records come unannounced.
        let from_us = if self.records {
            last.ended_us + micros(PERIOD)
        } else {
            last.began_us
        };
        if asked_us > from_us + self.within_us {
            let seconds = (asked_us - last.ended_us.min(asked_us)) as f64 / 1e6;
            let why = format!("nobody looked for {seconds:.2} s");
            return Some(Gap {
                from_us,
                to_us: asked_us,
                why,
            });
        }
        let written = written.filter(|_| self.records)?;
        // What the writes before the last look had left it may have missed, if the first of these came while it looked.
        let before = last.after.filter(|_| written.first_us <= last.ended_us);
        let missed = before.map_or(written.longest, |before| {
            longer((before.last_us, written.first_us), written.longest)
        });
        let (from_us, to_us) = if missed == Written::UNKNOWN.longest {
            (last.began_us, asked_us)
        } else {
            missed
        };
        let apart_us = to_us.saturating_sub(from_us);
        (apart_us > self.within_us).then(|| Gap {
            from_us,
            to_us,
            why: format!("no look between writes {} ms apart", apart_us / 1000),
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const MS: u64 = 1000;

    fn attention(records: bool, last: Look) -> Attention {
        Attention {
            target: WatchTarget::Rules {
                at: Origin::Node("n1".into()),
            },
            records,
            within_us: 50 * MS,
            since_us: Some(0),
            last: Some(last),
        }
    }

    fn writes(at_ms: &[u64]) -> Option<Written> {
        let writes = at_ms.iter().map(|ms| Written::at(ms * MS));
        writes.reduce(Written::and)
    }

    /// From when to when nobody watched, in milliseconds.
    fn gap(attention: &Attention, written: &[u64], began_ms: u64) -> Option<(u64, u64)> {
        let gap = attention.missed(writes(written), began_ms * MS)?;
        Some((gap.from_us / MS, gap.to_us / MS))
    }

    #[test]
    fn what_stood_between_two_writes_longer_than_the_bound_was_missed() {
        let last = Look {
            began_us: 100 * MS,
            ended_us: 120 * MS,
            after: writes(&[95]),
        };
        let attention = attention(true, last);
        assert_eq!(gap(&attention, &[], 300), None);
        // However late the look: what the last write left is there still.
        assert_eq!(gap(&attention, &[200], 900), None);
        assert_eq!(gap(&attention, &[200, 240, 280], 900), None);
        assert_eq!(
            gap(&attention, &[200, 240, 300, 340], 900),
            Some((240, 300))
        );
        // Only those that nobody records come without a write.
        assert_eq!(gap(&attention, &[], 2160), None);
        assert_eq!(gap(&attention, &[], 2200), Some((2120, 2200)));
    }

    #[test]
    fn of_more_writes_than_can_be_told_nothing_was_watched_since_the_last_look() {
        let last = Look {
            began_us: 100 * MS,
            ended_us: 120 * MS,
            after: None,
        };
        let attention = attention(true, last);
        let some = writes(&[500]).unwrap();
        for lost in [Written::UNKNOWN.and(some), some.and(Written::UNKNOWN)] {
            let gap = attention.missed(Some(lost), 900 * MS).unwrap();
            assert_eq!((gap.from_us, gap.to_us), (100 * MS, 900 * MS));
        }
    }

    #[test]
    fn a_write_during_a_look_may_have_taken_away_what_it_was_to_see() {
        let last = Look {
            began_us: 100 * MS,
            ended_us: 300 * MS,
            after: writes(&[95]),
        };
        assert_eq!(gap(&attention(true, last), &[130], 310), None);
        assert_eq!(gap(&attention(true, last), &[200], 310), Some((95, 200)));
        // What it looked at had been seen before.
        let without = Look {
            after: None,
            ..last
        };
        assert_eq!(gap(&attention(true, without), &[200], 310), None);
    }

    #[test]
    fn everywhere_looks_come_within_the_bound_that_the_history_tells() {
        let (_, cluster) = Fake::default().cluster();
        let EventKind::Watching {
            within_us,
            unrecorded_us: Some(unrecorded_us),
        } = watching(cluster.as_ref())
        else {
            panic!("it tells no bounds")
        };
        let node = Attention::new(&Origin::Node("n1".into()), cluster.as_ref());
        assert!(node.records);
        assert_eq!(node.within_us, within_us);
        let host = Attention::new(&Origin::Host("db".to_owned()), cluster.as_ref());
        assert!(!host.records, "no shim tells of writes there");
        assert_eq!(host.within_us, unrecorded_us);
        assert!(micros(host.period()) < unrecorded_us);
    }

    #[test]
    fn what_was_watched_ends_with_the_last_look() {
        let last = Look {
            began_us: 100 * MS,
            ended_us: 120 * MS,
            after: None,
        };
        let watched = attention(true, last).watched().unwrap();
        assert_eq!((watched.from_us, watched.to_us), (0, 120 * MS));
    }

    #[test]
    fn a_look_that_somebody_else_had_begun_counts_from_its_beginning() {
        let (log, _events) = EventLog::new();
        let last = Look {
            began_us: 100 * MS,
            ended_us: 120 * MS,
            after: None,
        };
        let mut attention = attention(false, last);
        attention.looked(None, 125 * MS, 140 * MS, &log);
        assert_eq!(gap(&attention, &[], 175), None);
        assert_eq!(gap(&attention, &[], 180), Some((125, 180)));
    }

    #[test]
    fn where_nobody_records_only_looks_tell() {
        let last = Look {
            began_us: 100 * MS,
            ended_us: 120 * MS,
            after: None,
        };
        let attention = attention(false, last);
        assert_eq!(gap(&attention, &[], 150), None);
        assert_eq!(gap(&attention, &[], 160), Some((100, 160)));
    }
}
