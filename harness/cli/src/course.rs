//! The course of a run: its cases side by side, round after round, until all are over, one has failed, or a signal comes.

use std::{collections::BTreeMap, mem, ops::RangeInclusive, sync::Arc};

use chainbreak_engine::{run::stopped, timeline};
use chainbreak_model::{case::Case, plan::Planned};
use futures::{StreamExt, stream::FuturesUnordered};
use tokio::sync::watch;

use crate::{
    args::{self, course::Repetition},
    backend_choice::BackendChoice,
    live::Live,
    record::Record,
    supervise::{self, RunOptions},
    turns::{Place, Turns, fills, is_alone},
};

/// A case with its number in the run.
type Numbered = (usize, Arc<Case>);

/// A run that goes on.
pub(crate) struct Course<'a> {
    pub(crate) args: &'a args::Run,
    pub(crate) backend: &'a BackendChoice,
    pub(crate) record: &'a Record,
    pub(crate) live: &'a Live,
    pub(crate) turns: Turns,
    pub(crate) stopped: watch::Receiver<bool>,
    pub(crate) given_up: watch::Receiver<bool>,
}

impl Course<'_> {
    /// To its end. An error is what could not be recorded.
    pub(crate) async fn run(&self, mut planned: Vec<Planned>) -> anyhow::Result<()> {
        let repetition = &self.args.repetition;
        let runs = planned.iter().filter(|it| matches!(it, Planned::Run(_)));
        for round in rounds(repetition, runs.count(), self.turns.most()) {
            // Of thousands of cases there are not two plans in memory.
            let planned = if repetition.times() == 1 {
                mem::take(&mut planned)
            } else {
                repeated(&planned, &round)
            };
            let planned = self.backend.rewrite_namespaces(planned).await;
            let cases = self.record.plan(planned).await?;
            let lengths = cases
                .iter()
                .map(|(_, case)| timeline::length(&case.timeline));
            self.live.plan(lengths);
            tokio::select! {
                played = self.round(cases, *round.end() == repetition.times()) => played?,
                () = self.turns.pressure.watch() => {}
            }
            if *self.stopped.borrow() || self.is_enough() {
                break;
            }
        }
        Ok(())
    }

    /// One round. All of it is run, whatever goes wrong in a part.
    async fn round(&self, cases: Vec<Numbered>, is_last: bool) -> anyhow::Result<()> {
        let numbers = cases.iter().map(|(number, _)| *number);
        let last = numbers.max().filter(|_| is_last);
        let factory = self.backend.factory();
        let cases = match by_kin(cases, |(_, case)| factory.kin(case)) {
            Ok(cases) => return self.play(cases, last).await,
            Err(cases) => cases,
        };
        let cases = spread(cases, |(_, case)| case.scenario.clone());
        // One that changes what all worlds share is alone on the machine.
        let (alone, beside): (Vec<_>, Vec<_>) =
            cases.into_iter().partition(|(_, case)| is_alone(case));
        // What waits for its like keeps nothing else from beginning.
        let (filling, others): (Vec<_>, Vec<_>) =
            beside.into_iter().partition(|(_, case)| fills(case));
        let (filled, played) = futures::join!(self.play(filling, last), self.play(others, last));
        filled.and(played).and(self.play(alone, last).await)
    }

    /// Begins one after the other, as soon as there is room for it.
    async fn play(&self, cases: Vec<Numbered>, last: Option<usize>) -> anyhow::Result<()> {
        let mut running = FuturesUnordered::new();
        let mut broken = None;
        for (number, case) in &cases {
            let mut place = std::pin::pin!(self.turns.place(case));
            let place = loop {
                tokio::select! {
                    place = &mut place => break place?,
                    Some(ended) = running.next() => broken = broken.or(Result::err(ended)),
                }
            };
            running.push(self.one(*number, case, place, last == Some(*number)));
        }
        while let Some(ended) = running.next().await {
            broken = broken.or(Result::err(ended));
        }
        broken.map_or(Ok(()), Err)
    }

    async fn one(
        &self,
        number: usize,
        case: &Case,
        place: Place<'_>,
        is_last: bool,
    ) -> anyhow::Result<()> {
        // What has no place in the record had not begun.
        let start = tokio::select! {
            start = self.turns.start() => start?,
            () = stopped(self.stopped.clone()) => return Ok(()),
        };
        if *self.stopped.borrow() || self.record.has_failed() {
            return Ok(());
        }
        if self.is_enough() {
            let failed = self.turns.failed().unwrap_or_default();
            let reason = format!("not begun: {failed} did not come out as expected before");
            return self.record.skip(case.id(), reason).await;
        }
        let ready_within = self.args.ready_within;
        let options = RunOptions {
            keep: self.args.keeping.of(is_last),
            ready_within: ready_within.unwrap_or_else(|| self.backend.factory().ready_within()),
            backend: self.backend,
            given_up: &self.given_up,
            turns: &self.turns,
        };
        let mut recorded = self.record.case(number, case, self.live).await?;
        let stopped = self.stopped.clone();
        let history = &mut recorded.history;
        let (artifacts, place) =
            supervise::run(case, options, (place, start), stopped, history).await?;
        let verdict = recorded.end(artifacts).await?;
        // Before its place is another's: whether one may begin depends on it.
        self.turns.over(case, verdict);
        drop(place);
        Ok(())
    }

    /// Whether no case is to begin any more because one has failed.
    fn is_enough(&self) -> bool {
        self.args.repetition.ends_with_a_failure() && self.turns.failed().is_some()
    }
}

