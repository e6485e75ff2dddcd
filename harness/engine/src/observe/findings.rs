//! What was found at one place, as far as it is to be told.

use std::collections::BTreeMap;

use chainbreak_model::{
    case::Origin,
    event::{EventKind, RulesSeen},
    names::QueryId,
};
use chainbreak_netfilter::Tally;
use futures::future::join_all;

use super::{
    Wanted,
    seen::Seen,
    watched::{Packets, Watched},
};
use crate::{
    cluster::Place,
    infra_error::InfraError,
    log::EventLog,
    looks::{Looks, Source},
};

/// What the looks at one place came to so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// What was found of each rule and element.
    found: BTreeMap<QueryId, usize>,
    /// What of this was not told yet.
    untold: Vec<(QueryId, usize)>,
    counters: Counters,
    told: Option<Counters>,
    tallies: BTreeMap<QueryId, Tally>,
}

/// The values of counters.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counters {
    values: BTreeMap<QueryId, u64>,
    rewritten: BTreeMap<QueryId, u64>,
    unmatched: BTreeMap<QueryId, String>,
}

impl Findings {
    /// Takes in what looks show that begin at `since_us` or later, and says when the first of them began.
    pub(super) async fn look(
        &mut self,
        looks: &Looks,
        at: &Origin,
        watched: &Watched,
        wanted: Wanted,
        since_us: u64,
    ) -> Result<Option<u64>, InfraError> {
        let at = &Place::from(at);
        // Side by side: the shorter a look, the less is missed.
        let looks = watched
            .sources(wanted)
            .map(|source| async move { (source, looks.look(at, source, since_us).await) });
        let mut began_us: Option<u64> = None;
        for (source, reading) in join_all(looks).await {
            let reading = reading?;
            let unread = |error| InfraError::new(format!("read the rules of {at}"), error);
            let seen = Seen::of(source, &reading.text).map_err(unread)?;
            self.take(watched, source, &seen);
            let earliest = began_us.unwrap_or(reading.began_us);
            began_us = Some(earliest.min(reading.began_us));
        }
        Ok(began_us)
    }

    fn take(&mut self, watched: &Watched, source: &Source, seen: &Seen) {
        for (query, count) in watched.found(source, seen) {
            if self.found.insert(query.clone(), count) != Some(count) {
                self.untold.push((query, count));
            }
        }
        self.counters.values.extend(watched.numbers(source, seen));
        for Packets {
            counter,
            counters,
            unmatched,
        } in watched.counted(source, seen)
        {
            self.counters.unmatched.remove(&counter);
            let unmatched = unmatched.map(|text| (counter.clone(), text));
            self.counters.unmatched.extend(unmatched);
            let tally = self.tallies.entry(counter.clone()).or_default();
            tally.see(counters);
            self.counters
                .values
                .insert(counter.clone(), tally.packets());
            if tally.rewritten() > 0 {
                self.counters.rewritten.insert(counter, tally.rewritten());
            }
        }
    }

    /// The rules are as old as their command is young: the time before it started would be too early for what
    /// it found, the time after it a few milliseconds late. Late is honest: a rule is never said to be
    /// missing before it was.
    pub(super) fn tell(&mut self, at: &Origin, log: &EventLog) {
        if let Origin::Node(node) = at {
            for (query, count) in self.untold.drain(..) {
                let node = node.clone();
                log.append(EventKind::Rules(RulesSeen { node, query, count }));
            }
        }
        if self.counters != Counters::default() && self.told.as_ref() != Some(&self.counters) {
            let Counters {
                values,
                rewritten,
                unmatched,
            } = self.counters.clone();
            let at = at.clone();
            log.append(EventKind::Counters {
                at,
                values,
                rewritten,
                unmatched,
            });
            self.told = Some(self.counters.clone());
        }
    }
}
