//! Looks whether the machine has time for the case: whether something of it had work to do and got no processor, or the processor that it
//! got was a virtual one that waited itself.
//!
//! Linux counts what a task waited when its wait is over. So a long wait shows in one look, and began before the look that came before.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chainbreak_model::event::{EventKind, Starved};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::{
    cluster::{Cluster, Waited, Waiter},
    log::{EventLog, micros},
};

/// Distance of two looks.
const LOOK: Duration = Duration::from_millis(250);
/// A task that waited for less than so many percent of the time between two looks has its share of a busy machine.
const STARVES_PERCENT: u64 = 75;
/// Shorter stretches are nothing.
const TOLD_US: u64 = 500_000;

/// What was seen of the case's tasks and of the processors.
pub(crate) struct Starvation {
    cluster: Arc<dyn Cluster>,
    last: Option<Look>,
    stretch: Option<Stretch>,
}

/// A look at all of them.
struct Look {
    at_us: u64,
    /// How long each had waited in its life.
    waits: BTreeMap<Waiter, Waited>,
    /// Since when each may have been waiting: it was seen asleep then, or has run since. 0 where neither is known.
    since_us: BTreeMap<Waiter, u64>,
}

/// What waited longest between two looks.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    waited_us: u64,
    /// None is the look itself.
    waiter: Option<Waiter>,
    /// How long it had a processor meanwhile, where that is known.
    ran_us: Option<u64>,
}

/// A time in which one or another was starved at every look.
struct Stretch {
    starved: Starved,
    /// The longest wait in it.
    longest_us: u64,
}

impl Starvation {
    /// Has not looked yet.
    pub(crate) fn new(cluster: &Arc<dyn Cluster>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            last: None,
            stretch: None,
        }
    }

    /// Looks again and again, until dropped.
    pub(crate) async fn watch(&mut self, log: &EventLog) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look(log).await;
        }
    }

    /// Looks for the last time.
    pub(crate) async fn end(mut self, log: &EventLog) {
        self.look(log).await;
        tell(self.stretch, log);
    }

    async fn look(&mut self, log: &EventLog) {
        let cluster = Arc::clone(&self.cluster);
        let looked = spawn_blocking(move || match cluster.scheduling() {
            Some(scheduling) => scheduling.waits(),
            None => BTreeMap::new(),
        });
        // A look that panicked has seen no task.
        let waits = looked.await.unwrap_or_default();
        let look = Look::new(log.now_us(), waits, self.last.as_ref());
        let starved = self.last.as_ref().and_then(|last| look.starved(last));
        let over = match starved {
            Some(wait) => {
                self.extend(self.name(wait.waiter), look.at_us, &wait);
                None
            }
            None => self.stretch.take(),
        };
        tell(over, log);
        self.last = Some(look);
    }

    fn name(&self, waiter: Option<Waiter>) -> String {
        let scheduling = self.cluster.scheduling();
        match scheduling.zip(waiter) {
            Some((scheduling, waiter)) => scheduling.name_of(waiter),
            None => "the harness".to_owned(),
        }
    }

    /// The present stretch goes on to that wait, or one begins with it.
    fn extend(&mut self, who: String, at_us: u64, wait: &Wait) {
        let Wait {
            waited_us, ran_us, ..
        } = *wait;
        let from_us = at_us.saturating_sub(waited_us);
        let since_us = self.last.as_ref().map_or(from_us, |last| last.at_us);
        let from_us = from_us.min(since_us);
        let Some(stretch) = &mut self.stretch else {
            let starved = Starved {
                who,
                from_us,
                to_us: at_us,
                waited_us,
                ran_us,
            };
            self.stretch = Some(Stretch {
                starved,
                longest_us: waited_us,
            });
            return;
        };
        let starved = &mut stretch.starved;
        starved.from_us = starved.from_us.min(from_us);
        starved.to_us = at_us;
        let length_us = starved.to_us - starved.from_us;
        starved.waited_us = (starved.waited_us + waited_us).min(length_us);
        starved.ran_us = starved.ran_us.zip(ran_us).map(|(before, now)| before + now);
        if waited_us > stretch.longest_us {
            starved.who = who;
            stretch.longest_us = waited_us;
        }
    }
}

impl Look {
    fn new(at_us: u64, waits: BTreeMap<Waiter, Waited>, last: Option<&Self>) -> Self {
        let since = |(waiter, waited): (&Waiter, &Waited)| {
            let since_us = match last {
                _ if !waited.runnable => at_us,
                Some(last) if last.runs(*waiter) != waited.runs => last.at_us,
                Some(last) => last.since_us(*waiter),
                None => 0,
            };
            (*waiter, since_us)
        };
        let since_us = waits.iter().map(since).collect();
        Self {
            at_us,
            waits,
            since_us,
        }
    }

