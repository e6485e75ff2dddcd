//! When the sync function runs: the bounded frequency runner, which kube-proxy has had in two kinds.
//!
//! Until 1.33 (`pkg/util/async`) a token bucket with a burst of two lets two runs follow each other
//! at once; a run that it refuses is put off until the shortest interval after the end of the last
//! run. From 1.34 (`pkg/proxy/runner`) there are no bursts: after a run nothing starts until the
//! shortest interval is over. In both, a run comes at the latest after the longest interval, an hour
//! (the sync period is no resync period), and a failed one is followed by another after the sync
//! period.

use std::time::Duration;

use super::profile::Profile;

/// Runs that the old kind allows at once.
const BURST: u32 = 2;

/// Decides when the function may run. Time is the core's clock.
#[derive(Debug)]
pub(crate) struct Runner {
    min_interval: Duration,
    retry_interval: Duration,
    max_interval: Duration,
    requested: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Bursts {
        /// When the timer fires.
        timer: Duration,
        /// Time saved up for runs: each costs the shortest interval.
        credit: Duration,
        credited_at: Duration,
        last_run: Option<Duration>,
        /// When a failed run is to be repeated, if the loop has not seen it yet.
        retry: Option<Duration>,
    },
    Steady {
        /// Nothing starts before.
        rested: Duration,
        /// Something starts then.
        next: Duration,
    },
}

impl Runner {
    pub(crate) fn new(
        profile: Profile,
        min_interval: Duration,
        retry_interval: Duration,
        max_interval: Duration,
        now: Duration,
    ) -> Self {
        let next = now + max_interval;
        let kind = if profile >= Profile::V1_34 {
            Kind::Steady { rested: now, next }
        } else {
            Kind::Bursts {
                timer: next,
                credit: min_interval * BURST,
                credited_at: now,
                last_run: None,
                retry: None,
            }
        };
        Self {
            min_interval,
            retry_interval,
            max_interval,
            requested: false,
            kind,
        }
    }

    /// Asks for a run as soon as possible (`Run`).
    pub(crate) fn request(&mut self) {
        self.requested = true;
    }

    /// When [`Self::start`] is to be called next, if nothing else happens.
    pub(crate) fn due(&self) -> Duration {
        match self.kind {
            Kind::Bursts { .. } if self.requested => Duration::ZERO,
            Kind::Bursts { timer, .. } => timer,
            Kind::Steady { rested, .. } if self.requested => rested,
            Kind::Steady { rested, next } => next.max(rested),
        }
    }

    /// A run is due: whether it may start. If not, it is put off.
    pub(crate) fn start(&mut self, now: Duration) -> bool {
        self.requested = false;
        match &mut self.kind {
            Kind::Steady { .. } => true,
            Kind::Bursts {
                timer,
                credit,
                credited_at,
                last_run,
                ..
            } => {
                let saved = *credit + now.saturating_sub(*credited_at);
                *credit = saved.min(self.min_interval * BURST);
                *credited_at = now;
                if let Some(left) = credit.checked_sub(self.min_interval) {
                    *credit = left;
                    return true;
                }
                *timer = last_run
                    .map_or(now, |last| last + self.min_interval)
                    .max(now);
                false
            }
        }
    }

    /// A run that was started is over.
    pub(crate) fn finished(&mut self, now: Duration, failed: bool) {
        match &mut self.kind {
            Kind::Steady { rested, next } => {
                let wait = if failed {
                    self.retry_interval
                } else {
                    self.max_interval
                };
                *rested = now + self.min_interval;
                *next = now + wait.min(self.max_interval);
            }
            Kind::Bursts {
                timer, last_run, ..
            } => {
                *last_run = Some(now);
                *timer = now + self.max_interval;
            }
        }
        self.settle();
    }

    /// A sync failed, started by the runner or not. The old kind is told so by the sync function
    /// itself (`RetryAfter`); the new one learns it only from a run that it started.
    pub(crate) fn sync_failed(&mut self, now: Duration) {
        if let Kind::Bursts { retry, .. } = &mut self.kind {
            let at = now + self.retry_interval;
            *retry = Some(retry.map_or(at, |earlier| earlier.min(at)));
        }
    }

