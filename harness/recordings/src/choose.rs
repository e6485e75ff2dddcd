//! Which worlds are kept: those that together show all that any of them shows of the model, then others until there
//! are enough, of each combination of families alike.

use std::collections::{BTreeMap, BTreeSet};

/// A world that may be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What it shows of the model.
    pub shown: BTreeSet<String>,
    /// The families that it serves.
    pub families: String,
}

/// Which of the candidates are kept, in order: at least `enough` of them, where there are so many. The same
/// candidates give the same choice.
pub fn choose(candidates: &[Candidate], enough: usize) -> Vec<usize> {
    let mut chosen = BTreeSet::new();
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    while let Some(best) = most_new(candidates, &chosen, &shown) {
        chosen.insert(best);
        shown.extend(candidates[best].shown.iter().map(String::as_str));
    }
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for candidate in candidates {
        count.entry(&candidate.families).or_default();
    }
    for &number in &chosen {
        *count.entry(&candidates[number].families).or_default() += 1;
    }
    while chosen.len() < enough {
        let rest = (0..candidates.len()).filter(|it| !chosen.contains(it));
        let Some(next) = rest.min_by_key(|&it| (count[candidates[it].families.as_str()], it))
        else {
            break;
        };
        chosen.insert(next);
        *count.entry(&candidates[next].families).or_default() += 1;
    }
    chosen.into_iter().collect()
}

/// The first of those that show most of what is not shown yet; none when nothing is left.
fn most_new(
    candidates: &[Candidate],
    chosen: &BTreeSet<usize>,
    shown: &BTreeSet<&str>,
) -> Option<usize> {
    let new = |it: &Candidate| {
        it.shown
            .iter()
            .filter(|it| !shown.contains(it.as_str()))
            .count()
    };
    let rest = (0..candidates.len()).filter(|it| !chosen.contains(it));
    let news = rest.map(|it| (new(&candidates[it]), std::cmp::Reverse(it)));
    let (count, number) = news.max()?;
    (count > 0).then_some(number.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(families: &str, shown: &[&str]) -> Candidate {
        Candidate {
            shown: shown.iter().map(|&it| it.to_owned()).collect(),
            families: families.to_owned(),
        }
    }

    #[test]
    fn everything_that_is_shown_stays_shown() {
        let all = [
            candidate("4", &["a"]),
            candidate("4", &["a", "b"]),
            candidate("4", &["b"]),
            candidate("6", &["c"]),
            candidate("4", &["a", "b"]),
        ];
        assert_eq!(choose(&all, 0), [1, 3]);
    }

    #[test]
    fn the_rest_is_filled_up_from_all_families_alike() {
        let all = ["4", "4", "4", "6", "6", "6"].map(|it| candidate(it, &["a"]));
        assert_eq!(choose(&all, 4), [0, 1, 3, 4]);
        assert_eq!(choose(&all, 9).len(), 6);
    }
}
