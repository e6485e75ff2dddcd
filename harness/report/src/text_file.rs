//! `report.txt`: all that a terminal shows, which run it is, and of every case that ran its promises with what they rest on and its story,
//! also where it came out as expected.

use crate::{
    Run,
    head::of_run,
    summary::Summary,
    term::{Overview, Terminal, Told, dropped, kept, story, told},
    text::wrap,
    words::remarks,
};

/// What stands above the cases: the run, who played the agents, and the table of verdicts.
pub fn above(run: &Run, overview: &Overview, terminal: Terminal) -> impl Iterator<Item = String> {
    let head = lines(of_run(run), terminal) + "\n";
    std::iter::once(head).chain(overview.above(terminal))
}

/// A case. Of one that did not run [`below`] says why; of those that had not begun, how many.
pub fn case(summary: &Summary, terminal: Terminal) -> Option<String> {
    let Summary {
        id,
        outcome,
        expected,
        got,
        ..
    } = summary;
    if !outcome.has_run() {
        return None;
    }
    let said = summary.headline();
    let headline = said.as_deref().unwrap_or_default();
    let mut text = vec![String::new(), id.clone()];
    text.extend(said.iter().map(|line| format!("  {line}")));
    text.extend(summary.evidence.iter().map(|line| format!("    {line}")));
    let outcome = outcome.words();
    text.push(format!("  {outcome}: expected {expected}, got {got}"));
    text.extend(remarks(summary).iter().map(|line| format!("    {line}")));
    let promises = summary.promises.iter();
    text.extend(promises.flat_map(|promise| told(promise, headline, Told::All)));
    text.extend(dropped(summary));
    text.extend(kept(summary));
    text.extend(story(summary));
    Some(lines(text, terminal))
}

/// What stands below the cases: why some did not run, what the API server did not know, and how many came to what.
pub fn below(overview: &Overview, terminal: Terminal) -> String {
    format!("\n{}", overview.below(&[], terminal))
}

fn lines(text: Vec<String>, terminal: Terminal) -> String {
    let lines = text.into_iter();
    let lines = lines.map(|line| wrap(&line, terminal.width) + "\n");
    lines.collect()
}
