//! Looks at what rules, elements and counters a place has: everybody who wants to know asks here, and what one look shows
//! serves all who asked for it. A look costs a process or more in the network that is measured.
//!
//! A reading is given only to those for whom its look began soon enough; in doubt there is a new look. One that fails, or that
//! hangs, does so for all who wait for it; it ends when none of them waits any longer.

mod shells;
mod source;
mod tables;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use crate::{
    cluster::{Cluster, Place},
    infra_error::InfraError,
    log::EventLog,
};
use shells::Shells;
pub(crate) use source::Source;

/// How long a reading is kept for those who take one that is over, in microseconds.
pub(crate) const KEPT_US: u64 = 1_000_000;

/// What a look showed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// When the look began, in microseconds since the case did. What was there before may be gone.
    pub(crate) began_us: u64,
    /// When it was over. What came later it does not show.
    pub(crate) ended_us: u64,
    /// What the command printed; empty where there is no such table.
    pub(crate) text: String,
}

/// A source at a place.
type Key = (Place, Source);
/// A look that goes on.
type Looking = BoxFuture<'static, Result<Arc<Reading>, InfraError>>;

/// One cluster's looks.
pub(crate) struct Looks {
    shells: Arc<Shells>,
    log: EventLog,
    known: Mutex<BTreeMap<Key, Known>>,
}

/// What is known of a source at a place.
#[derive(Default)]
struct Known {
    /// The look that began last, if it is not over, and when it began. It is theirs who wait for it.
    going_on: Option<(u64, WeakShared<Looking>)>,
    /// Of the looks that are over the one that began last, for a while.
    last: Option<Arc<Reading>>,
    /// Whether a look has ever found something.
    was_there: bool,
}

impl Looks {
    pub(crate) fn new(cluster: Arc<dyn Cluster>, log: EventLog) -> Self {
        let stand = cluster.recording().is_none();
        Self {
            shells: Arc::new(Shells::new(cluster, stand)),
            log,
            known: Mutex::default(),
        }
    }

    /// What a look shows that began at `since_us` or later, and that was not over when it was asked for.
    pub(crate) async fn look(
        &self,
        at: &Place,
        source: &Source,
        since_us: u64,
    ) -> Result<Arc<Reading>, InfraError> {
        let key = (at.clone(), source.clone());
        let (began_us, looking) = self.looking(&key, since_us);
        let read = looking.await;
        self.over(&key, began_us, &read);
        read
    }

    /// What a look shows that began at `since_us` or later, also one that was over already.
    pub(crate) async fn read(
        &self,
        at: &Place,
        source: &Source,
        since_us: u64,
    ) -> Result<Arc<Reading>, InfraError> {
        match self.last(at, source, since_us) {
            Some(reading) => Ok(reading),
            None => self.look(at, source, since_us).await,
        }
    }

    fn last(&self, at: &Place, source: &Source, since_us: u64) -> Option<Arc<Reading>> {
        let all = self.all();
        let last = all.get(&(at.clone(), source.clone()))?.last.as_ref()?;
        (last.began_us >= since_us).then(|| Arc::clone(last))
    }

    /// The look that goes on, if it began soon enough, or a new one; and when it began.
    fn looking(&self, key: &Key, since_us: u64) -> (u64, Shared<Looking>) {
        let mut all = self.all();
        let known = all.entry(key.clone()).or_default();
        if let Some((began_us, going_on)) = &known.going_on
            && *began_us >= since_us
            && let Some(looking) = going_on.upgrade()
        {
            return (*began_us, looking);
        }
        let began_us = self.log.now_us();
        let looking = self.begin(key.clone(), known.was_there, began_us).shared();
        known.going_on = looking.downgrade().map(|looking| (began_us, looking));
        (began_us, looking)
    }

