//! The commands that cut and healed, with the rules before and after.

use maud::{Markup, html};

use super::{command_id, folded};
use crate::{
    html::{
        axis::Scale,
        case::CasePage,
        commands::{self, Shown},
        rules::{ChainDiff, Fate},
        said,
    },
    text::{clock, count, cut, length},
};

/// Of a command so many chains are shown, those with most differences first.
const CHAINS: usize = 10;
/// Of a chain so many rules that are gone, and so many that came.
const RULES: usize = 10;
/// A rule, or what a command was told, is not shown longer.
const LONG: usize = 240;
/// Nor is what it said.
const SAID: usize = 800;

/// The commands of a case that are shown.
pub(super) fn commands(number: usize, page: &CasePage<'_>) -> Markup {
    let shown = &page.commands.shown;
    if shown.is_empty() {
        return html! {};
    }
    let inner = html! {
        @for (place, it) in shown { (command(&command_id(number, *place), &page.scale, it)) }
    };
    let title = format!("Commands, and the rules before and after: {}", shown.len());
    folded(&title, false, &inner)
}

fn command(id: &str, scale: &Scale, shown: &Shown<'_>) -> Markup {
    let Shown { edit, diffs } = shown;
    let command = edit.command;
    let mut diffs: Vec<&ChainDiff> = diffs.iter().collect();
    diffs.sort_by_key(|it| std::cmp::Reverse(it.gone.len() + it.come.len()));
    let more = diffs.len().saturating_sub(CHAINS);
    let failed = (command.exit != 0).then_some("failed");
    html! {
        div.command id=(id) {
            p {
                (clock(edit.at_us)) " " small { (scale.clock(edit.at_us)) } " "
                b { (said(&command.who)) } " on " (said(&command.node)) ", "
                span class=[failed] { "exit " (command.exit) } ", took " (length(command.took_us))
            }
            pre.told { (said(&cut(&commands::line(command), LONG))) }
            @if command.exit != 0 && !command.stderr.is_empty() {
                pre.stderr { (said(&cut(command.stderr.trim_end(), SAID))) }
            }
            @if diffs.is_empty() { p.more { "no rule is another one after it" } }
            @else { pre.rules { @for diff in diffs.iter().take(CHAINS) { (chain(diff)) } } }
            @if more > 0 { p.more { "and " (count(more, "more chain")) } }
        }
    }
}

fn chain(diff: &ChainDiff) -> Markup {
    let fate = match diff.fate {
        Fate::Made => "new",
        Fate::Deleted => "deleted",
        Fate::Changed => "changed",
    };
    let same = match diff.same {
        0 => String::new(),
        n => format!(", {} as before", count(n, "rule")),
    };
    html! {
        b { (said(&diff.table)) " " (said(&diff.chain)) ": " (fate) (same) }
        @if !diff.gone.is_empty() { del { (rules(&diff.gone, '−')) } }
        @if !diff.come.is_empty() { ins { (rules(&diff.come, '+')) } }
    }
}

/// A line a rule, with its sign.
fn rules(rules: &[String], sign: char) -> String {
    let told = rules.iter().take(RULES);
    let mut lines: Vec<String> = told
        .map(|rule| format!("{sign} {}", cut(rule, LONG)))
        .collect();
    let left_out = rules.len().saturating_sub(RULES);
    lines.extend((left_out > 0).then(|| format!("{sign} … {left_out} more")));
    said(&lines.join("\n"))
}
