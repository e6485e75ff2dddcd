//! What is found of promises, and the times in which traffic was dead.

use maud::{Markup, html};

use super::{folded, moment, to_command};
use crate::{
    attribution::Cause,
    deeds::Verb,
    finding::{ExplainedGap, Finding},
    html::{case::CasePage, commands::Commands, said, strip::Strip},
    summary::{PromiseSummary, State, Summary},
    text::{clock, count, length},
};

/// What each promise came to: unfolded where one of them is not as expected.
pub(super) fn promises(number: usize, page: &CasePage<'_>, summary: &Summary) -> Markup {
    if summary.promises.is_empty() {
        return html! {};
    }
    let odd = summary.promises.iter().any(|it| !it.as_expected);
    let title = format!(
        "{}: {}",
        count(summary.promises.len(), "promise"),
        summary.got
    );
    let inner = html! {
        ul.promises { @for it in &summary.promises { (promise(number, page, it)) } }
    };
    folded(&title, odd, &inner)
}

fn promise(number: usize, page: &CasePage<'_>, promise: &PromiseSummary) -> Markup {
    let (state, class) = match promise.state {
        State::Kept => ("kept", "bad"),
        State::Broken => ("broken", "bad"),
        State::Unknown => ("unknown", "unsure"),
    };
    let (class, sign) = if promise.as_expected {
        ("ok", "as expected")
    } else {
        (class, "NOT as expected")
    };
    let evidence = promise.evidence();
    html! {
        li {
            b { (said(&promise.name)) } " "
            @if let Some(when) = &promise.when { (said(when)) " " }
            span class={ "badge " (class) } { (state) ", " (sign) }
            p { (said(&promise.headline())) }
            @if let Some(cause) = cause(&promise.finding) { p { @if cause.verb != Verb::Added { "cut " } "by " (by(number, &page.commands, cause)) } }
            @if !evidence.is_empty() { pre { (said(&evidence.join("\n"))) } }
        }
    }
}

/// The command that what was found blames first.
fn cause(finding: &Finding) -> Option<&Cause> {
    match finding {
        Finding::Lost(lost) => lost.outage.as_ref()?.cause.as_ref(),
        Finding::Logged(logged) => logged.cause.as_ref(),
        Finding::Rule(found) => found.cause.as_ref(),
        Finding::Unknown { .. } | Finding::Kept(_) | Finding::Ruled { .. } | Finding::Broken(_) => {
            None
        }
    }
}

fn by(case: usize, commands: &Commands<'_>, cause: &Cause) -> Markup {
    let text = format!("{} on {} at {}", cause.who, cause.node, clock(cause.at_us));
    html! {
        (to_command(case, commands.cut(cause), &text)) ": " (said(&cause.link)) " " (cause.verb.to_string())
    }
}

/// The times in which nothing was answered, each with what cut and what healed it.
pub(super) fn dead(number: usize, page: &CasePage<'_>) -> Markup {
    let strips = page.strips.iter().filter(|strip| strip.gaps > 0);
    let strips: Vec<&Strip> = strips.collect();
    if strips.is_empty() {
        return html! {};
    }
    let gaps = strips.iter().map(|strip| strip.gaps).sum();
    let inner = html! {
        div.wide { table {
            thead { tr {
                th { "traffic" } th { "from" } th { "to" } th.figure { "dead for" } th.figure { "lost" }
                th { "cut by" } th { "healed by" }
            } }
            @for strip in strips {
                tbody {
                    @for told in &strip.told { (gap(number, page, strip, told)) }
                    @if strip.gaps > strip.told.len() {
                        tr { td.more colspan="7" {
                            (said(&strip.name)) ": " (count(strip.gaps - strip.told.len(), "shorter gap"))
                        } }
                    }
                }
            }
        } }
    };
    let title = format!("Dead time: {}", count(gaps, "gap"));
    html! { div id={ "c" (number) "-dead" } { (folded(&title, true, &inner)) } }
}

fn gap(number: usize, page: &CasePage<'_>, strip: &Strip, told: &ExplainedGap) -> Markup {
    let ExplainedGap {
        gap,
        from_the_first,
        cause,
        programs,
        turned,
        heal,
    } = told;
    html! {
        tr {
            td { (said(&strip.name)) }
            (moment(&page.scale, gap.span.from_us))
            @if gap.ended { (moment(&page.scale, gap.span.to_us)) } @else { td { "never again" } }
            td.figure.lost { (length(gap.span.len_us())) }
            td.figure { (gap.lost) }
            td {
                @if let Some(cause) = cause { (by(number, &page.commands, cause)) }
                @else if let Some(programs) = programs { (said(programs)) }
                @else if let Some(turned) = turned { (said(turned)) }
                @else if *from_the_first { "from the first request on" }
                @else { "no recorded command explains it" }
            }
            td {
                @if let Some(heal) = heal {
                    (to_command(number, page.commands.heal(heal), &format!("{} at {}", heal.who, clock(heal.at_us))))
                    @if heal.full_sync { ": full sync" }
                } @else { "–" }
            }
        }
    }
}
