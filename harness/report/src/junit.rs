//! JUnit, for the readers that there are: one flat suite per case and one for each step of its timeline that promises
//! are about by name, one test case per promise.
//!
//! There is no standard, so only what every reader takes is written (Jenkins' `junit-10.xsd` validates it):
//! suites are never nested, class name and name together are unique (GitLab drops doubles), properties and
//! attachments are lines of `system-out`, one failure carries everything. A promise that was expected to be
//! broken and is, is a success that says so. A failure is the product's, an error the world's.

use indexmap::IndexMap;
use junit_report::{
    Duration, OffsetDateTime, Report, ReportBuilder, TestCase, TestCaseBuilder, TestSuite,
    TestSuiteBuilder,
};

use crate::{
    Ended, ReportError, Run, drops,
    summary::{Outcome, PromiseSummary, State, Summary},
    text::{clean, one_line},
};

/// The name of the test case that stands for the case itself where no promise can: skipped, inconclusive,
/// or without promises. No promise can have it.
const WHOLE: &str = "(run)";

/// The name of the suite that stands for a run that did not come to its end.
const RUN: &str = "chainbreak";

/// What stands before all suites.
pub const HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<testsuites>\n";

/// The suites of a report one after the other: after [`HEAD`] come those of each case, then the end.
#[derive(Debug)]
pub struct Junit<'a> {
    run: &'a Run,
    started: OffsetDateTime,
    host: &'a str,
    suites: usize,
}

impl<'a> Junit<'a> {
    /// None yet.
    pub fn of(run: &'a Run) -> Self {
        let started = run.header.started.as_second();
        let host = run.header.host.get("hostname");
        Self {
            run,
            started: OffsetDateTime::from_unix_timestamp(started)
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
            host: host.map_or("localhost", String::as_str),
            suites: 0,
        }
    }

    /// The suites of the next case.
    pub fn case(&mut self, summary: &Summary) -> Result<String, ReportError> {
        self.elements(of_case(self.run, summary))
    }

    /// What stands after all cases.
    pub fn end(mut self) -> Result<String, ReportError> {
        let interrupted = interrupted(self.run).into_iter().collect();
        Ok(self.elements(interrupted)? + "</testsuites>\n")
    }

    fn elements(&mut self, suites: Vec<TestSuite>) -> Result<String, ReportError> {
        let mut out = String::new();
        for mut suite in suites {
            suite.timestamp = self.started;
            suite.hostname = xml(self.host);
            out.push_str(&element(&suite, self.suites)?);
            out.push('\n');
            self.suites += 1;
        }
        Ok(out)
    }
}

/// One suite as an element of its own. The library gives no `skipped` attribute, and some readers count by
/// it; alone in a report, the first `<testsuite ` is the suite's, whatever its texts contain.
fn element(suite: &TestSuite, id: usize) -> Result<String, ReportError> {
    let report: Report = ReportBuilder::new().add_testsuite(suite.clone()).build();
    let mut xml = Vec::new();
    report
        .write_xml(&mut xml)
        .map_err(|source| ReportError::Junit { source })?;
    let xml = String::from_utf8_lossy(&xml);
    let inner = xml
        .split_once("<testsuite id=\"0\" ")
        .map_or("", |(_, rest)| rest);
    let inner = inner.strip_suffix("</testsuites>").unwrap_or(inner);
    Ok(format!(
        "<testsuite id=\"{id}\" skipped=\"{}\" {inner}",
        suite.skipped()
    ))
}

/// The error that says that the run was stopped or killed: cases that were not planned yet would be missing
/// without a word.
fn interrupted(run: &Run) -> Option<TestSuite> {
    let why = match &run.ended {
        Some(Ended::Complete) => return None,
        Some(Ended::Interrupted(by)) => format!("the run was interrupted by {by}"),
        None => "the run has no end: it was killed, or is still going on".to_owned(),
    };
    let mut case = TestCase::error(
        "(interrupted)",
        Duration::ZERO,
        "interrupted",
        &xml(&one_line(&why)),
    );
    case.set_classname(RUN);
    Some(TestSuiteBuilder::new(RUN).add_testcase(case).build())
}

/// The suites of a case: its own, and one for each step that promises are about.
fn of_case(run: &Run, summary: &Summary) -> Vec<TestSuite> {
    let head = head(summary);
    let mut suites: IndexMap<String, Vec<TestCase>> = IndexMap::new();
    if summary.promises.is_empty() || summary.outcome == Outcome::Inconclusive {
        suites.insert(xml(&summary.id), vec![whole(summary)]);
    }
    for promise in &summary.promises {
        let name = match &promise.when {
            Some(when) => format!("{} {when}", summary.id),
            None => summary.id.clone(),
        };
        let cases = suites.entry(xml(&name)).or_default();
        cases.push(of_promise(summary, promise));
    }
    // Promises are judged over the same time; the case's time is counted once.
    if let Some(first) = suites.values_mut().flatten().next() {
        first.time = Duration::microseconds(i64::try_from(summary.took_us).unwrap_or(i64::MAX));
    }
    let suites = suites.into_iter().enumerate();
    let suite = |(number, (name, cases)): (usize, (String, Vec<TestCase>))| {
        let out = match number {
            0 => whole_out(run, summary, &head),
            _ => head.clone(),
        };
        suite(&name, cases, &head, &out)
    };
    suites.map(suite).collect()
}

