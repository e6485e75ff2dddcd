//! How bad it was, beside whether it was: shares of answered requests, and longest gaps, of cases whose verdicts are the same.

use chainbreak_model::verdict::{Requests, Span};

use crate::summary::Summary;

/// Within which two shares of answered requests are the same, in points of a hundred.
const POINTS: f64 = 5.0;
/// Within which two longest gaps are, beside a quarter of the longer one: agents' periods begin at other moments.
const GAP_US: u64 = 1_000_000;

/// Both figures of two cases that are about the same traffic, where they are apart.
pub(super) fn apart<'a>(one: &'a Summary, other: &'a Summary) -> Option<[&'a Requests; 2]> {
    both(one.requests.as_ref()?, other.requests.as_ref()?)
}

fn both<'a>(one: &'a Requests, other: &'a Requests) -> Option<[&'a Requests; 2]> {
    if one.traffic != other.traffic {
        return None;
    }
    let points = (one.percent() - other.percent()).abs();
    let [a, b] = [one, other].map(gap_us);
    let gaps = a.abs_diff(b) > GAP_US + a.max(b) / 4;
    (points > POINTS || gaps).then_some([one, other])
}

/// `62.4 % answered, longest gap 1.9 s`.
pub(super) fn words(requests: &Requests) -> String {
    let (percent, gap) = (requests.percent(), gap_us(requests) as f64 / 1e6);
    format!("{percent:.1} % answered, longest gap {gap:.1} s")
}

fn gap_us(requests: &Requests) -> u64 {
    requests.longest_gap.map_or(0, Span::len_us)
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;

    fn requests(answered: u64, gap_ms: u64) -> Requests {
        Requests {
            traffic: "shop".into(),
            sent: 100,
            answered,
            outcomes: IndexMap::new(),
            longest_gap: Some(Span {
                from_us: 0,
                to_us: gap_ms * 1000,
            }),
            gaps: 1,
        }
    }

    #[test]
    fn five_points_and_a_second_with_a_quarter_of_the_longer_gap_are_the_same() {
        let apart = |one: (u64, u64), other: (u64, u64)| {
            both(&requests(one.0, one.1), &requests(other.0, other.1)).is_some()
        };
        assert!(!apart((60, 4_000), (65, 6_600)));
        assert!(apart((60, 4_000), (66, 4_000)));
        assert!(apart((60, 4_000), (60, 6_800)));
        assert!(!apart((60, 6_600), (60, 4_000)), "whichever is longer");
    }

    #[test]
    fn a_gap_is_told_in_seconds() {
        assert_eq!(
            words(&requests(62, 1_940)),
            "62.0 % answered, longest gap 1.9 s"
        );
        assert_eq!(gap_us(&requests(62, 1_940)), 1_940_000);
    }
}
