//! Whether the machine has room for one more case, by Linux' own measure: for how long some task that had work to do waited for a
//! processor (`/proc/pressure/cpu`, Linux 4.20, `CONFIG_PSI`). Where the kernel does not measure it, there is room.

use std::{fs, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

const MEASURE: &str = "/proc/pressure/cpu";
/// Distance of two looks.
const LOOK: Duration = Duration::from_millis(500);
/// More percent of the time are too many.
const MOST_PERCENT: u128 = 75;

/// The share of the last stretch in which tasks waited.
#[derive(Debug)]
pub(crate) struct Pressure(watch::Sender<u128>);

impl Default for Pressure {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Pressure {
    /// Looks again and again, until dropped.
    pub(crate) async fn watch(&self) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            ticks.tick().await;
            let now = waited_us().map(|waited| (Instant::now(), waited));
            if let (Some((then, before)), Some((now, waited))) = (last, now) {
                self.0.send_replace(percent(waited - before, now - then));
            }
            last = now;
        }
    }

    /// Returns when tasks wait for a shorter share of the time than is too much, at once if they do.
    pub(crate) async fn eases(&self) {
        let eased = |percent: &u128| *percent < MOST_PERCENT;
        // The sender is here: it is not gone.
        drop(self.0.subscribe().wait_for(eased).await);
    }
}

fn percent(waited_us: u64, of: Duration) -> u128 {
    u128::from(waited_us) * 100 / of.as_micros().max(1)
}

/// For how long some task has waited since the machine started, in µs.
fn waited_us() -> Option<u64> {
    total_us(&fs::read_to_string(MEASURE).ok()?)
}

fn total_us(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line.split(' ').find_map(|it| it.strip_prefix("total="))?;
    total.parse().ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let text = "some avg10=0.00 avg60=17.38 avg300=39.14 total=4135193670\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total_us(text), Some(4_135_193_670));
        assert_eq!(total_us(""), None);
        assert_eq!(percent(400_000, LOOK), 80);
    }

    #[tokio::test]
    async fn a_case_waits_while_tasks_wait_for_a_processor_and_not_where_nobody_measures() {
        let pressure = Pressure::default();
        assert!(pressure.eases().now_or_never().is_some());
        pressure.0.send_replace(MOST_PERCENT);
        assert!(pressure.eases().now_or_never().is_none());
        pressure.0.send_replace(MOST_PERCENT - 1);
        assert!(pressure.eases().now_or_never().is_some());
    }
}
