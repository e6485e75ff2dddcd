//! The lanes of a case. Everything is placed in percent of the width and pixels of the height: nothing that has a shape is distorted
//! when the page is wider or narrower.

use maud::{Markup, html};

use super::{command_id, path};
use crate::{
    gaps::Gap,
    html::{
        axis::{Scale, Share},
        case::CasePage,
        lanes::{Actor, Bar, Lane, Mark},
        said,
        strip::Strip,
    },
    summary::Summary,
    text::{count, length},
};

/// Heights, in pixels; `page.css` has them, too.
const AXIS: u32 = 20;
const LANE: u32 = 24;
const STRIP: u32 = 48;

/// How wide the grid is, in units of its own.
const WIDE: u32 = 1_000;

/// The lines across strips: how long an answer took that reaches them.
const LEVELS: [(u64, &str); 2] = [(1_000, "1 ms"), (1_000_000, "1 s")];

/// A row of the chart.
enum Row<'a> {
    Strip(&'a Strip),
    Lane(&'a Lane),
}

impl Row<'_> {
    fn height(&self) -> u32 {
        match self {
            Self::Strip(_) => STRIP,
            Self::Lane(_) => LANE,
        }
    }
}

/// The chart of a case.
pub(super) fn chart(number: usize, page: &CasePage<'_>, summary: &Summary) -> Markup {
    let lanes = &page.lanes;
    let mut rows = vec![Row::Lane(&lanes.scenario)];
    rows.extend(page.strips.iter().map(Row::Strip));
    rows.extend(lanes.agents.iter().map(|(_, lane)| Row::Lane(lane)));
    let tops = rows.iter().scan(AXIS, |next, row| {
        let top = *next;
        *next += row.height();
        Some(top)
    });
    let rows: Vec<(u32, &Row<'_>)> = tops.zip(&rows).collect();
    let height = AXIS + rows.iter().map(|(_, row)| row.height()).sum::<u32>();
    let dead = page.strips.iter().flat_map(|strip| &strip.dead);
    html! {
        figure.chart {
            (names(page))
            svg height=(height) role="img" aria-label={ "lanes of " (said(&summary.id)) } {
                (ground(&page.scale, summary, height))
                (grid(&page.scale, &rows, height))
                @for gap in dead { (dead_time(number, &page.scale, gap, height)) }
                @for (top, row) in &rows {
                    @match row {
                        Row::Strip(strip) => (requests(&page.scale, strip, *top)),
                        Row::Lane(lane) => (happened(number, &page.scale, lane, *top)),
                    }
                }
            }
        }
        @if lanes.left_out > 0 {
            p.more { (count(lanes.left_out, "lane")) " of other nodes not drawn" }
        }
    }
}

/// How the rows are called.
fn names(page: &CasePage<'_>) -> Markup {
    html! {
        div.names {
            span.axis { "judged time" }
            span.lane { "scenario" }
            @for strip in &page.strips {
                span.strip title=(said(&strip.way)) { b { (said(&strip.name)) } br; small { (said(&strip.way)) } }
            }
            @for (Actor { node, who }, _) in &page.lanes.agents {
                span.lane { (said(node)) " " b { (said(who)) } }
            }
        }
    }
}

/// The judged time, and the steps of the axis.
fn ground(scale: &Scale, summary: &Summary, height: u32) -> Markup {
    html! {
        @if let Some(judged) = summary.judged {
            rect.judged x=(scale.x(judged.from_us)) y=(AXIS)
                width=(scale.width(judged.from_us, judged.to_us)) height=(height - AXIS) {}
        }
        @for (x, name) in scale.ticks() {
            text.tick x=(x) y="12" dx="3" { (name) }
        }
    }
}

/// The lines of steps, rows and levels. What has no shape may be stretched: they are two elements for all.
fn grid(scale: &Scale, rows: &[(u32, &Row<'_>)], height: u32) -> Markup {
    let ticks = scale.ticks();
    let ticks = ticks
        .iter()
        .map(|(x, _)| format!("M{} 16V{height}", x.of(WIDE)));
    let tops = rows.iter().map(|(top, _)| format!("M0 {top}H{WIDE}"));
    let strips = rows.iter().filter(|(_, row)| matches!(row, Row::Strip(_)));
    let levels = strips
        .flat_map(|(top, _)| LEVELS.map(|(took, _)| format!("M0 {}H{WIDE}", level(*top, took))));
    html! {
        svg width="100%" height=(height) viewBox=(format!("0 0 {WIDE} {height}")) preserveAspectRatio="none" {
            path.grid d=(ticks.chain(tops).collect::<String>()) {}
            path.grid.levels d=(levels.collect::<String>()) {}
        }
    }
}

/// How high in a strip an answer stands that took so long.
fn level(top: u32, took_us: u64) -> u32 {
    top + STRIP - path::high(took_us)
}

/// A time in which a traffic got no answers: across all lanes, so that it is seen what went before it.
fn dead_time(case: usize, scale: &Scale, gap: &Gap, height: u32) -> Markup {
    let (from_us, to_us) = (gap.span.from_us, gap.span.to_us);
    let lost = count(gap.lost, "request");
    html! {
        a href={ "#c" (case) "-dead" } {
            title { "no answers for " (length(gap.span.len_us())) ", " (lost) " lost" }
            rect.dead x=(scale.x(from_us)) y=(AXIS) width=(scale.width(from_us, to_us)) height=(height - AXIS) {}
        }
    }
}

/// The strip of a traffic.
fn requests(scale: &Scale, strip: &Strip, top: u32) -> Markup {
    let view = format!(
        "{:.2} 0 {:.2} {}",
        -strip.begins,
        strip.cells_long,
        path::HEIGHT
    );
    let inner = STRIP - path::HEIGHT;
    html! {
        svg y=(top + inner) height=(path::HEIGHT) viewBox=(view) preserveAspectRatio="none" {
            path.answered d=(path::answers(strip)) {}
            path.lost d=(path::losses(strip)) {}
        }
        @for (took, words) in LEVELS {
            text.level x="100%" y=(level(top, took) - 2) { (words) }
        }
        @for gap in &strip.dead {
            @if scale.width(gap.span.from_us, gap.span.to_us) > Share::LABELLED {
                text.dead x=(scale.x(gap.span.from_us)) y=(top + STRIP - 6) dx="4" {
                    "dead " (length(gap.span.len_us()))
                }
            }
        }
    }
}

/// A lane with what lasted and what happened.
fn happened(case: usize, scale: &Scale, lane: &Lane, top: u32) -> Markup {
    let middle = top + LANE / 2;
    html! {
        @for bar in &lane.bars { (lasting(scale, bar, top)) }
        @for mark in &lane.marks { (marked(case, scale, mark, middle)) }
    }
}

fn lasting(scale: &Scale, bar: &Bar, top: u32) -> Markup {
    let (from, to) = (bar.from_us, bar.to_us.unwrap_or(u64::MAX / 2));
    html! {
        svg.bar x=(scale.x(from)) y=(top + 3) width=(scale.width(from, to)) height=(LANE - 6) {
            title { (said(&bar.text)) }
            rect width="100%" height="100%" {}
            text x="14" y="13" { (said(&bar.text)) }
        }
    }
}

fn marked(case: usize, scale: &Scale, mark: &Mark, y: u32) -> Markup {
    let id = mark.shape.id();
    let shape = html! {
        use href={ "#m-" (id) } class={ "m-" (id) } x=(scale.x(mark.at_us)) y=(y) {
            title {
                (scale.clock(mark.at_us)) " " (said(&mark.text))
                @if mark.times > 1 { " (first of " (mark.times) ")" }
            }
        }
    };
    html! {
        @match mark.command {
            Some(command) => a href={ "#" (command_id(case, command)) } { (shape) },
            None => (shape),
        }
    }
}