    fn begin(&self, (at, source): Key, was_there: bool, began_us: u64) -> Looking {
        let (shells, log) = (Arc::clone(&self.shells), self.log.clone());
        let look = async move {
            let argv = source.argv(was_there);
            let doing = format!("run {argv:?} in {at}");
            match source.shown(shells.run(&at, argv).await) {
                Ok(text) => Ok(Arc::new(Reading {
                    began_us,
                    ended_us: log.now_us(),
                    text,
                })),
                Err(why) => Err(InfraError::new(doing, why)),
            }
        };
        look.boxed()
    }

    /// The look that began then has come to that.
    fn over(&self, key: &Key, began_us: u64, read: &Result<Arc<Reading>, InfraError>) {
        let now_us = self.log.now_us();
        let mut all = self.all();
        for known in all.values_mut() {
            known.last.take_if(|it| it.began_us + KEPT_US < now_us);
        }
        let known = all.entry(key.clone()).or_default();
        // Whoever asks from now on asks for one that is not over.
        known.going_on.take_if(|(began, _)| *began == began_us);
        let Ok(reading) = read else { return };
        known.was_there |= !reading.text.is_empty();
        let is_newer = |last: &Arc<Reading>| reading.began_us > last.began_us;
        if known.last.as_ref().is_none_or(is_newer) {
            known.last = Some(Arc::clone(reading));
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::fake::{Commands, Fake};

    fn looks(commands: Commands) -> (Arc<Fake>, Looks, Key) {
        let (fake, cluster) = Fake {
            commands,
            ..Fake::default()
        }
        .cluster();
        let (log, _events) = EventLog::new();
        let key = (Place::Node("n1".into()), Source::Conntrack);
        (fake, Looks::new(cluster, log), key)
    }

    fn said() -> Commands {
        Commands::Shell("echo said".to_owned(), Duration::ZERO)
    }

    #[tokio::test]
    async fn who_asks_while_a_look_goes_on_shares_its_process() {
        let (fake, looks, (at, source)) = looks(said());
        let since_us = looks.log.now_us();
        let one = looks.look(&at, &source, since_us);
        let (one, other) = tokio::join!(one, looks.look(&at, &source, since_us));
        assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()));
        assert_eq!(fake.asked().len(), 1);
    }

    #[tokio::test]
    async fn a_reading_that_is_older_than_asked_for_is_never_given() {
        let (fake, looks, (at, source)) = looks(said());
        let first = looks.read(&at, &source, 0).await.unwrap();
        let again = looks.read(&at, &source, first.began_us).await.unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let later_us = first.began_us + 1;
        let newer = looks.read(&at, &source, later_us).await.unwrap();
        assert!(newer.began_us >= later_us);
        assert_eq!(fake.asked().len(), 2);
        looks.look(&at, &source, 0).await.unwrap();
        assert_eq!(fake.asked().len(), 3, "what is over shows nothing later");
    }

    #[test]
    fn a_look_that_began_before_is_not_waited_for() {
        let (_, looks, key) = looks(Commands::Hang);
        let (began_us, early) = looks.looking(&key, 0);
        assert!(looks.looking(&key, began_us).1.ptr_eq(&early));
        assert!(!looks.looking(&key, began_us + 1).1.ptr_eq(&early));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_does_so_for_all_who_share_it_and_for_nobody_after_them() {
        let (fake, looks, (at, source)) = looks(Commands::Hang);
        for looked in 1..=2 {
            let patience = Duration::from_secs(1);
            let one = timeout(patience, looks.look(&at, &source, 0));
            let other = timeout(patience, looks.look(&at, &source, 0));
            let (one, other) = tokio::join!(one, other);
            assert!(one.is_err() && other.is_err());
            assert_eq!(fake.asked().len(), looked);
        }
    }

    #[tokio::test]
    async fn what_was_found_once_is_not_looked_for_again_before_it_is_read() {
        let (fake, looks, (at, _)) = looks(said());
        let table = "nat".to_owned();
        let program = "iptables-save";
        let nat = Source::Save { program, table };
        for _ in 0..2 {
            looks.look(&at, &nat, 0).await.unwrap();
        }
        let asked = fake.asked();
        assert!(asked[0].starts_with("sh -c"), "{asked:?}");
        assert_eq!(asked[1], "iptables-save -c -t nat");
    }
}
