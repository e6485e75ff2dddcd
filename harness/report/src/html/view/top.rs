//! What stands above all sections: the run, its table of verdicts, what the marks mean.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{badge, case_id, class};
use crate::{
    Run,
    head::cut_short,
    html::{Row, Scenarios, lanes::Shape, said},
    summary::{Headline, Outcome, Summary},
    term::{self, Overview, split},
    text::{length, percent},
    words::STRAYS,
};

/// The page forbids whatever is not in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The beginning of the page, up to the first row of the table of verdicts.
pub(in crate::html) fn top(run: &Run, overview: &Overview, scenarios: &Scenarios<'_>) -> String {
    let title = "chainbreak: ".to_owned() + &counted(overview.cases());
    let head = html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta http-equiv="Content-Security-Policy" content=(POLICY);
        title { (title) }
        style { (PreEscaped(include_str!("../page.css"))) }
    };
    let rows = scenarios.0.values().flatten();
    let failed = rows.filter(|row| row.summary.outcome.has_failed()).count();
    let body = html! {
        (PreEscaped(include_str!("../shapes.svg")))
        header {
            h1 { (counted(overview.cases())) }
            (facts(run, overview))
        }
    };
    let only = html! {
        @if (1..overview.cases().len()).contains(&failed) {
            input #only type="checkbox"; label for="only" { "only what did not come out as expected" }
        }
    };
    let columns = html! {
        thead { tr {
            th { "verdict" } th { "case" } th { "expected" } th { "got" }
            th.figure { "judged" } th.figure { "longest gap" } th.figure { "answered" }
        } }
    };
    let doctype = DOCTYPE.0;
    let [head, body, only, columns] = [head, body, only, columns].map(Markup::into_string);
    format!(
        "{doctype}<html lang=\"en\"><head>{head}</head>\n<body>{body}{only}\
         <section id=\"cases\"><div class=\"wide\"><table>{columns}"
    )
}

/// The cases of a scenario in the table of verdicts, row by row: there may be thousands.
pub(in crate::html) fn rows<'a>(
    number: usize,
    name: &str,
    rows: Vec<Row<'a>>,
) -> impl Iterator<Item = String> + use<'a> {
    let heading = html! {
        tr { th.scenario colspan="7" {
            @if rows.iter().any(|row| row.shown) {
                a href={ "#s" (number) } { (said(name)) }
            } @else { (said(name)) }
        } }
    };
    let head = format!(
        "<tbody class=\"{}\">{}",
        group(&rows),
        heading.into_string()
    );
    let rows = rows.into_iter().map(|row| case(&row).into_string());
    std::iter::once(head)
        .chain(rows)
        .chain(["</tbody>".to_owned()])
}

/// The end of the table, and what the marks of the lanes mean.
pub(in crate::html) fn top_end() -> String {
    format!("</table></div></section>{}<main>\n", legend().into_string())
}

/// `310 cases: 308 as expected, 2 not as expected`.
fn counted(cases: &[Summary]) -> String {
    let all = [
        Outcome::NotAsExpected,
        Outcome::Inconclusive,
        Outcome::AsExpected,
        Outcome::Skipped,
        Outcome::NotBegun,
    ];
    term::counted(cases, all)
}

fn facts(run: &Run, overview: &Overview) -> Markup {
    let header = &run.header;
    let played = overview.played();
    html! {
        p.facts {
            (said(&header.tool)) " · began " (header.started.strftime("%Y-%m-%d %H:%M:%S UTC"))
            " · seed " (header.seed)
            @for (name, value) in &header.host { " · " (said(name)) " " (said(value)) }
        }
        @if let Some(short) = cut_short(run) { p.headline { (said(&short)) } }
        @if !played.is_empty() {
            details { summary { "Who played the agents" } pre { (said(&played.join("\n"))) } }
        }
    }
}

/// The worst of a scenario's verdicts.
fn group(rows: &[Row<'_>]) -> &'static str {
    let failed = rows.iter().find(|row| row.summary.outcome.has_failed());
    class(failed.map_or(Outcome::AsExpected, |row| row.summary.outcome))
}

fn case(row: &Row<'_>) -> Markup {
    let Row {
        number,
        summary,
        shown,
    } = row;
    let (_, name) = split(&summary.id);
    let size = |n| usize::try_from(n).unwrap_or(usize::MAX);
    let why = match &summary.headline {
        Some(Headline::Skipped(reason)) => Some(reason),
        _ => None,
    };
    html! {
        tr class=(class(summary.outcome)) {
            td { (badge(summary.outcome)) @if summary.strays.is_some() { " " (STRAYS) } }
            td.name {
                @if *shown { a href={ "#" (case_id(*number)) } { (said(name)) } }
                @else { (said(name)) }
                @if let Some(why) = why { small { " " (said(why)) } }
            }
            td { (said(&summary.expected)) }
            td { (said(&summary.got)) }
            td.figure { @if let Some(judged) = summary.judged { (length(judged.len_us())) } }
            @match &summary.requests {
                Some(requests) => {
                    td.figure {
                        (requests.longest_gap.map_or_else(|| "0".to_owned(), |it| length(it.len_us())))
                    }
                    td.figure { (percent(size(requests.answered), size(requests.sent))) }
                }
                None => { td {} td {} }
            }
        }
    }
}

/// What the marks of the lanes mean.
fn legend() -> Markup {
    html! {
        details.legend {
            summary { "How to read the lanes" }
            p {
                "The cases of a scenario share one axis, which begins with the judged time; the times in tables are seconds since the case \
                 began, and with a sign those of the axis. Red hatching is a time in which a traffic got no answer at all. In the \
                 strip of a traffic the slowest answer of each moment stands on the ground, from 0.1 ms to 10 s in steps of ten; what was lost \
                 hangs from above. A mark leads to its command, where that is shown."
            }
            ul {
                @for (_, id, words) in Shape::ALL {
                    li {
                        svg width="20" height="20" { use href={ "#m-" (id) } class={ "m-" (id) } x="10" y="10" {} }
                        " " (words)
                    }
                }
            }
        }
    }
}
