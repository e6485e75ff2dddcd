//! `summary.json`: what each case came to, for scripts that read neither `run.jsonl` nor words.
//!
//! It is written in pieces, a line a case: of a run with thousands of them one is in memory at a time. A later version may add members;
//! one that takes any away, or changes what it means, has another `format`. `docs/reports.md` has all of them.

use std::collections::BTreeSet;

use chainbreak_model::{
    case::CaseId,
    verdict::{CaseVerdict, Expected, Requests, Span},
};
use indexmap::IndexMap;
use serde::Serialize;

use crate::{
    ReportError, Run, exit_code,
    repeats::{Rate, rates},
    summary::{Headline, Outcome, PromiseSummary, State, Summary},
    text::json,
};

/// The format that this version writes.
const FORMAT: u32 = 2;

/// The pieces of the file one after the other: its head, every case, the end.
#[derive(Debug)]
pub struct SummaryFile<'a> {
    run: &'a Run,
    cases: usize,
}

impl<'a> SummaryFile<'a> {
    /// None yet.
    pub fn of(run: &'a Run) -> Self {
        Self { run, cases: 0 }
    }

    /// What stands before all cases.
    pub fn head(&self) -> Result<String, ReportError> {
        let header = &self.run.header;
        let members = [
            member("format", &FORMAT)?,
            member("tool", &header.tool)?,
            member("seed", &header.seed)?,
            member("started", &header.started)?,
            member("finished", &self.run.finished)?,
            member("took-us", &self.run.took_us())?,
            member("ended", &self.run.ended)?,
            member("host", &header.host)?,
        ];
        Ok(format!("{{\n{},\n\"cases\":[", members.join(",\n")))
    }

    /// The next case.
    pub fn case(&mut self, summary: &Summary) -> Result<String, ReportError> {
        let comma = if self.cases == 0 { "" } else { "," };
        self.cases += 1;
        Ok(format!("{comma}\n{}", value(&Entry::of(summary))?))
    }

    /// What stands after all cases, which are these; nothing but their ids and their outcomes is looked at.
    pub fn end(self, cases: &[Summary]) -> Result<String, ReportError> {
        let rates: Vec<Rated<'_>> = rates(cases).into_iter().map(Rated::of).collect();
        let members = [
            member("counts", &Counts::of(cases))?,
            member("exit-code", &exit_code(cases))?,
            member("rates", &rates)?,
        ];
        Ok(format!("\n],\n{}\n}}\n", members.join(",\n")))
    }
}

fn member(name: &str, of: &impl Serialize) -> Result<String, ReportError> {
    Ok(format!("\"{name}\":{}", value(of)?))
}

fn value(of: &impl Serialize) -> Result<String, ReportError> {
    json(of).map_err(|source| ReportError::Summary { source })
}

/// One that did not run has all of the members, too, and why.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Entry<'a> {
    case: &'a str,
    scenario: &'a str,
    variant: &'a str,
    matrix: IndexMap<&'a str, &'a str>,
    repetition: Option<u32>,
    file: Option<&'a str>,
    line: Option<usize>,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    judged_before: Option<CaseVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strays: Option<&'a BTreeSet<String>>,
    expected: Option<&'a str>,
    got: Option<&'a str>,
    headline: Option<String>,
    promises: Vec<Promised<'a>>,
    requests: Option<Requested<'a>>,
    judged_us: Option<u64>,
    took_us: u64,
    kept: &'a [String],
}

impl<'a> Entry<'a> {
    fn of(summary: &'a Summary) -> Self {
        let CaseId {
            scenario,
            variant,
            cell,
            repetition,
        } = CaseId::of(&summary.id);
        let (headline, reason) = match &summary.headline {
            Some(Headline::Skipped(reason)) => (None, Some(reason.as_str())),
            _ => (summary.headline(), None),
        };
        let ran = summary.outcome.has_run();
        Self {
            case: &summary.id,
            scenario,
            variant,
            matrix: cell,
            repetition,
            file: summary.file.as_deref(),
            line: summary.line,
            outcome: summary.outcome,
            reason,
            judged_before: summary.judged_before,
            strays: summary.strays.as_ref(),
            expected: ran.then_some(summary.expected.as_str()),
            got: ran.then_some(summary.got.as_str()),
            headline,
            promises: summary.promises.iter().map(Promised::of).collect(),
            requests: summary.requests.as_ref().map(Requested::of),
            judged_us: summary.judged.map(Span::len_us),
            took_us: summary.took_us,
            kept: &summary.artifacts,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Promised<'a> {
    name: &'a str,
    when: Option<&'a str>,
    expected: Expected,
    state: State,
    as_expected: bool,
    by: &'a BTreeSet<String>,
    just_before: &'a BTreeSet<String>,
    rules_of: &'a BTreeSet<String>,
    expected_by: Option<&'a str>,
    headline: String,
    judged_us: Option<u64>,
}

impl<'a> Promised<'a> {
    fn of(promise: &'a PromiseSummary) -> Self {
        Self {
            name: &promise.name,
            when: promise.when.as_deref(),
            expected: promise.expected,
            state: promise.state,
            as_expected: promise.as_expected,
            by: &promise.by,
            just_before: &promise.just_before,
            rules_of: &promise.rules_of,
            expected_by: promise.expected_by.as_deref(),
            headline: promise.headline(),
            judged_us: promise.judged.map(Span::len_us),
        }
    }
}

/// The requests of that `available` promise of which fewest were answered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Requested<'a> {
    traffic: &'a str,
    sent: u64,
    answered: u64,
    outcomes: &'a IndexMap<String, u64>,
    gaps: u64,
    longest_gap_us: u64,
}

impl<'a> Requested<'a> {
    fn of(requests: &'a Requests) -> Self {
        Self {
            traffic: requests.traffic.as_str(),
            sent: requests.sent,
            answered: requests.answered,
            outcomes: &requests.outcomes,
            gaps: requests.gaps,
            longest_gap_us: requests.longest_gap.map_or(0, Span::len_us),
        }
    }
}

/// How many cases came to what.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Counts {
    as_expected: usize,
    not_as_expected: usize,
    inconclusive: usize,
    skipped: usize,
    not_begun: usize,
}

impl Counts {
    fn of(cases: &[Summary]) -> Self {
        let of = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
        Self {
            as_expected: of(Outcome::AsExpected),
            not_as_expected: of(Outcome::NotAsExpected),
            inconclusive: of(Outcome::Inconclusive),
            skipped: of(Outcome::Skipped),
            not_begun: of(Outcome::NotBegun),
        }
    }
}

/// A case that was repeated.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Rated<'a> {
    case: &'a str,
    as_expected: u32,
    judged: u32,
    inconclusive: u32,
    /// Between which shares the true one lies, as [`Rate::interval`] has them.
    interval: Option<[f64; 2]>,
}

impl<'a> Rated<'a> {
    fn of((case, rate): (&'a str, Rate)) -> Self {
        Self {
            case,
            as_expected: rate.as_expected,
            judged: rate.judged,
            inconclusive: rate.inconclusive,
            interval: rate.interval(),
        }
    }
}
