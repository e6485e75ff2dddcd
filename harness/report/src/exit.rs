//! The last word: the exit code of a run.

use crate::summary::{Outcome, Summary};

/// 0 as expected · 10 not as expected · 11 inconclusive · 12 nothing ran.
///
/// The worst that is *certain* wins: a case that is not as expected says something about the product
/// whatever became of the others, so 10 comes before 11; one inconclusive case makes a run that is
/// otherwise as expected inconclusive, and so does one that the run was over before. Skipped cases count for nothing, and a run of nothing but skipped
/// cases proves nothing: 12.
pub fn exit_code(summaries: &[Summary]) -> u8 {
    let any = |outcome| summaries.iter().any(|summary| summary.outcome == outcome);
    if any(Outcome::NotAsExpected) {
        10
    } else if any(Outcome::Inconclusive) || any(Outcome::NotBegun) {
        11
    } else if any(Outcome::AsExpected) {
        0
    } else {
        12
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::of_skipped;

    #[test]
    fn the_worst_certain_outcome_decides_and_skipped_cases_prove_nothing() {
        use Outcome::{AsExpected, Inconclusive, NotAsExpected, NotBegun, Skipped};
        let code = |outcomes: &[Outcome]| {
            let summary = |&outcome| Summary {
                outcome,
                ..of_skipped("s/v", "no")
            };
            exit_code(&outcomes.iter().map(summary).collect::<Vec<_>>())
        };
        assert_eq!(code(&[AsExpected, Skipped]), 0);
        assert_eq!(code(&[AsExpected, Inconclusive, NotAsExpected]), 10);
        assert_eq!(code(&[AsExpected, Inconclusive]), 11);
        assert_eq!(code(&[AsExpected, NotBegun]), 11);
        assert_eq!(code(&[Skipped]), 12);
        assert_eq!(code(&[]), 12);
    }
}
