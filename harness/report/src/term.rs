//! The end of a run in a terminal: a table of verdicts; for each case not as expected what, where and when
//! in the first line and the evidence below; where the reports are. Pure text, colour only when told.

use indexmap::IndexMap;

use crate::{
    drops,
    head::Head,
    repeats::rates,
    summary::{Headline, Outcome, PromiseSummary, State, Summary},
    text::{count, cut, cut_within, length, percent, tally, wrap},
    words::{STRAYS, remarks},
};

const COLUMNS: [&str; 7] = [
    "verdict",
    "case",
    "expected",
    "got",
    "judged",
    "longest gap",
    "answered",
];
/// Which of them has names, and from which on they have figures.
const CASE: usize = 1;
const FIGURES: usize = 4;
/// Which of them have words that a narrow table cuts, and how short at most, the first first.
const CUT: [(usize, usize); 3] = [(CASE, 24), (3, 16), (2, 16)];
/// Which of them it does without then: a figure that is cut is another figure.
const LEFT_OUT: [usize; 4] = [4, 6, 5, 2];

/// How the terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// How many characters a line may have; longer ones are cut in the table, and
    /// continued elsewhere.
    pub width: usize,
    /// Whether escapes for colours are understood.
    pub colour: Colour,
}

/// Whether escapes for colours are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// They are.
    On,
    /// They are not: a pipe, a file, `NO_COLOR`.
    Off,
}

/// What is printed at the end of a run above and below what is said of single cases ([`detail`]), gathered case by case.
#[derive(Debug, Default)]
pub struct Overview {
    cases: Vec<Summary>,
    head: Head,
}

impl Overview {
    /// The next case.
    pub fn add(&mut self, summary: Summary) {
        self.head.add(&summary);
        self.cases.push(summary.brief());
    }

    /// What each case came to, in short.
    pub fn cases(&self) -> &[Summary] {
        &self.cases
    }

    /// Who played the agents, a line for each of them.
    pub(crate) fn played(&self) -> Vec<String> {
        self.head.played()
    }

    /// Who played the agents, and the table of verdicts, line by line: of thousands of cases no text of all is in memory.
    pub fn above(&self, terminal: Terminal) -> impl Iterator<Item = String> {
        let played = self.played();
        let blank = (!played.is_empty()).then(|| "\n".to_owned());
        let lines = played.into_iter();
        let lines = lines.map(move |line| wrap(&line, terminal.width) + "\n");
        lines.chain(blank).chain(table(&self.cases, terminal))
    }

    /// Cases that did not run, how many came to what, and the paths of the files written.
    pub fn below(&self, reports: &[String], terminal: Terminal) -> String {
        let mut parts = skipped(&self.cases, terminal);
        let unknown = self.head.unknown().into_iter();
        parts.extend(
            unknown
                .map(|line| wrap(&line, terminal.width) + "\n")
                .reduce(|a, b| a + &b),
        );
        let rates = rates(&self.cases).into_iter();
        let rates = rates.map(|(id, rate)| wrap(&format!("{id}: {rate}"), terminal.width) + "\n");
        parts.extend(rates.reduce(|a, b| a + &b));
        parts.push(closing(&self.cases, reports));
        parts.join("\n")
    }
}

/// Cases that did not run, those of one reason together.
fn skipped(summaries: &[Summary], terminal: Terminal) -> Vec<String> {
    let mut reasons = IndexMap::<&str, Vec<&str>>::new();
    for summary in summaries {
        if let Some(Headline::Skipped(reason)) = &summary.headline {
            reasons.entry(reason).or_default().push(&summary.id);
        }
    }
    let outcome = Outcome::Skipped;
    let part = |(reason, ids): (&str, Vec<&str>)| {
        let first = wrap(&format!("{} {reason}", mark(outcome)), terminal.width);
        let first = paint(&first, Some(outcome), terminal.colour) + "\n";
        let lines = ids.iter().map(|id| format!("  {id}: {}", outcome.words()));
        let lines = lines.map(|line| wrap(&line, terminal.width) + "\n");
        std::iter::once(first).chain(lines).collect()
    };
    reasons.into_iter().map(part).collect()
}

/// The table of verdicts: scenarios as headings, each once, a line a case, with what it came to first: that is what one looks for. Those
/// that had not begun are counted below it.
pub fn table(summaries: &[Summary], terminal: Terminal) -> impl Iterator<Item = String> {
    let mut scenarios = IndexMap::<&str, Vec<&Summary>>::new();
    for summary in summaries
        .iter()
        .filter(|it| it.outcome != Outcome::NotBegun)
    {
        let (heading, _) = split(&summary.id);
        scenarios.entry(heading).or_default().push(summary);
    }
    let head = || COLUMNS.map(str::to_owned);
    let rows = scenarios.values().flatten().map(|summary| row(summary));
    let widths = widths(std::iter::once(head()).chain(rows), terminal.width);
    let row = move |row: [String; 7], outcome| {
        let line = line(&row, widths, terminal.width);
        paint(&line, outcome, terminal.colour) + "\n"
    };
    let cases = scenarios.into_iter().flat_map(move |(heading, summaries)| {
        let heading = cut(heading, terminal.width) + "\n";
        let rows = summaries.into_iter();
        let rows = rows.map(move |summary| row(self::row(summary), Some(summary.outcome)));
        std::iter::once(heading).chain(rows)
    });
    std::iter::once(row(head(), None)).chain(cases)
}

