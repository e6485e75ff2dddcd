//! `--shard 2/5`: one part of a plan, as long as every other.

use std::{cmp::Reverse, collections::BTreeSet, num::NonZeroU16, time::Duration};

use super::Planned;

/// What a case takes beside its timeline: raising and destroying a cluster.
const AROUND: Duration = Duration::from_secs(2);

/// One of some parts of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    number: NonZeroU16,
    of: NonZeroU16,
}

impl Shard {
    /// All parts.
    pub fn all(of: NonZeroU16) -> impl Iterator<Item = Self> {
        (1..=of.get())
            .filter_map(NonZeroU16::new)
            .map(move |number| Self { number, of })
    }

    /// Reads `2/5`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(n, of)| Some((n.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if number <= of => Ok(Self { number, of }),
            _ => Err("write 2/5 for the second of five parts".to_owned()),
        }
    }

    /// Its cases, in the order of the plan. The parts of one plan have each case once, and each takes about
    /// as long as the others.
    pub fn of(self, planned: Vec<Planned>) -> Vec<Planned> {
        let mut order: Vec<usize> = (0..planned.len()).collect();
        order.sort_by_key(|index| Reverse(takes(&planned[*index])));
        let mut loads = vec![Duration::ZERO; usize::from(self.of.get())];
        let mut mine = BTreeSet::new();
        for index in order {
            let least = (0..loads.len()).min_by_key(|shard| loads[*shard]);
            let shard = least.expect("there is a shard");
            loads[shard] += takes(&planned[index]);
            if shard + 1 == usize::from(self.number.get()) {
                mine.insert(index);
            }
        }
        let all = planned.into_iter().enumerate();
        all.filter(|(index, _)| mine.contains(index))
            .map(|(_, plan)| plan)
            .collect()
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// How long it takes, about; nothing for what does not run.
fn takes(planned: &Planned) -> Duration {
    match planned {
        Planned::Run(case) => AROUND + case.lasts(),
        Planned::Skip(_) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Skipped;

    fn plan(count: usize) -> Vec<Planned> {
        let skipped = |number| Skipped {
            id: format!("case/{number}"),
            outside: vec!["why".to_owned()],
            missing: Vec::new(),
        };
        (0..count).map(|n| Planned::Skip(skipped(n))).collect()
    }

    #[test]
    fn every_case_is_in_exactly_one_part() {
        for of in 1..=5 {
            let parts = Shard::all(NonZeroU16::new(of).unwrap());
            let parts: Vec<Planned> = parts.flat_map(|shard| shard.of(plan(7))).collect();
            let ids: BTreeSet<String> = parts.iter().map(Planned::id).collect();
            assert_eq!((parts.len(), ids.len()), (7, 7), "{of} parts");
        }
    }

    #[test]
    fn a_part_is_written_as_a_fraction_and_nothing_else() {
        assert_eq!(Shard::parse("2/5").unwrap().to_string(), "2/5");
        for wrong in ["", "2", "0/5", "6/5", "2/0", "2/5/1", "-1/5", "a/b"] {
            let why = Shard::parse(wrong).unwrap_err();
            assert!(why.contains("2/5"), "{wrong}: {why}");
        }
    }
}
