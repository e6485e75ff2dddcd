//! What happened, as the other reports tell it: rounds that repeat once.

use maud::{Markup, html};

use super::{folded, moment, to_command};
use crate::{
    html::{case::CasePage, lanes::Shape, said},
    summary::Summary,
    timeline::{Kind, Round, TimelineEntry},
    words::story::{before, elsewhere, more},
};

/// A story of more entries is told in its beginning, where the case came out as expected.
const ENTRIES: usize = 30;
/// The same where it did not.
const ENTRIES_OF_FAILED: usize = 100;

/// The story of a case.
pub(super) fn story(number: usize, page: &CasePage<'_>, summary: &Summary) -> Markup {
    let story = &summary.story;
    if story.is_empty() {
        return html! {};
    }
    let most = if summary.outcome.has_failed() {
        ENTRIES_OF_FAILED
    } else {
        ENTRIES
    };
    let (rows, left_out) = rows(&story.rounds, most);
    let inner = html! {
        @if let Some(early) = before(&story.before) { p.more { (said(early.trim())) } }
        div.wide { table.story {
            @for row in rows {
                @match row {
                    Row::Told(it) => (entry(number, page, it)),
                    Row::More(text) => tr { td.more colspan="3" { (said(text.trim())) } },
                }
            }
        } }
        @if left_out > 0 { p.more { (left_out) " more in report.txt and the case's events" } }
        @for line in elsewhere(&story.elsewhere) { p.more { (said(&line)) } }
    };
    folded("What happened", false, &inner)
}

/// A line of the story.
enum Row<'a> {
    Told(&'a TimelineEntry),
    More(String),
}

/// The lines that are told, and how many are not.
fn rows(rounds: &[Round], most: usize) -> (Vec<Row<'_>>, usize) {
    let mut rows = Vec::new();
    for part in rounds.chunk_by(|one, other| !one.told && !other.told) {
        if part.iter().any(|round| round.told) {
            rows.extend(part.iter().flat_map(|round| &round.entries).map(Row::Told));
        } else {
            let part: Vec<&Round> = part.iter().collect();
            rows.extend(more(&part).map(Row::More));
        }
    }
    let left_out = rows.len().saturating_sub(most);
    rows.truncate(most);
    (rows, left_out)
}

fn entry(number: usize, page: &CasePage<'_>, entry: &TimelineEntry) -> Markup {
    let kind = match entry.what.kind() {
        Kind::GapBegan | Kind::GapEnded => "dead",
        Kind::Phase => "phase",
        _ => Shape::of(&entry.what).map_or("", Shape::id),
    };
    html! {
        tr class={ "e-" (kind) } {
            (moment(&page.scale, entry.at_us))
            td { @if let Some(node) = &entry.node { (said(node)) " " } (said(&entry.who)) }
            td { (to_command(number, page.commands.entry(entry), &entry.what.to_string())) }
        }
    }
}
