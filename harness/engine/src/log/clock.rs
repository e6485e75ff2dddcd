//! A case's clock in two processes.

use std::time::Duration;

use chainbreak_probe::clock::monotonic_us;
use serde::{Deserialize, Serialize};

use super::micros;

/// When a case began, as `CLOCK_MONOTONIC` has it: every process of the machine that is in no other time namespace reads
/// the same. A history has one clock, its worker's; what the parent adds to it has times of that clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CaseClock {
    /// Microseconds.
    zero_us: u64,
}

impl CaseClock {
    /// Of a case that begins now.
    pub fn starting_now() -> Self {
        Self::started(Duration::ZERO)
    }

    /// Of a case that began so long ago.
    pub(super) fn started(ago: Duration) -> Self {
        Self {
            zero_us: monotonic_us().saturating_sub(micros(ago)),
        }
    }

    /// Microseconds since the case began.
    pub fn now_us(self) -> u64 {
        monotonic_us().saturating_sub(self.zero_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::EventLog;

    #[test]
    fn the_parents_time_is_the_workers_when_it_has_heard_of_its_beginning() {
        let early = CaseClock::starting_now();
        let (log, _events) = EventLog::new();
        let said = serde_json::to_string(&log.clock()).unwrap();
        let heard: CaseClock = serde_json::from_str(&said).unwrap();
        let before = log.now_us();
        let now = heard.now_us();
        let after = log.now_us();
        assert!(
            before <= now + 1 && now <= after + 1,
            "{before} {now} {after}"
        );
        assert!(early.now_us() >= now);
    }
}
