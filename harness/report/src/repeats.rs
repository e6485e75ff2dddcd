//! How often each case came out as expected that was run more than once: for one that expects an incident, how often the incident
//! reproduces.

use std::fmt;

use chainbreak_model::case::repeated_case;
use indexmap::IndexMap;

use crate::summary::{Outcome, Summary};

/// The quantile of the normal distribution for 95 %, both sides.
const Z: f64 = 1.959_964;

/// How often a case came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) as_expected: u32,
    pub(crate) judged: u32,
    pub(crate) inconclusive: u32,
}

/// Of each case that was repeated, in their order.
pub(crate) fn rates(summaries: &[Summary]) -> Vec<(&str, Rate)> {
    let mut rates = IndexMap::<&str, Rate>::new();
    for summary in summaries {
        let Some(case) = repeated_case(&summary.id) else {
            continue;
        };
        if !summary.outcome.has_run() {
            continue;
        }
        let rate = rates.entry(case).or_default();
        match summary.outcome {
            Outcome::AsExpected => {
                rate.as_expected += 1;
                rate.judged += 1;
            }
            Outcome::NotAsExpected => rate.judged += 1,
            Outcome::Inconclusive => rate.inconclusive += 1,
            Outcome::Skipped | Outcome::NotBegun => {}
        }
    }
    rates.into_iter().collect()
}

impl Rate {
    /// Between which shares the true one lies with 95 % confidence (Wilson's score interval, which is right for few and for all or none,
    /// too).
    pub(crate) fn interval(self) -> Option<[f64; 2]> {
        if self.judged == 0 {
            return None;
        }
        let (all, z2) = (f64::from(self.judged), Z * Z);
        let share = f64::from(self.as_expected) / all;
        let middle = share + z2 / (2.0 * all);
        let half = Z * (share * (1.0 - share) / all + z2 / (4.0 * all * all)).sqrt();
        let whole = 1.0 + z2 / all;
        Some([middle - half, middle + half].map(|it| (it / whole).clamp(0.0, 1.0)))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            as_expected,
            judged,
            inconclusive,
        } = self;
        write!(f, "as expected {as_expected} of {judged} times")?;
        if let Some([low, high]) = self.interval() {
            let [low, high] = [low, high].map(|share| share * 100.0);
            write!(f, ", {low:.0} to {high:.0} % with 95 % confidence")?;
        }
        match inconclusive {
            0 => Ok(()),
            some => write!(f, "; {some} inconclusive"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::of_skipped;

    #[test]
    fn a_rate_is_told_with_what_it_may_truly_be() {
        let told = |as_expected, judged, inconclusive| {
            let rate = Rate {
                as_expected,
                judged,
                inconclusive,
            };
            rate.to_string()
        };
        // Figures of Wilson's interval, as tables and R's `prop.test(correct = FALSE)` have them.
        assert_eq!(
            told(20, 20, 0),
            "as expected 20 of 20 times, 84 to 100 % with 95 % confidence"
        );
        assert_eq!(
            told(1, 10, 2),
            "as expected 1 of 10 times, 2 to 40 % with 95 % confidence; 2 inconclusive"
        );
        assert_eq!(
            told(0, 5, 0),
            "as expected 0 of 5 times, 0 to 43 % with 95 % confidence"
        );
        assert_eq!(told(0, 0, 3), "as expected 0 of 0 times; 3 inconclusive");
    }

    #[test]
    fn repetitions_of_a_case_are_counted_together_and_other_cases_not_at_all() {
        let summary = |id: &str, outcome| Summary {
            outcome,
            ..of_skipped(id, "")
        };
        let all = [
            summary("s/a[iptables=nft]#1", Outcome::AsExpected),
            summary("s/b#1", Outcome::Inconclusive),
            summary("s/a[iptables=nft]#2", Outcome::NotAsExpected),
            summary("s/c", Outcome::AsExpected),
        ];
        let counts = rates(&all)
            .into_iter()
            .map(|(id, rate)| (id, [rate.as_expected, rate.judged, rate.inconclusive]));
        let expected = [("s/a[iptables=nft]", [1, 2, 0]), ("s/b", [0, 0, 1])];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
    }
}