/// The widths of the columns, none of those that are left out.
fn widths(rows: impl Iterator<Item = [String; 7]>, width: usize) -> [Option<usize>; 7] {
    let mut whole = [0; 7];
    for row in rows {
        for (width, cell) in whole.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut whole = whole.map(Some);
    let mut left_out = LEFT_OUT.iter();
    loop {
        let widths = cut_to(whole, width);
        match left_out.next().filter(|_| over(widths, width) > 0) {
            Some(column) => whole[*column] = None,
            None => return widths,
        }
    }
}

/// By how much columns are wider than a line, two spaces in front of each.
fn over(widths: [Option<usize>; 7], width: usize) -> usize {
    let all: usize = widths.iter().flatten().map(|width| width + 2).sum();
    all.saturating_sub(width)
}

/// Columns of words as short as a line asks for, and as they may be.
fn cut_to(mut widths: [Option<usize>; 7], width: usize) -> [Option<usize>; 7] {
    for (column, least) in CUT {
        let over = over(widths, width);
        widths[column] = widths[column].map(|own| own.saturating_sub(over).max(least.min(own)));
    }
    widths
}

/// A row in these columns.
fn line(row: &[String; 7], widths: [Option<usize>; 7], width: usize) -> String {
    let mut line = String::from("  ");
    for (at, (width, cell)) in widths.iter().zip(row).enumerate() {
        let Some(width) = *width else { continue };
        let cell = if at == CASE {
            cut_within(cell, width)
        } else {
            cut(cell, width)
        };
        let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
        // Figures end where their column ends.
        match at {
            FIGURES.. => line.extend([&pad, &cell, "  "]),
            _ => line.extend([&cell, &*pad, "  "]),
        }
    }
    cut(line.trim_end(), width)
}

fn row(summary: &Summary) -> [String; 7] {
    let none = || "–".to_owned();
    let figure = |text: &str| {
        if text.is_empty() {
            none()
        } else {
            text.to_owned()
        }
    };
    let gap = summary.requests.as_ref().map(|requests| {
        requests
            .longest_gap
            .map_or_else(|| "0".to_owned(), |gap| length(gap.len_us()))
    });
    let answered = summary.requests.as_ref().map(|requests| {
        let size = |n| usize::try_from(n).unwrap_or(usize::MAX);
        percent(size(requests.answered), size(requests.sent))
    });
    let (_, case) = split(&summary.id);
    let strays = summary.strays.as_ref().map(|_| format!(" {STRAYS}"));
    let strays = strays.unwrap_or_default();
    [
        format!(
            "{} {}{strays}",
            mark(summary.outcome),
            summary.outcome.words()
        ),
        case.to_owned(),
        figure(&summary.expected),
        figure(&summary.got),
        summary
            .judged
            .map_or_else(none, |judged| length(judged.len_us())),
        gap.unwrap_or_else(none),
        answered.unwrap_or_else(none),
    ]
}

/// Scenario and the rest of an id.
pub(crate) fn split(id: &str) -> (&str, &str) {
    id.split_once('/').unwrap_or(("", id))
}

pub(crate) fn mark(outcome: Outcome) -> char {
    match outcome {
        Outcome::AsExpected => '✓',
        Outcome::NotAsExpected => '✗',
        Outcome::Inconclusive => '?',
        Outcome::Skipped | Outcome::NotBegun => '–',
    }
}

/// What is said of a case below the table: nothing of a healthy one or one that did not run, a line of an
/// incident that reproduced, everything of a case that is not as expected.
pub fn detail(summary: &Summary, terminal: Terminal) -> Option<String> {
    let Summary { id, outcome, .. } = summary;
    let remarks = remarks(summary);
    let said = summary.headline();
    let headline = match (&said, outcome) {
        (Some(headline), _) => headline,
        (None, Outcome::AsExpected) => outcome.words(),
        (None, _) => "no promise says why",
    };
    let first = wrap(&format!("{} {headline}", mark(*outcome)), terminal.width);
    let mut lines = Vec::new();
    match outcome {
        Outcome::AsExpected => {
            said.as_ref().or(remarks.first())?;
            lines.push(format!("  {id}, as expected: {}", summary.got));
        }
        Outcome::Skipped | Outcome::NotBegun => return None,
        Outcome::NotAsExpected | Outcome::Inconclusive => {
            let (expected, got) = (&summary.expected, &summary.got);
            let evidence = summary.evidence.iter();
            lines.extend(evidence.map(|line| format!("    {line}")));
            lines.push(format!("  {id}: expected {expected}, got {got}"));
            lines.extend(
                summary
                    .promises
                    .iter()
                    .flat_map(|promise| told(promise, headline, Told::Surprises)),
            );
            lines.extend(dropped(summary));
            lines.extend(story(summary));
            lines.extend(kept(summary));
        }
    }
    lines.extend(remarks.iter().map(|text| format!("    {text}")));
    let first = paint(&first, Some(*outcome), terminal.colour);
    let lines = lines.iter().map(|line| wrap(line, terminal.width) + "\n");
    Some(std::iter::once(first + "\n").chain(lines).collect())
}

/// Of which promises more than their states is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Of all.
    All,
    /// Of those that did not come out as expected.
    Surprises,
}

