//! When a table is read again (table.go, `Apply`). Felix is told nothing of netfilter changes: it reads
//! a table after its own writes, at distances that double until they reach an hour, and when the last
//! reading is older than the refresh interval.

use std::time::Duration;

/// Post-write checks end when their distance reaches this.
const LAST_CHECK: Duration = Duration::from_secs(3600);
const SHORTEST_POST_WRITE: Duration = Duration::from_millis(50);

/// The timers of one table. Times are the core's.
#[derive(Debug, Clone)]
pub(super) struct Timers {
    /// Zero: never by time.
    refresh: Duration,
    initial_post_write: Duration,
    post_write: Duration,
    last_read: Duration,
    last_write: Duration,
    peak_save: Duration,
    peak_restore: Duration,
    /// Whether slow saves and restores stretch the checks, and are worth a line in the log.
    pub(super) measures: bool,
}

impl Timers {
    /// Timers of a table that counts as just written, so that a new Felix checks it soon and often.
    pub(super) fn new(
        now: Duration,
        refresh: Duration,
        post_write: Duration,
        measures: bool,
    ) -> Self {
        let post_write = post_write.max(SHORTEST_POST_WRITE);
        Self {
            refresh,
            initial_post_write: post_write,
            post_write,
            // Felix's is the year 1: the first apply is a reading anyway.
            last_read: now,
            last_write: now,
            peak_save: Duration::ZERO,
            peak_restore: Duration::ZERO,
            measures,
        }
    }

    /// Why the table must be read again now, if it must; takes the checks that are due.
    pub(super) fn due(&mut self, now: Duration) -> Option<&'static str> {
        // Felix asks for strictly more time than the interval. Its clock never shows the exact instant
        // for which it set its timer, a stepped clock does.
        let refresh = !self.refresh.is_zero() && now.saturating_sub(self.last_read) >= self.refresh;
        let mut check = false;
        while self.post_write < LAST_CHECK && now >= self.last_write + self.post_write {
            self.post_write *= 2;
            check = true;
        }
        match (refresh, check) {
            (true, _) => Some("refresh timer"),
            (false, true) => Some("post update"),
            (false, false) => None,
        }
    }

    /// A reading begins.
    pub(super) fn reading(&mut self, now: Duration) {
        self.last_read = now;
    }

    /// A save ended.
    pub(super) fn saved(&mut self, took: Duration) {
        self.peak_save = took.max(self.peak_save * 99 / 100);
    }

    /// A restore ended.
    pub(super) fn restored(&mut self, took: Duration) {
        self.peak_restore = took.max(self.peak_restore * 99 / 100);
    }

    /// A write succeeded: the checks begin again.
    pub(super) fn wrote(&mut self, now: Duration) {
        self.last_write = now;
        self.post_write = self.initial_post_write;
    }

    /// An apply is over. A table that takes long to read and write is not checked all the time.
    pub(super) fn settle(&mut self) {
        if self.measures {
            self.post_write = self
                .post_write
                .max((self.peak_save + self.peak_restore) * 2);
        }
    }

    /// How long after an apply that began at `began` the next one is needed at the latest.
    pub(super) fn next(&self, began: Duration) -> Option<Duration> {
        let refresh = (!self.refresh.is_zero())
            .then(|| (self.last_read + self.refresh).saturating_sub(began));
        let check = (self.post_write < LAST_CHECK).then(|| {
            let left = (self.last_write + self.post_write).saturating_sub(began);
            left.max(Duration::from_millis(1))
        });
        refresh.into_iter().chain(check).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The instants at which an idle Felix reads a table it never writes.
    fn readings(mut timers: Timers, until: Duration) -> Vec<(u64, &'static str)> {
        let mut readings = Vec::new();
        let mut now = Duration::ZERO;
        while let Some(wait) = timers.next(now) {
            now += wait;
            if now > until {
                break;
            }
            if let Some(reason) = timers.due(now) {
                timers.reading(now);
                readings.push((now.as_secs(), reason));
            }
        }
        readings
    }

    #[test]
    fn an_idle_table_is_checked_at_doubling_distances_and_refreshed() {
        let timers = Timers::new(Duration::ZERO, secs(180), secs(5), true);
        let times: Vec<u64> = readings(timers, secs(700))
            .iter()
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(times, [5, 10, 20, 40, 80, 160, 320, 500, 640]);
    }

    #[test]
    fn the_checks_end_at_an_hour_and_a_zero_refresh_interval_disables_only_the_refresh() {
        let timers = Timers::new(Duration::ZERO, Duration::ZERO, secs(1000), true);
        assert_eq!(
            readings(timers, secs(100_000)),
            [(1000, "post update"), (2000, "post update")]
        );
    }

    #[test]
    fn a_write_starts_the_checks_anew() {
        let mut timers = Timers::new(Duration::ZERO, secs(180), secs(5), true);
        assert_eq!(timers.due(secs(100)), Some("post update"));
        assert_eq!(timers.next(secs(100)), Some(secs(60)));
        timers.wrote(secs(100));
        assert_eq!(timers.next(secs(100)), Some(secs(5)));
    }

    #[test]
    fn slow_commands_stretch_the_checks_and_the_peak_decays() {
        let mut timers = Timers::new(Duration::ZERO, secs(180), secs(1), true);
        timers.saved(secs(2));
        timers.restored(secs(3));
        timers.settle();
        assert_eq!(timers.next(Duration::ZERO), Some(secs(10)));
        timers.saved(Duration::ZERO);
        assert_eq!(timers.peak_save, Duration::from_millis(1980));
        let mut old = Timers::new(Duration::ZERO, secs(90), secs(1), false);
        old.saved(secs(2));
        old.settle();
        assert_eq!(
            old.next(Duration::ZERO),
            Some(secs(1)),
            "before v3.27 nothing stretches"
        );
    }

    #[test]
    fn a_tiny_interval_is_raised_to_fifty_milliseconds() {
        let timers = Timers::new(Duration::ZERO, secs(180), Duration::ZERO, true);
        assert_eq!(timers.next(Duration::ZERO), Some(Duration::from_millis(50)));
    }
}
