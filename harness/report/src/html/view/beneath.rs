//! What lies beneath: how requests ended, logs, drops, conntrack, facts and kept files.

use chainbreak_probe::wire::Outcome;
use maud::{Markup, html};

use super::{folded, moment};
use crate::{
    drops::Drops,
    html::{
        axis::Scale,
        case::{CasePage, Flushed, Folded, Log},
        said,
        strip::Strip,
    },
    summary::Summary,
    text::{clock, count, length, percent},
};

/// So many rules that drop are shown.
const DROPS: usize = 12;

/// All of it, folded.
pub(super) fn beneath(page: &CasePage<'_>, summary: &Summary) -> Markup {
    html! {
        div.beneath {
            (requests(&page.strips))
            (logs(&page.logs))
            (drops(&summary.drops))
            (conntrack(&page.scale, &page.conntrack))
            (facts(summary))
        }
    }
}

fn requests(strips: &[Strip]) -> Markup {
    if strips.is_empty() {
        return html! {};
    }
    let inner = html! { @for strip in strips { (traffic(strip)) } };
    folded("Requests", false, &inner)
}

fn traffic(strip: &Strip) -> Markup {
    let sent: usize = strip.ended.values().sum();
    let answered = strip.ended.get(Outcome::ANSWERED).copied().unwrap_or(0);
    let ended: Vec<String> = strip
        .ended
        .iter()
        .map(|(word, n)| format!("{n} {word}"))
        .collect();
    html! {
        p {
            b { (said(&strip.name)) } ": " (said(&strip.way)) ". " (percent(answered, sent)) " of " (sent) " answered"
            @if !ended.is_empty() { ": " (ended.join(", ")) }
            @if let Some(it) = &strip.latency {
                "; half of the answers within " (length(it.median)) ", 99 % within " (length(it.p99))
                ", the slowest after " (length(it.longest))
            }
        }
    }
}

fn logs(logs: &[Log]) -> Markup {
    html! {
        @for Log { whose, entries } in logs {
            @let title = said(&format!("Log of {whose}: {}", of_entries(entries.all())));
            (folded(&title, false, &html! { pre.log {
                @for (at_us, text) in &entries.first { (entry(*at_us, text)) }
                @if entries.left_out > 0 { i { "… " (of_entries(entries.left_out)) " left out\n" } }
                @for (at_us, text) in &entries.last { (entry(*at_us, text)) }
            } }))
        }
    }
}

fn of_entries(n: usize) -> String {
    match n {
        1 => "1 entry".to_owned(),
        _ => format!("{n} entries"),
    }
}

fn entry(at_us: u64, text: &str) -> Markup {
    html! { (clock(at_us)) " " (said(text)) "\n" }
}

fn drops(drops: &[Drops]) -> Markup {
    if drops.is_empty() {
        return html! {};
    }
    let inner = html! {
        div.wide { table {
            thead { tr {
                th { "node" } th.figure { "packets" } th.figure { "bytes" } th { "whose" } th { "rule" }
            } }
            @for it in drops.iter().take(DROPS) {
                tr {
                    td { (said(&it.node)) } td.figure { (it.packets) } td.figure { (it.bytes) } td { (said(&it.owner)) }
                    td {
                        code { (said(&it.table)) " " (said(&it.chain)) " " (said(&it.rule)) }
                        " " small { (said(&it.front)) }
                        @if let Some(meaning) = it.meaning { br; small { (meaning) } }
                    }
                }
            }
        } }
        @if drops.len() > DROPS { p.more { "and " (count(drops.len() - DROPS, "more rule")) } }
    };
    folded("Dropped and rejected packets", false, &inner)
}

fn conntrack(scale: &Scale, commands: &Folded<Flushed>) -> Markup {
    if commands.all() == 0 {
        return html! {};
    }
    let row = |it: &Flushed| {
        html! {
            tr { (moment(scale, it.at_us)) td { (said(&it.whose)) } td { code { (said(&it.line)) } } td { "exit " (it.exit) } }
        }
    };
    let inner = html! {
        div.wide { table {
            @for it in &commands.first { (row(it)) }
            @if commands.left_out > 0 { tr { td.more colspan="4" { (commands.left_out) " more" } } }
            @for it in &commands.last { (row(it)) }
        } }
    };
    folded(
        &format!("conntrack: {}", count(commands.all(), "command")),
        false,
        &inner,
    )
}

fn facts(summary: &Summary) -> Markup {
    let facts = summary.facts.iter();
    let mut lines: Vec<String> = facts
        .map(|(name, value)| format!("{name}  {value}"))
        .collect();
    let unknown = summary.unknown.iter();
    lines.extend(unknown.map(|request| format!("unknown request: {request}")));
    lines.extend(summary.artifacts.iter().map(|path| format!("kept: {path}")));
    let inner = html! { pre { (said(&lines.join("\n"))) } };
    folded("Facts and kept files", false, &inner)
}
