//! The outlines of a strip: cells that are equally high and stand side by side are one.

use crate::html::strip::{Cell, Strip};

/// How high a strip is, in its own units.
pub(super) const HEIGHT: u32 = 40;
/// What can be seen at all is not lower.
const LEAST: u32 = 2;

/// Of answers, from the ground up: 0.1 ms and less is nearly nothing, 10 s is all of it, in between by the logarithm.
pub(super) fn answers(strip: &Strip) -> String {
    let high = |cell: &Cell| (cell.sent > cell.lost).then(|| high(cell.slowest_us));
    outline(&strip.cells, HEIGHT, |height| HEIGHT - height, high)
}

/// Of lost requests, from above: the share of them, and not too little to be seen.
pub(super) fn losses(strip: &Strip) -> String {
    let deep = |cell: &Cell| {
        let share = (HEIGHT * cell.lost).checked_div(cell.sent).unwrap_or(0);
        (cell.lost > 0).then(|| share.max(3 * LEAST))
    };
    outline(&strip.cells, 0, |depth| depth, deep)
}

/// How high an answer stands that took so long.
pub(super) fn high(took_us: u64) -> u32 {
    let steps = [
        100, 178, 316, 562, 1_000, 1_780, 3_160, 5_620, 10_000, 17_800, 31_600, 56_200, 100_000,
        178_000, 316_000, 562_000, 1_000_000, 1_780_000, 3_160_000, 5_620_000,
    ];
    let passed = steps.iter().filter(|step| **step <= took_us).count();
    let passed = u32::try_from(passed).unwrap_or(u32::MAX);
    (HEIGHT * passed / 20).clamp(LEAST, HEIGHT)
}

fn outline(
    cells: &[Option<Cell>],
    ground: u32,
    level: impl Fn(u32) -> u32,
    of: impl Fn(&Cell) -> Option<u32>,
) -> String {
    let heights: Vec<Option<u32>> = cells.iter().map(|it| of(it.as_ref()?)).collect();
    let mut path = Vec::new();
    let mut from = 0;
    for run in heights.chunk_by(|one, other| one == other) {
        let to = from + run.len();
        if let Some(Some(height)) = run.first() {
            let level = level(*height);
            path.push(format!("M{from} {ground}V{level}H{to}V{ground}z"));
        }
        from = to;
    }
    path.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_as_long_is_a_fifth_of_the_strip_higher() {
        let heights = [1_000, 10_000, 100_000, 1_000_000, 10_000_000].map(high);
        assert_eq!(heights, [10, 18, 26, 34, 40]);
        assert_eq!(high(0), LEAST);
    }

    #[test]
    fn cells_of_one_height_are_one_and_what_was_not_due_is_a_hole() {
        let cell = |lost| {
            Some(Cell {
                sent: 4,
                lost,
                slowest_us: 0,
            })
        };
        let cells = [cell(0), cell(0), None, cell(4), cell(1)];
        let high = |cell: &Cell| (cell.lost > 0).then_some(10 * cell.lost);
        let path = outline(&cells, 0, |depth| depth, high);
        assert_eq!(path, "M3 0V40H4V0zM4 0V10H5V0z");
        assert_eq!(
            outline(&cells, 40, |high| 40 - high, |_| Some(2)),
            "M0 40V38H2V40zM3 40V38H5V40z"
        );
    }
}
