//! JUnit, for the readers that there are: one flat suite per case and one for each step of its timeline that promises
//! are about by name, one test case per promise.
//!
//! There is no standard, so only what every reader takes is written: suites are never nested, class name and name together
//! are unique (GitLab drops doubles), properties stand once in a suite, attachments are lines of `system-out` (where Jenkins
//! and GitLab look for them), one failure carries everything. Test cases say where their variant stands: GitLab links `file`,
//! action-junit-report annotates `file` and `line`. Jenkins' `junit` step passes over these two. The schema of its xunit
//! plugin (`junit-10.xsd`) had such attributes until 2018 and refuses them since; everything else is valid by it.
//!
//! The time of a test case is how long its promise was judged. Promises are judged side by side, so a suite's time is not
//! the sum: the first suite of a case has the time of the case, that of a step the longest of its promises'.
//!
//! A promise that was expected to be broken and is, is a success that says so. A failure is the product's, an error the
//! world's.

use std::collections::BTreeSet;

use chainbreak_model::verdict::Span;
use indexmap::{IndexMap, IndexSet};
use junit_report::{
    Duration, OffsetDateTime, Report, ReportBuilder, TestCase, TestCaseBuilder, TestSuite,
    TestSuiteBuilder,
};

use crate::{
    Ended, Header, ReportError, Run, drops,
    summary::{Outcome, PromiseSummary, State, Summary},
    text::{clean, escaped, one_line},
};

/// The name of the test case that stands for the case itself where no promise can: skipped, inconclusive,
/// or without promises. No promise can have it.
const WHOLE: &str = "(run)";

/// The name of the suite that stands for a run that did not come to its end.
const RUN: &str = "chainbreak";

/// What stands before all suites.
pub const HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<testsuites>\n";

/// A suite, and what the library has no place for.
#[derive(Debug)]
struct Suite {
    inner: TestSuite,
    time: Duration,
    properties: Properties,
    /// Where its test cases stand in their file.
    line: Option<usize>,
}

/// Names and values.
type Properties = IndexSet<(String, String)>;

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

    fn elements(&mut self, suites: Vec<Suite>) -> Result<String, ReportError> {
        let mut out = String::new();
        for mut suite in suites {
            suite.inner.timestamp = self.started;
            suite.inner.hostname = xml(self.host);
            out.push_str(&element(&suite, self.suites)?);
            out.push('\n');
            self.suites += 1;
        }
        Ok(out)
    }
}

/// One suite as an element of its own, with what the library lacks: the number of skipped test cases, by which some
/// readers count, a time that is no sum, properties, and the lines of test cases. Alone in a report, the first `<testsuite `
/// is the suite's, and the first `>` after it ends that: in attributes the library escapes what is others'.
fn element(suite: &Suite, id: usize) -> Result<String, ReportError> {
    let Suite {
        inner,
        time,
        properties,
        line,
    } = suite;
    let report: Report = ReportBuilder::new().add_testsuite(inner.clone()).build();
    let mut xml = Vec::new();
    report
        .write_xml(&mut xml)
        .map_err(|source| ReportError::Junit { source })?;
    let xml = String::from_utf8_lossy(&xml);
    let (_, xml) = xml.split_once("<testsuite id=\"0\" ").unwrap_or_default();
    let xml = xml.strip_suffix("</testsuites>").unwrap_or(xml);
    let (attributes, content) = xml.split_once('>').unwrap_or((xml, ""));
    let (attributes, _) = attributes
        .rsplit_once(" time=\"")
        .unwrap_or((attributes, ""));
    let content = match line {
        Some(line) => in_markup(
            content,
            "<testcase ",
            &format!("<testcase line=\"{line}\" "),
        ),
        None => content.to_owned(),
    };
    let (skipped, seconds) = (inner.skipped(), time.as_seconds_f64());
    let properties = listed(properties);
    Ok(format!(
        "<testsuite id=\"{id}\" skipped=\"{skipped}\" {attributes} time=\"{seconds}\">{properties}{content}"
    ))
}

/// Properties as an element; none is no element.
fn listed(properties: &Properties) -> String {
    if properties.is_empty() {
        return String::new();
    }
    let each = properties.iter().map(|(name, value)| {
        let (name, value) = (escaped(name), escaped(value));
        format!("<property name=\"{name}\" value=\"{value}\"/>\n")
    });
    let each: String = each.collect();
    format!("<properties>\n{each}</properties>")
}

/// XML with something replaced in its markup, and nothing in its sections of CDATA: these are others'.
fn in_markup(xml: &str, from: &str, to: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(xml.len()), xml);
    while let Some((markup, data)) = rest.split_once("<![CDATA[") {
        let (data, after) = data.split_once("]]>").unwrap_or((data, ""));
        out.push_str(&markup.replace(from, to));
        out.extend(["<![CDATA[", data, "]]>"]);
        rest = after;
    }
    out + &rest.replace(from, to)
}

/// The error that says that the run was stopped or killed: cases that were not planned yet would be missing
/// without a word.
fn interrupted(run: &Run) -> Option<Suite> {
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
    Some(Suite {
        inner: TestSuiteBuilder::new(RUN).add_testcase(case).build(),
        time: Duration::ZERO,
        properties: of_run(run).collect(),
        line: None,
    })
}

