//! What GitHub is told of a run: annotations, and a page for the summary of the step, both about the cases that did not come
//! out as expected. Nothing is written here.
//!
//! An annotation is a line of a step's output, `::error file=…,line=…,title=…::message`. What others wrote stands in it as
//! the runner reads it back (actions/runner, `ActionCommand.cs`), so that none of it ends the line, the property or the
//! properties: no text is another command.
//!
//! The page is Markdown, and what others wrote stands in blocks of HTML alone, escaped: in a block that begins with
//! `<table>` or `<details>` nothing is Markdown up to the next blank line, in one that begins with `<pre>` up to its end
//! (`CommonMark` 0.31, 4.6).

use crate::{
    summary::{Outcome, Summary},
    term::{Colour, Terminal, counted, detail, mark},
    text::{escaped, one_line, shown},
};

/// So many annotations of a kind are shown of one step.
const SHOWN: usize = 10;

/// So long may the summary of a step be, in bytes: of one that is longer nothing is shown.
pub const LARGEST: usize = 1 << 20;

/// The line width of what was seen of a case.
const PLAIN: Terminal = Terminal {
    width: 140,
    colour: Colour::Off,
};

/// What the summary has of its own beside its cases takes less, in bytes.
const AROUND: usize = 1000;

/// The cases of a run that did not come out as expected, gathered one after the other.
#[derive(Debug, Default)]
pub struct Failed {
    errors: Annotations,
    warnings: Annotations,
    rows: Vec<String>,
    /// What was seen of the first ones, as much as there can be room for.
    details: Vec<String>,
    bytes: usize,
}

/// Annotations of one kind: the first ones, and how many there would be.
#[derive(Debug, Default)]
struct Annotations {
    first: Vec<String>,
    count: usize,
}

impl Failed {
    /// The next case; one that came out as expected, or did not run, is not told of. `again` runs it again.
    pub fn add(&mut self, summary: &Summary, again: Option<&str>) {
        let annotations = match summary.outcome {
            Outcome::NotAsExpected => &mut self.errors,
            Outcome::Inconclusive => &mut self.warnings,
            Outcome::AsExpected | Outcome::Skipped | Outcome::NotBegun => return,
        };
        annotations.add(summary);
        self.rows.push(row(summary, again));
        if self.bytes < LARGEST {
            let folded = folded(summary);
            self.bytes += folded.len();
            self.details.push(folded);
        }
    }

    /// The annotations, a line each.
    pub fn annotations(&self) -> Vec<String> {
        let errors = self.errors.lines(Outcome::NotAsExpected);
        errors
            .into_iter()
            .chain(self.warnings.lines(Outcome::Inconclusive))
            .collect()
    }

    /// The summary of the step for a run of these cases, in at most so many bytes.
    pub fn markdown(&self, cases: &[Summary], room: usize) -> String {
        let order = [
            Outcome::NotAsExpected,
            Outcome::Inconclusive,
            Outcome::AsExpected,
            Outcome::Skipped,
            Outcome::NotBegun,
        ];
        let head = format!("\n\n## chainbreak\n\n{}\n", counted(cases, order));
        let Some(mut room) = room.checked_sub(head.len() + AROUND) else {
            return String::new();
        };
        if self.rows.is_empty() {
            return head;
        }
        let rows = fitting(&self.rows, &mut room);
        let details = fitting(&self.details, &mut room);
        let (all, told, seen) = (self.rows.len(), rows.len(), details.len());
        let left_out = if seen < all {
            format!(
                "\nOf {all} cases {told} are told here, {seen} with what was seen: the reports of the run have all of it.\n"
            )
        } else {
            String::new()
        };
        let (rows, details) = (rows.concat(), details.concat());
        format!(
            "{head}\n<table>\n<tr><th>case</th><th>verdict</th><th>what</th></tr>\n{rows}</table>\n{details}{left_out}"
        )
    }
}

impl Annotations {
    fn add(&mut self, summary: &Summary) {
        if self.first.len() < SHOWN {
            self.first.push(annotation(summary));
        }
        self.count += 1;
    }

    /// All of them; where not all would be shown, the last says how many more there are.
    fn lines(&self, outcome: Outcome) -> Vec<String> {
        if self.count <= SHOWN {
            return self.first.clone();
        }
        let told = self.first.iter().take(SHOWN - 1).cloned();
        let more = self.count - (SHOWN - 1);
        let words = format!("{more} more cases are {}", outcome.words());
        let last = command(outcome, &[("title", "chainbreak")], &words);
        told.chain([last]).collect()
    }
}

/// A case in the table.
fn row(summary: &Summary, again: Option<&str>) -> String {
    let id = escaped(&one_line(&summary.id));
    let (mark, verdict) = (mark(summary.outcome), summary.outcome.words());
    let headline = escaped(&headline(summary));
    let again = again.map(|again| escaped(&one_line(again)));
    let again = again.map(|again| format!("<br><code>{again}</code>"));
    let again = again.unwrap_or_default();
    format!(
        "<tr><td><code>{id}</code></td><td>{mark} {verdict}</td><td>{headline}{again}</td></tr>\n"
    )
}

/// What was seen of a case, folded.
fn folded(summary: &Summary) -> String {
    let (mark, id) = (mark(summary.outcome), escaped(&one_line(&summary.id)));
    let seen = escaped(&detail(summary, PLAIN).unwrap_or_default());
    format!(
        "\n<details><summary>{mark} <code>{id}</code></summary>\n\n<pre>\n{seen}</pre>\n</details>\n"
    )
}

/// The first line of a case that did not come out as expected.
fn headline(summary: &Summary) -> String {
    let said = summary.headline();
    let said = said.unwrap_or_else(|| summary.outcome.words().to_owned());
    one_line(&said)
}

/// Of these parts all that there is still room for.
fn fitting<'a>(parts: &'a [String], room: &mut usize) -> Vec<&'a str> {
    let mut fits = Vec::new();
    for part in parts {
        if let Some(left) = room.checked_sub(part.len()) {
            *room = left;
            fits.push(part.as_str());
        }
    }
    fits
}

/// What did not come out as expected is an error of the product's, what could not be judged a warning.
fn annotation(summary: &Summary) -> String {
    let title = format!("{}: {}", summary.id, summary.outcome.words());
    let line = summary.line.map(|line| line.to_string());
    let properties = [
        ("file", summary.file.as_deref()),
        ("line", line.as_deref()),
        ("title", Some(title.as_str())),
    ];
    let known = properties.into_iter();
    let known = known.filter_map(|(key, value)| Some((key, value?)));
    let known: Vec<(&str, &str)> = known.collect();
    command(summary.outcome, &known, &headline(summary))
}

/// A command to the runner.
fn command(outcome: Outcome, properties: &[(&str, &str)], message: &str) -> String {
    let kind = match outcome {
        Outcome::Inconclusive => "warning",
        _ => "error",
    };
    let properties = properties.iter();
    let properties = properties.map(|(key, value)| format!("{key}={}", property(value)));
    let properties: Vec<String> = properties.collect();
    format!("::{kind} {}::{}", properties.join(","), data(message))
}

/// A message as the runner reads it back.
fn data(text: &str) -> String {
    let text = shown(text).replace('%', "%25");
    text.replace('\r', "%0D").replace('\n', "%0A")
}

/// A property as the runner reads it back.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests;
