//! Whether the machine has room for one more case, by Linux' own measure: for how long some task that had work to do waited for a
//! processor (`/proc/pressure/cpu`, Linux 4.20, `CONFIG_PSI`). Where the kernel does not measure it, there is room.

use std::{fs, num::NonZeroUsize, thread, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

const MEASURE: &str = "/proc/pressure/cpu";
/// Distance of two looks.
const LOOK: Duration = Duration::from_millis(500);
/// More percent of the time are too many.
const MOST_PERCENT: u128 = 75;
/// And beside a case that keeps a processor busy.
const QUIET_PERCENT: u128 = 30;

/// For how much of the time tasks may wait while a case begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bearable {
    /// However long: hardly anything else runs of ours, and others' work may never end.
    Anything,
    /// Not for most of it.
    Busy,
    /// A case keeps a processor busy, or is about to.
    Quiet,
}

/// What was seen last.
#[derive(Debug)]
pub(crate) struct Pressure(watch::Sender<Look>);

#[derive(Debug, Clone, Copy)]
struct Look {
    /// The share of the last stretch in which tasks waited.
    percent: u128,
    /// So many more cases may begin on the word of this look: what they take is in the next one.
    room: usize,
}

impl Default for Pressure {
    fn default() -> Self {
        Self(watch::Sender::new(Look::of(0)))
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
                self.0
                    .send_replace(Look::of(percent(waited - before, now - then)));
            } else if now.is_none() {
                self.0.send_replace(Look::of(0));
            }
            last = now;
        }
    }

    /// Sees that none waits.
    #[cfg(test)]
    pub(crate) fn looks(&self) {
        self.0.send_replace(Look::of(0));
    }

    /// Returns when tasks wait for no more of the time than `bears` says at that moment, at once if they do and no more cases have begun
    /// since that was seen than there are processors.
    pub(crate) async fn eases(&self, bears: impl Fn() -> Bearable) {
        let most = || match bears() {
            Bearable::Anything => u128::MAX,
            Bearable::Busy => MOST_PERCENT,
            Bearable::Quiet => QUIET_PERCENT,
        };
        let has_room = |look: &Look| look.percent < most() && look.room > 0;
        let mut looks = self.0.subscribe();
        let take = |look: &mut Look| {
            let taken = has_room(look);
            look.room = look.room.saturating_sub(usize::from(taken));
            taken
        };
        while !self.0.send_if_modified(take) {
            // The sender is here: it is not gone.
            drop(looks.wait_for(has_room).await);
        }
    }
}

impl Look {
    fn of(percent: u128) -> Self {
        let room = processors();
        Self { percent, room }
    }
}

/// How many this process may use.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
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

    fn eased(pressure: &Pressure, bears: Bearable) -> bool {
        pressure.eases(|| bears).now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_case_waits_while_tasks_wait_for_a_processor() {
        let pressure = Pressure::default();
        let eased_at = |percent, bears| {
            pressure.0.send_replace(Look::of(percent));
            eased(&pressure, bears)
        };
        assert!(eased_at(0, Bearable::Busy) && eased_at(0, Bearable::Quiet));
        assert!(!eased_at(MOST_PERCENT, Bearable::Busy));
        assert!(eased_at(MOST_PERCENT - 1, Bearable::Busy));
        assert!(
            !eased_at(MOST_PERCENT - 1, Bearable::Quiet),
            "beside one that fills a table"
        );
        assert!(eased_at(QUIET_PERCENT - 1, Bearable::Quiet));
        assert!(
            eased_at(100, Bearable::Anything),
            "nothing else of ours runs"
        );
    }

    #[tokio::test]
    async fn no_more_cases_begin_on_the_word_of_one_look_than_there_are_processors() {
        let pressure = Pressure::default();
        assert!((0..processors()).all(|_| eased(&pressure, Bearable::Busy)));
        assert!(!eased(&pressure, Bearable::Busy));
        pressure.0.send_replace(Look::of(0));
        assert!(eased(&pressure, Bearable::Busy));
    }
}
