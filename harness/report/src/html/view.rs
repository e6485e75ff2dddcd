//! The page in markup. What is a value stays one up to here; what others wrote goes through [`said`].

mod beneath;
mod chart;
mod commands;
mod found;
mod path;
mod story;
mod top;

use chainbreak_model::case::Case;
use maud::{Markup, html};

pub(super) use self::top::{rows, top, top_end};
use super::{axis::Scale, case::CasePage, said};
use crate::{
    summary::{Outcome, Summary},
    term::{mark, split},
    text::clock,
    words::remarks,
};

/// What stands below all sections.
pub(super) fn bottom() -> String {
    "</main></body></html>\n".to_owned()
}

/// The beginning of a scenario's section.
pub(super) fn scenario(number: usize, name: &str, case: &Case) -> String {
    let head = html! {
        h2 { (said(name)) }
        p.about { (said(&*case.about)) }
        p.facts {
            "from " code { (said(&case.file.display())) }
            @for incident in case.incident.iter() { " · " (said(incident)) }
            " · " a href="#cases" { "all cases" }
        }
    };
    format!("<section id=\"s{number}\">{}", head.into_string())
}

/// Its end.
pub(super) fn scenario_end() -> String {
    "</section>\n".to_owned()
}

/// The section of a case.
pub(super) fn case(number: usize, page: &CasePage<'_>, summary: &Summary) -> String {
    let (_, name) = split(&summary.id);
    let class = format!("case {}", class(summary.outcome));
    let markup = html! {
        article id=(case_id(number)) class=(class) {
            h3 { (badge(summary.outcome)) " " (said(name)) }
            p.facts {
                "expected " b { (said(&summary.expected)) } ", got " b { (said(&summary.got)) }
                @if let Some(judged) = summary.judged {
                    ", judged for " (crate::text::length(judged.len_us()))
                    " from " (clock(judged.from_us)) " s of the case on"
                }
            }
            @if let Some(headline) = summary.headline() { p.headline { (said(&headline)) } }
            @for line in &summary.evidence { p.evidence { (said(line)) } }
            @for line in &remarks(summary) { p.evidence { (said(line)) } }
            (chart::chart(number, page, summary))
            (found::promises(number, page, summary))
            (found::dead(number, page))
            (story::story(number, page, summary))
            (commands::commands(number, page))
            (beneath::beneath(page, summary))
        }
    };
    markup.into_string() + "\n"
}

/// What a case's section is called by in links.
fn case_id(number: usize) -> String {
    format!("c{number}")
}

/// What a command is called by in links.
fn command_id(case: usize, command: usize) -> String {
    format!("c{case}-{command}")
}

/// A link to a command, if it is shown.
fn to_command(case: usize, command: Option<usize>, text: &str) -> Markup {
    html! {
        @match command {
            Some(command) => a href={ "#" (command_id(case, command)) } { (said(text)) },
            None => (said(text)),
        }
    }
}

/// A verdict: its mark and its words, so that no colour is needed.
fn badge(outcome: Outcome) -> Markup {
    html! { span class={ "badge " (class(outcome)) } { (mark(outcome)) " " (outcome.words()) } }
}

fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::AsExpected => "ok",
        Outcome::NotAsExpected => "bad",
        Outcome::Inconclusive => "unsure",
        Outcome::Skipped | Outcome::NotBegun => "skipped",
    }
}

/// A moment: in the case's own time, as logs of the run have it, and with a sign that of the axis. A browser takes most of its time for
/// elements, of which these would have most: they are without any.
fn moment(scale: &Scale, at_us: u64) -> Markup {
    html! { td.time { (clock(at_us)) " " (scale.clock(at_us)) } }
}

/// What is unfolded by a click.
fn folded(title: &str, open: bool, inner: &Markup) -> Markup {
    html! { details open[open] { summary { (title) } (inner) } }
}
