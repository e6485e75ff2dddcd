//! The time axis that the cases of a scenario share. Its zero is the beginning of the judged time: clusters are raised in different
//! times, and steps that are the same stand below each other.

use std::fmt;

use chainbreak_model::verdict::Span;

use crate::summary::Summary;

/// In front of the judged time such a part of it is shown: what was cut just before is felt in it.
const LEAD: u64 = 20;
/// Behind it there is room for the name of the last step.
const TAIL: u64 = 40;
/// So many steps it is divided into at most.
const STEPS: u64 = 10;

/// How much time is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    lead_us: u64,
    length_us: u64,
}

/// The axis for one of its cases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    axis: Axis,
    /// Its zero, in microseconds since the case began.
    zero_us: u64,
}

/// A part of the axis, in percent.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Share(f64);

impl Share {
    /// What is wider has room for a word.
    pub(super) const LABELLED: Self = Self(7.0);

    /// So much of a width, in whole units.
    pub(super) fn of(self, width: u32) -> f64 {
        (self.0 * f64::from(width) / 100.0).round()
    }
}

impl fmt::Display for Share {
    /// `12.5%`: a hundredth of a percent is less than a pixel.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 100.0).round() / 100.0)
    }
}

impl Axis {
    /// Up to the end of the longest of these cases.
    pub(super) fn of<'a>(cases: impl Iterator<Item = &'a Summary>) -> Self {
        let length = |it: &Summary| it.judged.map_or(it.took_us, Span::len_us);
        let length_us = cases.map(length).max().unwrap_or(0).max(1);
        let lead_us = length_us / LEAD;
        Self { lead_us, length_us }
    }

    /// For that case: of one that was not judged zero is its beginning.
    pub(super) fn scale(self, case: &Summary) -> Scale {
        Scale {
            axis: self,
            zero_us: case.judged.map_or(0, |judged| judged.from_us),
        }
    }

    fn total_us(self) -> u64 {
        self.lead_us + self.length_us + self.length_us / TAIL
    }
}

impl Scale {
    /// Where a moment stands: before the left edge is on it, after the right edge, too.
    pub(super) fn x(&self, at_us: u64) -> Share {
        let total = self.axis.total_us();
        Share(self.offset(at_us).min(total) as f64 * 100.0 / total as f64)
    }

    /// How wide a time is.
    pub(super) fn width(&self, from_us: u64, to_us: u64) -> Share {
        Share(self.x(to_us).0 - self.x(from_us).0)
    }

    /// Whether the moment is on the axis.
    pub(super) fn shows(&self, at_us: u64) -> bool {
        let left = at_us + self.axis.lead_us;
        (self.zero_us..=self.zero_us + self.axis.total_us()).contains(&left)
    }

    /// Microseconds from the left edge.
    pub(super) fn offset(&self, at_us: u64) -> u64 {
        (at_us + self.axis.lead_us).saturating_sub(self.zero_us)
    }

    /// Microseconds from edge to edge.
    pub(super) fn total_us(&self) -> u64 {
        self.axis.total_us()
    }

    /// Where its steps are, and how they are called.
    pub(super) fn ticks(&self) -> Vec<(Share, String)> {
        let step = step_us(self.axis.length_us);
        let ticks = (0..=self.axis.length_us / step).map(|n| n * step);
        let name = |us: u64| match us {
            0 => "0 s".to_owned(),
            _ if step < 1_000_000 => format!("{} s", us as f64 / 1e6),
            _ => format!("{} s", us / 1_000_000),
        };
        ticks
            .map(|us| (self.x(self.zero_us + us), name(us)))
            .collect()
    }

    /// A moment as the axis has it: `+3.120`, or `−0.310` before its zero.
    pub(super) fn clock(&self, at_us: u64) -> String {
        let (sign, us) = match at_us.checked_sub(self.zero_us) {
            Some(us) => ('+', us),
            None => ('−', self.zero_us - at_us),
        };
        format!("{sign}{}", crate::text::clock(us))
    }
}

/// The smallest of 1, 2, 5, 10, … by which the length has few steps; a tenth of a second at least.
fn step_us(length_us: u64) -> u64 {
    let mut tens = 100_000;
    loop {
        for step in [tens, 2 * tens, 5 * tens] {
            if length_us / step <= STEPS {
                return step;
            }
        }
        tens *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::of_skipped;

    fn judged(from_us: u64, to_us: u64) -> Summary {
        Summary {
            judged: Some(Span { from_us, to_us }),
            ..of_skipped("a/b", "")
        }
    }

    #[test]
    fn what_happened_at_the_same_time_of_two_cases_stands_at_the_same_place() {
        let (short, long) = (judged(500_000, 4_500_000), judged(3_000_000, 13_000_000));
        let axis = Axis::of([&short, &long].into_iter());
        let (short, long) = (axis.scale(&short), axis.scale(&long));
        assert_eq!(short.x(1_500_000), long.x(4_000_000));
        assert_eq!(long.x(13_000_000).to_string(), "97.67%");
        assert_eq!(short.x(0).to_string(), "0%");
        assert!(short.shows(0) && !long.shows(0) && long.shows(2_500_000));
        assert_eq!(short.clock(1_620_000), "+1.120");
        assert_eq!(long.clock(2_690_000), "−0.310");
    }

    #[test]
    fn an_axis_of_any_length_has_a_few_round_steps() {
        let ticks = |seconds: u64| {
            let case = judged(0, seconds * 1_000_000);
            let ticks = Axis::of(std::iter::once(&case)).scale(&case).ticks();
            ticks.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            ticks(4).join(" "),
            "0 s 0.5 s 1 s 1.5 s 2 s 2.5 s 3 s 3.5 s 4 s"
        );
        assert_eq!(
            ticks(45).join(" "),
            "0 s 5 s 10 s 15 s 20 s 25 s 30 s 35 s 40 s 45 s"
        );
        assert!((1..=11).contains(&ticks(3_601).len()));
    }
}
