//! How many pods of which template: the arithmetic of rolling updates. Integers in, integers out.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A replica set, as a rollout sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    /// How many pods it is to have.
    pub(super) wanted: i32,
    /// How many serve.
    pub(super) available: i32,
}

impl Size {
    fn missing(self) -> i32 {
        (self.wanted - self.available).max(0)
    }
}

/// How far a rollout may deviate from the number of pods that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slack {
    /// So many more at a time.
    pub(super) surge: i32,
    /// So many fewer serving.
    pub(super) unavailable: i32,
}

impl Slack {
    /// Percentages of what is wanted: of the surge rounded up, of the unavailable down. Without any
    /// slack nothing could ever move, so that one pod may then be missing.
    pub(super) fn of(
        surge: Option<&IntOrString>,
        unavailable: Option<&IntOrString>,
        desired: i32,
    ) -> Self {
        let surge = share(surge, desired, 99);
        let unavailable = share(unavailable, desired, 0);
        Self {
            surge,
            unavailable: if surge == 0 {
                unavailable.max(1)
            } else {
                unavailable
            },
        }
    }
}

/// A number, or a percentage (a quarter, if nothing is said) of the whole; `round` hundredths are
/// added before the division.
pub(super) fn share(value: Option<&IntOrString>, whole: i32, round: i32) -> i32 {
    let percent = match value {
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => text.trim_end_matches('%').parse().unwrap_or(25),
        None => 25,
    };
    let part = (i64::from(whole) * i64::from(percent.clamp(0, 100)) + i64::from(round)) / 100;
    i32::try_from(part).unwrap_or(i32::MAX)
}

/// The next sizes of the newest replica set and of the older ones, in the order given (the oldest
/// first). Pods that do not serve go before those that do.
pub(super) fn step(desired: i32, slack: Slack, newest: Size, older: &[Size]) -> (i32, Vec<i32>) {
    let total = newest.wanted + older.iter().map(|size| size.wanted).sum::<i32>();
    let serving = newest.available + older.iter().map(|size| size.available).sum::<i32>();
    let room = (desired + slack.surge - total).max(0);
    let grown = newest.wanted + (desired - newest.wanted).clamp(i32::MIN, room);
    let least = desired - slack.unavailable;
    let mut budget = (total - least - newest.missing()).max(0);
    let mut sizes: Vec<i32> = older.iter().map(|size| size.wanted).collect();
    for (size, old) in sizes.iter_mut().zip(older) {
        let cut = old.missing().min(budget);
        *size -= cut;
        budget -= cut;
    }
    let mut spare = (serving - least).clamp(0, budget);
    for size in &mut sizes {
        let cut = (*size).min(spare);
        *size -= cut;
        spare -= cut;
    }
    (grown, sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    #[test]
    fn a_surge_is_rounded_up_and_what_may_be_missing_down() {
        let quarter = percent("25%");
        let of = |desired| Slack::of(Some(&quarter), Some(&quarter), desired);
        assert_eq!(
            of(2),
            Slack {
                surge: 1,
                unavailable: 0
            }
        );
        assert_eq!(
            of(10),
            Slack {
                surge: 3,
                unavailable: 2
            }
        );
        let none = IntOrString::Int(0);
        let stuck = Slack::of(Some(&none), Some(&none), 3);
        assert_eq!(
            stuck,
            Slack {
                surge: 0,
                unavailable: 1
            }
        );
        assert_eq!(
            Slack::of(None, None, 4),
            Slack {
                surge: 1,
                unavailable: 1
            }
        );
    }

    /// Every rollout between any sizes keeps its two bounds at each step and ends where it is to end.
    /// New pods serve one step after they were made.
    #[test]
    fn a_rollout_keeps_its_bounds_and_arrives() {
        for before in 0..7 {
            for desired in 0..7 {
                for (surge, unavailable) in [(0, 1), (1, 0), (1, 1), (2, 0), (3, 2)] {
                    roll(before, desired, Slack { surge, unavailable });
                }
            }
        }
    }

    fn roll(before: i32, desired: i32, slack: Slack) {
        let serving = |wanted| Size {
            wanted,
            available: wanted,
        };
        let (mut newest, mut older) = (Size::default(), vec![serving(before)]);
        // Each round trip moves at least one pod in or out: 2 × 14 are more than enough.
        for _ in 0..28 {
            let (grown, sizes) = step(desired, slack, newest, &older);
            let total = grown + sizes.iter().sum::<i32>();
            let most = (desired + slack.surge).max(before);
            assert!(
                total <= most,
                "{before} to {desired} with {slack:?}: {total} pods"
            );
            let left = newest.available.min(grown) + sizes.iter().sum::<i32>();
            let had = newest.available + older[0].available;
            let least = (desired - slack.unavailable).min(had);
            assert!(
                left >= least,
                "{before} to {desired} with {slack:?}: {left} serve"
            );
            (newest, older) = (serving(grown), sizes.into_iter().map(serving).collect());
        }
        assert_eq!((newest.wanted, older[0].wanted), (desired, 0));
    }

    #[test]
    fn pods_that_do_not_serve_go_first() {
        let slack = Slack {
            surge: 1,
            unavailable: 0,
        };
        let broken = Size {
            wanted: 2,
            available: 0,
        };
        let sound = Size {
            wanted: 2,
            available: 2,
        };
        let newest = Size {
            wanted: 0,
            available: 0,
        };
        assert_eq!(step(2, slack, newest, &[sound, broken]), (0, vec![2, 0]));
    }
}