    /// Since when that one may have been waiting. One that it has not seen began later.
    fn since_us(&self, waiter: Waiter) -> u64 {
        self.since_us.get(&waiter).copied().unwrap_or(self.at_us)
    }

    fn runs(&self, waiter: Waiter) -> u64 {
        self.waits.get(&waiter).map_or(0, |waited| waited.runs)
    }

    /// What waited longest since the last look, if that was too long a part of it: one of them, or the look itself, which is then late.
    fn starved(&self, last: &Self) -> Option<Wait> {
        let elapsed_us = self.at_us.saturating_sub(last.at_us);
        let since = |(waiter, waited): (&Waiter, &Waited)| {
            let before = last.waits.get(waiter).copied().unwrap_or_default();
            let waited_us = micros(waited.for_now.saturating_sub(before.for_now));
            // Who starves is hardly ever seen asleep, and who slept or ran did not wait meanwhile, whatever Linux counts.
            let wanted = before.runnable || waited.runnable;
            let most_us = self.at_us.saturating_sub(last.since_us(*waiter));
            let ran_us = micros(waited.ran.saturating_sub(before.ran));
            Wait {
                waited_us: if wanted { waited_us.min(most_us) } else { 0 },
                waiter: Some(*waiter),
                ran_us: matches!(waiter, Waiter::Task(_)).then_some(ran_us),
            }
        };
        let own = Wait {
            waited_us: elapsed_us.saturating_sub(micros(LOOK)),
            waiter: None,
            ran_us: None,
        };
        let wait = self.waits.iter().map(since).chain([own]).max()?;
        let starves = wait.waited_us > 0 && wait.waited_us * 100 >= elapsed_us * STARVES_PERCENT;
        starves.then_some(wait)
    }
}