fn suite(name: &str, mut cases: Vec<TestCase>, head: &str, out: &str) -> TestSuite {
    for case in &mut cases {
        case.set_classname(name);
        let own = case.system_out.take().unwrap_or_default();
        case.system_out = Some(cdata(&format!("{head}{own}"))).filter(|text| !text.is_empty());
    }
    let mut suite = TestSuiteBuilder::new(name);
    name.clone_into(&mut suite.testsuite.package);
    suite.add_testcases(cases).set_system_out(&cdata(out));
    suite.build()
}

/// What every test case of a case says first: how the world was made, and what was kept of it.
fn head(summary: &Summary) -> String {
    let mut lines = String::new();
    for (name, value) in &summary.facts {
        lines.push_str(&property(name, value));
    }
    if let Some(before) = &summary.judged_before {
        lines.push_str(&property("judged-before", &before.to_string()));
    }
    for request in &summary.unknown {
        lines.push_str(&property("unknown-request", &request.to_string()));
    }
    for path in &summary.artifacts {
        lines.push_str(&hint("ATTACHMENT", &one_line(path)));
    }
    lines
}

fn property(name: &str, value: &str) -> String {
    hint(
        "PROPERTY",
        &format!("{}={}", one_line(name), one_line(value)),
    )
}

/// A line that readers take out of `system-out`. What it says cannot end it early.
fn hint(kind: &str, text: &str) -> String {
    format!("[[{kind}|{}]]\n", text.replace("]]", "] ]"))
}

fn whole_out(run: &Run, summary: &Summary, head: &str) -> String {
    let mut text = head.to_owned();
    text.push_str(&property("chainbreak", &run.header.tool));
    text.push_str(&property("seed", &run.header.seed.to_string()));
    for (name, value) in &run.header.host {
        text.push_str(&property(name, value));
    }
    text.push_str(&property("outcome", summary.outcome.words()));
    if !summary.drops.is_empty() {
        text.push_str("\nDropped and rejected packets:\n");
        text.push_str(&drops::lines(&summary.drops).join("\n"));
        text.push('\n');
    }
    if !summary.story.is_empty() {
        text.push_str("\nWhat happened (seconds since the case began):\n");
        text.push_str(&summary.story.lines().join("\n"));
    }
    text
}

/// The test case that stands for the case itself.
fn whole(summary: &Summary) -> TestCase {
    let said = summary.headline();
    let message = xml(&one_line(said.as_deref().unwrap_or("nothing was promised")));
    let none = Duration::ZERO;
    match summary.outcome {
        Outcome::Skipped => TestCase::skipped_with_cause(WHOLE, "not to be run here", &message),
        Outcome::Inconclusive => {
            let lines = summary.evidence.iter().cloned();
            let lines: Vec<String> = lines.chain(summary.story.lines()).collect();
            TestCaseBuilder::error(WHOLE, none, "inconclusive", &message)
                .set_trace(&cdata(&lines.join("\n")))
                .build()
        }
        Outcome::AsExpected => TestCase::success(WHOLE, none),
        Outcome::NotAsExpected => TestCase::failure(WHOLE, none, "not as expected", &message),
    }
}

fn of_promise(summary: &Summary, promise: &PromiseSummary) -> TestCase {
    let (name, none) = (xml(&promise.name), Duration::ZERO);
    let message = xml(&one_line(&promise.headline()));
    let evidence = promise.evidence().join("\n");
    if promise.as_expected {
        let mut case = TestCase::success(&name, none);
        let text = match promise.state {
            State::Broken => format!("broken as expected: {message}\n{evidence}\n"),
            State::Kept | State::Unknown => format!("{message}\n"),
        };
        case.set_system_out(&text);
        return case;
    }
    let story = summary.story.lines().join("\n");
    let body = format!("{message}\n{evidence}\n\nWhat happened:\n{story}\n");
    // Where the world failed, nothing is said against the product.
    let errs = promise.state == State::Unknown || summary.outcome == Outcome::Inconclusive;
    let mut case = if errs {
        TestCaseBuilder::error(&name, none, "inconclusive", &message)
    } else {
        TestCaseBuilder::failure(&name, none, kind(promise.state), &message)
    };
    case.set_trace(&cdata(&body)).build()
}

fn kind(state: State) -> &'static str {
    match state {
        State::Broken => "broken",
        State::Kept => "incident did not reproduce",
        State::Unknown => "unknown",
    }
}

/// Text for an attribute: nothing that XML forbids. The library escapes the rest.
fn xml(text: &str) -> String {
    clean(text)
}

/// Text for a CDATA section, into which the library writes it as it is: a `]]>` is divided between two
/// sections.
fn cdata(text: &str) -> String {
    clean(text).replace("]]>", "]]]]><![CDATA[>")
}