/// The suites of a case: its own, and one for each step that promises are about.
fn of_case(run: &Run, summary: &Summary) -> Vec<Suite> {
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
    let (properties, kept) = (properties(run, summary), attachments(summary));
    let suites = suites.into_iter().enumerate();
    let suite = |(number, (name, cases)): (usize, (String, Vec<TestCase>))| {
        let longest = cases.iter().map(|case| case.time).max();
        let (time, out) = match number {
            0 => (duration(summary.took_us), whole_out(summary, &kept)),
            _ => (longest.unwrap_or_default(), kept.clone()),
        };
        Suite {
            inner: suite(&name, cases, summary.file.as_deref(), [&kept, &out]),
            time,
            properties: properties.clone(),
            line: summary.line,
        }
    };
    suites.map(suite).collect()
}

fn suite(
    name: &str,
    mut cases: Vec<TestCase>,
    file: Option<&str>,
    [kept, out]: [&str; 2],
) -> TestSuite {
    let said = |text: String| Some(cdata(&text)).filter(|text| !text.is_empty());
    for case in &mut cases {
        case.set_classname(name);
        case.filepath = file.map(xml);
        let own = case.system_out.take().unwrap_or_default();
        case.system_out = said(format!("{kept}{own}"));
    }
    let mut suite = TestSuiteBuilder::new(name);
    name.clone_into(&mut suite.testsuite.package);
    suite.testsuite.system_out = said(out.to_owned());
    suite.add_testcases(cases).build()
}

fn names(strays: &BTreeSet<String>) -> String {
    strays.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// How the world was made, in which run, and what the case came to.
fn properties(run: &Run, summary: &Summary) -> Properties {
    let before = summary.judged_before.iter();
    let before = before.map(|before| ("judged-before".to_owned(), before.to_string()));
    let strays = summary.strays.iter();
    let strays = strays.map(|them| ("strays".to_owned(), names(them)));
    let unknown = summary.unknown.iter();
    let unknown = unknown.map(|request| ("unknown-request".to_owned(), request.to_string()));
    let outcome = ("outcome".to_owned(), summary.outcome.words().to_owned());
    let facts = summary.facts.iter().cloned();
    let all = facts
        .chain(before)
        .chain(strays)
        .chain(unknown)
        .chain(of_run(run));
    all.chain([outcome]).collect()
}

fn of_run(run: &Run) -> impl Iterator<Item = (String, String)> {
    let Header {
        tool, seed, host, ..
    } = &run.header;
    let own = [("chainbreak", tool.clone()), ("seed", seed.to_string())];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let all = own.into_iter().chain(host.clone());
    all.map(|(name, value)| (one_line(&name), one_line(&value)))
}

/// The files that were kept, each as a line that readers take out of `system-out`. What it says cannot end it early.
fn attachments(summary: &Summary) -> String {
    let paths = summary.artifacts.iter();
    let paths = paths.map(|path| one_line(path).replace("]]", "] ]"));
    let lines = paths.map(|path| format!("[[ATTACHMENT|{path}]]\n"));
    lines.collect()
}

fn whole_out(summary: &Summary, kept: &str) -> String {
    let mut parts = vec![kept.to_owned()];
    if !summary.drops.is_empty() {
        let lines = drops::lines(&summary.drops).join("\n");
        parts.push(format!("Dropped and rejected packets:\n{lines}\n"));
    }
    if !summary.story.is_empty() {
        let lines = summary.story.lines().join("\n");
        parts.push(format!(
            "What happened (seconds since the case began):\n{lines}"
        ));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// The test case that stands for the case itself.
fn whole(summary: &Summary) -> TestCase {
    let said = summary.headline();
    let message = xml(&one_line(said.as_deref().unwrap_or("nothing was promised")));
    let time = duration(summary.took_us);
    match summary.outcome {
        Outcome::Skipped => TestCase::skipped_with_cause(WHOLE, "not to be run here", &message),
        Outcome::NotBegun => TestCase::skipped_with_cause(WHOLE, "not begun", &message),
        Outcome::Inconclusive => {
            let lines = summary.evidence.iter().cloned();
            let lines: Vec<String> = lines.chain(summary.story.lines()).collect();
            TestCaseBuilder::error(WHOLE, time, "inconclusive", &message)
                .set_trace(&cdata(&lines.join("\n")))
                .build()
        }
        Outcome::AsExpected => TestCase::success(WHOLE, time),
        Outcome::NotAsExpected => TestCase::failure(WHOLE, time, "not as expected", &message),
    }
}

fn of_promise(summary: &Summary, promise: &PromiseSummary) -> TestCase {
    let name = xml(&promise.name);
    let time = duration(promise.judged.map_or(0, Span::len_us));
    let message = xml(&one_line(&promise.headline()));
    let evidence = promise.evidence().join("\n");
    if promise.as_expected {
        let mut case = TestCase::success(&name, time);
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
        TestCaseBuilder::error(&name, time, "inconclusive", &message)
    } else {
        TestCaseBuilder::failure(&name, time, kind(promise), &message)
    };
    case.set_trace(&cdata(&body)).build()
}

fn duration(us: u64) -> Duration {
    Duration::microseconds(i64::try_from(us).unwrap_or(i64::MAX))
}

fn kind(promise: &PromiseSummary) -> &'static str {
    match promise.state {
        State::Broken if promise.expected_by.is_some() => "another culprit",
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