/// A promise below the headline of its case.
pub(crate) fn told(promise: &PromiseSummary, headline: &str, more: Told) -> Vec<String> {
    let state = match promise.state {
        State::Kept => "kept",
        State::Broken => "broken",
        State::Unknown => "unknown",
    };
    let sign = if promise.as_expected {
        "as expected"
    } else {
        "NOT as expected"
    };
    let when = promise.when.iter().map(|when| format!(" {when}"));
    let name = format!("{}{}", promise.name, when.collect::<String>());
    let mut lines = vec![format!("    {name}: {state}, {sign}")];
    if more == Told::All || !promise.as_expected {
        // The headline of the case is one promise's: it is not said twice.
        let own = Some(promise.headline()).filter(|own| own != headline);
        let told = own.into_iter().chain(promise.evidence());
        lines.extend(told.map(|line| format!("      {line}")));
    }
    lines
}

/// The first rules of the drop census; `chainbreak drops` tells all.
pub(crate) fn dropped(summary: &Summary) -> Vec<String> {
    const TOP: usize = 5;
    let Summary { drops, .. } = summary;
    let lines = drops::lines(drops.get(..TOP).unwrap_or(drops));
    if lines.is_empty() {
        return lines;
    }
    let head = "    dropped and rejected packets:".to_owned();
    let more = drops.len().checked_sub(TOP + 1);
    let more = more.map(|more| format!("      … and {}", count(more + 1, "more rule")));
    let lines = lines.iter().map(|line| format!("      {line}"));
    std::iter::once(head).chain(lines).chain(more).collect()
}

/// What happened in a case, for a terminal.
pub fn story(summary: &Summary) -> Vec<String> {
    if summary.story.is_empty() {
        return Vec::new();
    }
    let head = "    what happened (seconds since the case began):".to_owned();
    let lines = summary.story.lines().into_iter();
    let lines = lines.map(|line| format!("    {line}"));
    std::iter::once(head).chain(lines).collect()
}

/// The files that were kept of a case.
pub(crate) fn kept(summary: &Summary) -> impl Iterator<Item = String> {
    let paths = summary.artifacts.iter();
    paths.map(|path| format!("    kept: {path}"))
}

/// How many cases came to what, in this order: `310 cases: 308 as expected, 2 inconclusive`.
pub(crate) fn counted(summaries: &[Summary], order: [Outcome; 5]) -> String {
    let of = |outcome: Outcome| {
        let cases = summaries.iter();
        let cases = cases.filter(|summary| summary.outcome == outcome);
        (cases.count(), outcome.words())
    };
    tally(&order.map(of)).unwrap_or_else(|| "nothing to run".to_owned())
}

fn closing(summaries: &[Summary], reports: &[String]) -> String {
    let all = [
        Outcome::AsExpected,
        Outcome::NotAsExpected,
        Outcome::Inconclusive,
        Outcome::Skipped,
        Outcome::NotBegun,
    ];
    let mut out = counted(summaries, all) + "\n";
    for path in reports {
        out.push_str("  ");
        out.push_str(path);
        out.push('\n');
    }
    out
}

pub(crate) fn paint(line: &str, outcome: Option<Outcome>, colour: Colour) -> String {
    let code = match (colour, outcome) {
        (Colour::Off, _) => return line.to_owned(),
        (Colour::On, None) => "1",
        (Colour::On, Some(Outcome::AsExpected)) => "32",
        (Colour::On, Some(Outcome::NotAsExpected)) => "31",
        (Colour::On, Some(Outcome::Inconclusive)) => "33",
        (Colour::On, Some(Outcome::Skipped | Outcome::NotBegun)) => "2",
    };
    format!("\u{1b}[{code}m{line}\u{1b}[0m")
}