/// A stretch that is over.
fn tell(stretch: Option<Stretch>, log: &EventLog) {
    let starved = stretch.map(|stretch| stretch.starved);
    if let Some(starved) = starved.filter(|starved| starved.waited_us >= TOLD_US) {
        log.append(EventKind::Starved(starved));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const MS: u64 = 1000;

    /// The first, at tasks that all want a processor.
    fn look(at_ms: u64, waits_ms: &[(u32, u64)]) -> Look {
        let waited = |(task, ms): &(u32, u64)| (Waiter::Task(*task), waited(*ms, true));
        let waits = waits_ms.iter().map(waited);
        Look::new(at_ms * MS, waits.collect(), None)
    }

    fn waited(ms: u64, runnable: bool) -> Waited {
        Waited {
            for_now: Duration::from_millis(ms),
            runnable,
            ..Waited::default()
        }
    }

    /// Of a task that ran for ten milliseconds meanwhile.
    fn wait_of(waited_ms: u64) -> Wait {
        Wait {
            waited_us: waited_ms * MS,
            waiter: Some(Waiter::Task(7)),
            ran_us: Some(10 * MS),
        }
    }

    /// What waited between two looks, in milliseconds.
    fn starved(last: &Look, now: &Look) -> Option<(Option<Waiter>, u64)> {
        now.starved(last)
            .map(|wait| (wait.waiter, wait.waited_us / MS))
    }

    #[test]
    fn a_task_that_waited_for_most_of_the_time_between_two_looks_was_starved() {
        let last = look(1000, &[(7, 100), (8, 900)]);
        let now = |waits: &[(u32, u64)]| starved(&last, &look(1250, waits));
        assert_eq!(
            now(&[(7, 280), (8, 900)]),
            None,
            "its share of a busy machine"
        );
        assert_eq!(
            now(&[(7, 300), (8, 900)]),
            Some((Some(Waiter::Task(7)), 200))
        );
        assert_eq!(
            now(&[(9, 190)]),
            Some((Some(Waiter::Task(9)), 190)),
            "it began meanwhile"
        );
        // What was over only now began before the last look.
        assert_eq!(now(&[(7, 1300)]), Some((Some(Waiter::Task(7)), 1200)));
    }

    #[test]
    fn a_task_that_slept_did_not_wait_however_long_linux_says_it_did() {
        let looks = |seen: [(u64, bool); 3]| {
            let mut last = None;
            let mut waited_for = Vec::new();
            for (at_ms, (ms, runnable)) in [1000, 1250, 1500].into_iter().zip(seen) {
                let waits = BTreeMap::from([(Waiter::Task(7), waited(ms, runnable))]);
                let now = Look::new(at_ms * MS, waits, last.as_ref());
                waited_for.extend(last.map(|last| starved(&last, &now)));
                last = Some(now);
            }
            waited_for
        };
        let of = |ms| Some((Some(Waiter::Task(7)), ms));
        assert_eq!(
            looks([(0, true), (0, true), (1400, true)]),
            [None, of(1400)]
        );
        // It had slept until the first look, or the second, or between all of them.
        assert_eq!(
            looks([(0, false), (0, true), (1400, true)]),
            [None, of(500)]
        );
        assert_eq!(
            looks([(0, true), (0, false), (1400, true)]),
            [None, of(250)]
        );
        assert_eq!(looks([(0, true), (0, false), (1400, false)]), [None, None]);
    }

    #[test]
    fn a_task_that_ran_meanwhile_did_not_wait_all_the_time_however_long_linux_says_it_did() {
        let waited_after = |runs: [u64; 4]| {
            let mut last: Option<Look> = None;
            let mut waited_for = None;
            for (number, runs) in (0..).zip(runs) {
                let ms = if number == 3 { 1000 } else { 0 };
                let waited = Waited {
                    runs,
                    ran: Duration::from_millis(20 * runs),
                    ..waited(ms, true)
                };
                let waits = BTreeMap::from([(Waiter::Task(7), waited)]);
                let now = Look::new((1000 + 250 * number) * MS, waits, last.as_ref());
                waited_for = last.and_then(|last| now.starved(&last));
                last = Some(now);
            }
            let wait = waited_for?;
            assert_eq!(wait.ran_us, Some(20 * MS));
            Some(wait.waited_us / MS)
        };
        assert_eq!(waited_after([5, 5, 5, 6]), Some(1000), "one wait");
        assert_eq!(
            waited_after([5, 6, 6, 7]),
            Some(750),
            "it ran before the second look"
        );
        assert_eq!(
            waited_after([5, 6, 7, 8]),
            Some(500),
            "and before the third"
        );
    }

    #[test]
    fn a_virtual_processor_that_its_hypervisor_took_away_was_starved_though_no_task_waited() {
        let look = |at_ms: u64, stolen_ms: u64| {
            let processor = (Waiter::VirtualProcessor(1), waited(stolen_ms, true));
            let task = (Waiter::Task(7), waited(0, true));
            Look::new(at_ms * MS, BTreeMap::from([processor, task]), None)
        };
        let first = look(1000, 40);
        assert_eq!(starved(&first, &look(1250, 220)), None);
        let stolen = Some((Some(Waiter::VirtualProcessor(1)), 190));
        assert_eq!(starved(&first, &look(1250, 230)), stolen);
    }

    #[test]
    fn a_look_that_comes_late_tells_of_the_harness_itself() {
        let last = look(1000, &[]);
        assert_eq!(starved(&last, &look(1260, &[])), None);
        assert_eq!(starved(&last, &look(2500, &[])), Some((None, 1250)));
    }

    #[test]
    fn waits_without_a_break_are_one_stretch_that_is_told_when_it_is_long() {
        let (_, cluster) = Fake::default().cluster();
        let mut starvation = Starvation::new(&cluster);
        starvation.last = Some(look(1000, &[]));
        let mut wait = |who: &str, at_ms: u64, waited_ms: u64| {
            starvation.extend(who.to_owned(), at_ms * MS, &wait_of(waited_ms));
            starvation.last = Some(look(at_ms, &[]));
        };
        wait("kube-proxy@n1", 1250, 200);
        wait("iptables-restore", 1500, 240);
        wait("nginx", 1750, 190);
        let stretch = starvation.stretch.take();
        let (log, mut events) = EventLog::new();
        tell(stretch, &log);
        let EventKind::Starved(starved) = events.try_recv().unwrap().what else {
            panic!("it tells of something else")
        };
        let told = Starved {
            who: "iptables-restore".to_owned(),
            from_us: 1000 * MS,
            to_us: 1750 * MS,
            waited_us: 630 * MS,
            ran_us: Some(30 * MS),
        };
        assert_eq!(starved, told);
    }

    #[test]
    fn a_short_stretch_is_not_told() {
        let (_, cluster) = Fake::default().cluster();
        let mut starvation = Starvation::new(&cluster);
        starvation.extend("nginx".to_owned(), 1250 * MS, &wait_of(250));
        let (log, mut events) = EventLog::new();
        tell(starvation.stretch.take(), &log);
        assert!(events.try_recv().is_err());
    }
}