    /// The loop sees the repeat that was asked for (`doRetry`): the timer fires then, no later.
    pub(crate) fn settle(&mut self) {
        if let Kind::Bursts { timer, retry, .. } = &mut self.kind
            && let Some(at) = retry.take()
        {
            *timer = at.min(*timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MAX_INTERVAL: Duration = Duration::from_secs(3600);
    const RETRY: Duration = Duration::from_secs(30);

    fn runner(profile: Profile) -> Runner {
        Runner::new(profile, SECOND, RETRY, MAX_INTERVAL, Duration::ZERO)
    }

    /// Runs requested at each of these times, in milliseconds; when they started. A run takes none.
    fn starts(profile: Profile, requests: &[u64], until: u64) -> Vec<u64> {
        let mut runner = runner(profile);
        let mut requests = requests.iter().copied().peekable();
        let mut starts = Vec::new();
        for now in 0..until {
            if requests.next_if_eq(&now).is_some() {
                runner.request();
            }
            let at = Duration::from_millis(now);
            if runner.due() <= at && runner.start(at) {
                starts.push(now);
                runner.finished(at, false);
            }
        }
        starts
    }

    #[test]
    fn until_1_33_two_runs_follow_each_other_at_once_and_a_third_waits() {
        assert_eq!(starts(Profile::V1_27, &[0, 1, 2, 3], 5_000), [0, 1, 1_001]);
        assert_eq!(starts(Profile::V1_33, &[0, 1, 2, 3], 5_000), [0, 1, 1_001]);
    }

    #[test]
    fn until_1_33_the_burst_is_saved_up_again_in_two_intervals() {
        let requests = [0, 1, 4_000, 4_001, 4_002];
        assert_eq!(
            starts(Profile::V1_27, &requests, 9_000),
            [0, 1, 4_000, 4_001, 5_001]
        );
    }

    #[test]
    fn from_1_34_there_are_no_bursts() {
        assert_eq!(
            starts(Profile::V1_34, &[0, 1, 2, 1_500], 5_000),
            [0, 1_000, 2_000]
        );
    }

    #[test]
    fn from_1_34_the_interval_counts_from_the_end_of_a_run() {
        let mut runner = runner(Profile::V1_34);
        runner.request();
        assert!(runner.start(Duration::ZERO));
        runner.request();
        runner.finished(5 * SECOND, false);
        assert_eq!(runner.due(), 6 * SECOND);
    }

    #[test]
    fn without_requests_a_run_comes_every_hour_and_not_every_sync_period() {
        for profile in [Profile::V1_20, Profile::V1_27, Profile::V1_34] {
            let mut runner = runner(profile);
            assert_eq!(runner.due(), MAX_INTERVAL);
            runner.request();
            assert!(runner.start(SECOND));
            runner.finished(2 * SECOND, false);
            assert_eq!(runner.due(), 2 * SECOND + MAX_INTERVAL);
        }
    }

    #[test]
    fn a_failed_run_is_repeated_after_the_sync_period_or_earlier_on_request() {
        for profile in [Profile::V1_20, Profile::V1_27, Profile::V1_34] {
            let mut runner = runner(profile);
            runner.request();
            assert!(runner.start(SECOND));
            runner.sync_failed(2 * SECOND);
            runner.finished(2 * SECOND, true);
            assert_eq!(runner.due(), 2 * SECOND + RETRY);
            runner.request();
            assert!(runner.due() <= 3 * SECOND, "{profile}");
            assert!(runner.start(3 * SECOND));
            runner.finished(3 * SECOND, false);
            assert_eq!(runner.due(), 3 * SECOND + MAX_INTERVAL);
        }
    }

    /// From 1.34 the error of a sync that the runner did not start is lost.
    #[test]
    fn a_failed_forced_sync_is_repeated_until_1_33_only() {
        for (profile, due) in [
            (Profile::V1_33, 2 * SECOND + RETRY),
            (Profile::V1_34, MAX_INTERVAL),
        ] {
            let mut runner = runner(profile);
            runner.sync_failed(2 * SECOND);
            runner.settle();
            assert_eq!(runner.due(), due);
        }
    }
}