/// Which repetitions of each case run side by side, one round after the other: all in one, and until one fails as many as keep the
/// machine busy.
fn rounds(repetition: &Repetition, cases: usize, jobs: usize) -> Vec<RangeInclusive<u32>> {
    let times = repetition.times();
    let each = if repetition.until_fails {
        u32::try_from(jobs.div_ceil(cases.max(1))).unwrap_or(times)
    } else {
        times
    };
    let begins = (1..=times).step_by(each as usize);
    begins
        .map(|from| from..=times.min(from.saturating_add(each - 1)))
        .collect()
}

/// The plan of a round. What is skipped is skipped in the first one.
fn repeated(planned: &[Planned], round: &RangeInclusive<u32>) -> Vec<Planned> {
    let each = planned.iter().flat_map(|plan| match plan {
        Planned::Run(case) => round
            .clone()
            .map(|nth| Planned::Run(case.repetition(nth).into()))
            .collect(),
        Planned::Skip(_) if *round.start() > 1 => Vec::new(),
        Planned::Skip(_) => vec![plan.clone()],
    });
    each.collect()
}

/// Those of the same kin after one another, in the order in which each kin was first; as they were where some are nobody's.
fn by_kin<T>(items: Vec<T>, kin: impl Fn(&T) -> Option<String>) -> Result<Vec<T>, Vec<T>> {
    let kins: Option<Vec<String>> = items.iter().map(kin).collect();
    let Some(kins) = kins else { return Err(items) };
    let mut first: BTreeMap<&String, usize> = BTreeMap::new();
    for (at, kin) in kins.iter().enumerate() {
        first.entry(kin).or_insert(at);
    }
    let mut ranked: Vec<(usize, T)> = kins.iter().map(|kin| first[kin]).zip(items).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    Ok(ranked.into_iter().map(|(_, item)| item).collect())
}

/// What is alike as far from each other as can be. Cases of one scenario wait and work at the same times and for the same
/// things: side by side with others they keep a machine busy all the time, and are in each other's way the least.
fn spread<T, K: Ord>(items: Vec<T>, kind: impl Fn(&T) -> K) -> Vec<T> {
    let mut kinds: BTreeMap<K, usize> = BTreeMap::new();
    let mut ranks = Vec::new();
    for item in &items {
        let seen = kinds.entry(kind(item)).or_default();
        ranks.push(*seen);
        *seen += 1;
    }
    let place = |(item, rank): &(T, usize)| (2 * rank + 1, kinds[&kind(item)]);
    let mut placed: Vec<(T, usize)> = items.into_iter().zip(ranks).collect();
    placed.sort_by(|a, b| {
        let ((a, of_a), (b, of_b)) = (place(a), place(b));
        (a * of_b).cmp(&(b * of_a))
    });
    placed.into_iter().map(|(item, _)| item).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn cases_that_can_have_the_same_cluster_follow_each_other_in_their_order() {
        let kin = |name: &&str| name.chars().next().map(String::from);
        let cases = vec!["b1", "a1", "b2", "c1", "a2"];
        assert_eq!(by_kin(cases, kin), Ok(vec!["b1", "b2", "a1", "a2", "c1"]));
        assert_eq!(by_kin(vec!["b", ""], kin), Err(vec!["b", ""]));
    }

    #[test]
    fn cases_of_one_scenario_are_spread_over_the_run() {
        let kind = |name: &&str| name.chars().next();
        let cases = vec!["a1", "a2", "a3", "a4", "b1", "b2", "c1"];
        assert_eq!(
            spread(cases, kind),
            ["a1", "b1", "a2", "c1", "a3", "b2", "a4"]
        );
    }

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        repetition: Repetition,
    }

    #[test]
    fn repetitions_run_at_once_and_until_one_fails_as_many_as_there_is_room_for() {
        let rounds = |given: &str, cases, jobs| {
            let given = Given::parse_from(given.split(' '));
            let rounds = rounds(&given.repetition, cases, jobs);
            (
                rounds.len(),
                rounds[0].clone(),
                rounds[rounds.len() - 1].clone(),
            )
        };
        assert_eq!(rounds("run", 10, 14), (1, 1..=1, 1..=1));
        assert_eq!(rounds("run -n 20", 10, 14), (1, 1..=20, 1..=20));
        assert_eq!(rounds("run -n 5 --until-fails", 10, 14), (3, 1..=2, 5..=5));
        assert_eq!(
            rounds("run --until-fails", 1, 14),
            (715, 1..=14, 9997..=10_000)
        );
        assert_eq!(rounds("run --until-fails", 310, 14).0, 10_000);
    }
}
