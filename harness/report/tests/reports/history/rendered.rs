//! What becomes of a run in each report.

use chainbreak_report::{
    Run, SummaryFile, junit,
    summary::{self, Summary},
    term::{Overview, Terminal, detail},
    text_file::{above, below, case},
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

/// The file of a run that people read.
pub(crate) fn text(run: &Run, terminal: Terminal) -> String {
    let summaries = summaries(run);
    let overview = overview(&summaries);
    let cases = summaries.iter().filter_map(|it| case(it, terminal));
    let cases: String = cases.collect();
    let above: String = above(run, &overview, terminal).collect();
    above + &cases + &below(&overview, terminal)
}

/// The file of a run that scripts read.
pub(crate) fn summary(run: &Run) -> String {
    let summaries = summaries(run);
    let mut file = SummaryFile::of(run);
    let head = file.head().unwrap();
    let cases = summaries.iter().map(|it| file.case(it).unwrap());
    let cases: String = cases.collect();
    head + &cases + &file.end(&summaries).unwrap()
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
    std::iter::once(overview.above(terminal).collect())
        .chain(details)
        .chain([overview.below(reports, terminal)])
        .collect::<Vec<_>>()
        .join("\n")
}
