//! What becomes of a run in each report.

use chainbreak_report::{
    Run, junit,
    summary::{self, Summary},
    term::{Overview, Terminal, case_story, detail},
};

/// All summaries of a run.
pub(crate) fn summaries(run: &Run) -> Vec<Summary> {
    summary::summaries(run)
}

/// The JUnit report of a run.
pub(crate) fn junit(run: &Run) -> String {
    let mut report = junit::Junit::of(run);
    let summaries = summaries(run);
    let cases = summaries.iter().map(|it| report.case(it).unwrap());
    let cases: String = cases.collect();
    junit::HEAD.to_owned() + &cases + &report.end().unwrap()
}

/// The story of a run as its file has it.
pub(crate) fn stories(summaries: &[Summary], terminal: Terminal) -> String {
    let told = summaries.iter().filter_map(|it| case_story(it, terminal));
    overview(summaries).above(terminal) + &told.collect::<String>()
}

fn overview(summaries: &[Summary]) -> Overview {
    let mut overview = Overview::default();
    for summary in summaries {
        overview.add(summary.clone());
    }
    overview
}

/// What is printed at the end of a run.
pub(crate) fn printed(summaries: &[Summary], reports: &[String], terminal: Terminal) -> String {
    let overview = overview(summaries);
    let details = summaries.iter().filter_map(|it| detail(it, terminal));
    std::iter::once(overview.above(terminal))
        .chain(details)
        .chain([overview.below(reports, terminal)])
        .collect::<Vec<_>>()
        .join("\n")
}
