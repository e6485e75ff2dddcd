//! What reports show of a case: the verdict and what explains it beside the story, as values. Terminal, JUnit and HTML only
//! lay this out.

use std::collections::BTreeSet;

use chainbreak_model::{
    Judge,
    case::{Case, Claim, repeated_case},
    event::{Event, EventKind, Phase},
    verdict::{CaseVerdict, Evidence, Requests, Span, Verdict},
};
use serde::Serialize;

mod promises;

pub use promises::{PromiseSummary, State};

use crate::{
    Recorded, Run, commands, culprits,
    drops::{Drops, drops},
    edits::EditIndex,
    explain::Material,
    gaps::gaps,
    head::{UnknownRequest, unknown_requests},
    text::{clean, one_line},
    timeline::{self, Story},
    words::{expected, got},
};

/// How a case is called in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every promise came out as expected.
    AsExpected,
    /// Some promise did not.
    NotAsExpected,
    /// The world failed, or the run was stopped before the case came to its end.
    Inconclusive,
    /// It did not run.
    Skipped,
    /// It is to run, and has not begun: the run was interrupted or killed before, or goes on.
    NotBegun,
}

impl Outcome {
    /// Whether it ran and did not come out as expected.
    pub fn has_failed(self) -> bool {
        matches!(self, Self::NotAsExpected | Self::Inconclusive)
    }

    /// Whether it has no verdict.
    pub(crate) fn is_undecided(self) -> bool {
        !matches!(self, Self::AsExpected | Self::NotAsExpected)
    }

    /// Whether it ran, as far as it came.
    pub(crate) fn has_run(self) -> bool {
        !matches!(self, Self::Skipped | Self::NotBegun)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::AsExpected => "as expected",
            Self::NotAsExpected => "not as expected",
            Self::Inconclusive => "inconclusive",
            Self::Skipped => "skipped",
            Self::NotBegun => "not begun",
        }
    }
}

/// Everything that reports show of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// The case's id.
    pub id: String,
    /// The scenario's file, as it was named; none of a case that did not run.
    pub file: Option<String>,
    /// The line in it that names the variant, from 1 on, where the run says it.
    pub line: Option<usize>,
    /// What it came to.
    pub outcome: Outcome,
    /// What it was judged when it ran, where a program of another release judged otherwise.
    pub judged_before: Option<CaseVerdict>,
    /// What the first line says: what, where, when, because of whom; why it is inconclusive or skipped; and for an
    /// incident that reproduced as expected, what broke. Nothing for a healthy case.
    pub headline: Option<Headline>,
    /// What the first line stands on, where the world failed: the rest of what was said of it, and what else
    /// failed.
    pub evidence: Vec<String>,
    /// What was expected, in short: `healthy`, `3 broken`.
    pub expected: String,
    /// What was seen, in short.
    pub got: String,
    /// Who is found behind what broke, where nobody of them, or nobody at all, is the case's own.
    pub strays: Option<BTreeSet<String>>,
    /// The promises, in the scenario's order.
    pub promises: Vec<PromiseSummary>,
    /// The requests of that `available` promise of which fewest were answered.
    pub requests: Option<Requests>,
    /// When it was judged.
    pub judged: Option<Span>,
    /// From its beginning to its last event.
    pub took_us: u64,
    /// What its history says about the world: agents' sources, versions, substitutions.
    pub facts: Vec<(String, String)>,
    /// What the API server was asked for and does not know.
    pub unknown: Vec<UnknownRequest>,
    /// The rules in which packets ended while it was judged, most packets first.
    pub drops: Vec<Drops>,
    /// The story.
    pub story: Story,
    /// Files kept, relative to the folder of the run.
    pub artifacts: Vec<String>,
}

impl Summary {
    /// The case's id; of a repetition, that of the case which is repeated.
    pub fn case(&self) -> &str {
        repeated_case(&self.id).unwrap_or(&self.id)
    }

    /// What the table of verdicts has of it, and why it was skipped: a run of thousands of cases keeps no more.
    pub(crate) fn brief(self) -> Self {
        let skipped = self.outcome == Outcome::Skipped;
        Self {
            file: None,
            line: None,
            headline: self.headline.filter(|_| skipped),
            evidence: Vec::new(),
            promises: Vec::new(),
            facts: Vec::new(),
            unknown: Vec::new(),
            drops: Vec::new(),
            story: Story::default(),
            artifacts: Vec::new(),
            ..self
        }
    }
}

/// What the first line of a case says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headline {
    /// What is found of one of its promises.
    Promise(usize),
    /// What failed in the world.
    Trouble(String),
    /// It was stopped or killed before its time was over.
    Stopped {
        /// When the last thing happened that is known of it, if anything is.
        last_us: Option<u64>,
    },
    /// Why it did not run.
    Skipped(String),
    /// It has not begun.
    NotBegun,
}

/// The summaries of a run, in the order of its plan, skipped cases last. Every case is judged again from
/// plan and history, which is read when its summary is asked for. A case whose history cannot be read is inconclusive.
pub fn each(run: &Run) -> impl Iterator<Item = Summary> {
    let ran = run.cases.iter();
    let ran = ran.map(|(id, recorded)| of_planned(id, recorded));
    let skipped = run.skipped.iter();
    ran.chain(skipped.map(|skipped| of_skipped(&skipped.id, &skipped.reason)))
}

/// The cases of a run that are left to be run again, each once however often it is repeated: those that did not come out as expected, and those
/// of which no repetition has begun.
pub fn left(run: &Run) -> BTreeSet<String> {
    let (mut left, mut not_begun, mut begun) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    // One case is in memory at a time.
    for summary in each(run) {
        let of_it = match summary.outcome {
            Outcome::NotAsExpected | Outcome::Inconclusive => &mut left,
            Outcome::NotBegun => &mut not_begun,
            Outcome::AsExpected => &mut begun,
            Outcome::Skipped => continue,
        };
        of_it.insert(summary.case().to_owned());
    }
    left.extend(not_begun.into_iter().filter(|case| !begun.contains(case)));
    left
}

/// All summaries of a run, as [`each`] makes them.
pub fn summaries(run: &Run) -> Vec<Summary> {
    each(run).collect()
}

/// The summary of one case, if the run has it and it was to be run.
pub fn of(run: &Run, id: &str) -> Option<Summary> {
    let recorded = run.cases.get(id)?;
    Some(of_planned(id, recorded))
}

fn of_planned(id: &str, recorded: &Recorded) -> Summary {
    if recorded.history.has_begun() {
        return with_material(id, recorded, |_, summary| summary);
    }
    Summary {
        file: Some(recorded.case.file.display().to_string()),
        line: recorded.case.line,
        outcome: Outcome::NotBegun,
        headline: Some(Headline::NotBegun),
        ..of_skipped(id, "")
    }
}

/// What `show` makes of a case's summary and of what that is made from, which is in memory as long as that takes.
pub(crate) fn with_material<T>(
    id: &str,
    recorded: &Recorded,
    show: impl FnOnce(&Material<'_>, Summary) -> T,
) -> T {
    judged(recorded, |material, verdict, promises| {
        let summary = of_case(id, recorded, material, verdict, promises);
        show(material, summary)
    })
}

/// What a case comes to that was judged as expected when it ended: whether that is because of whom its scenario names is
/// found in the whole history alone.
pub fn comes_to(recorded: &Recorded) -> CaseVerdict {
    judged(recorded, |_, verdict, promises| {
        culprits::verdict(verdict, &promises)
    })
}

/// What `show` makes of what a case and its promises are judged.
fn judged<T>(
    recorded: &Recorded,
    show: impl FnOnce(&Material<'_>, &Verdict, Vec<PromiseSummary>) -> T,
) -> T {
    let case = &recorded.case;
    let events = recorded.history.readable();
    let mut judge = Judge::new(case);
    events.iter().for_each(|event| judge.see(event));
    let verdict = judge.verdict();
    let gaps = verdict.window.map(|span| gaps(&events, span));
    let material = Material {
        case,
        events: &events,
        index: &EditIndex::new(&events, commands::backend(case)),
        gaps: &gaps.unwrap_or_default(),
    };
    let promises = promises::all(&verdict, &judge, &material);
    show(&material, &verdict, promises)
}

/// The summary of a case that ran, or began to.
fn of_case(
    id: &str,
    recorded: &Recorded,
    material: &Material<'_>,
    verdict: &Verdict,
    promises: Vec<PromiseSummary>,
) -> Summary {
    let Recorded {
        case, artifacts, ..
    } = recorded;
    let events = material.events;
    let stopped = stopped(events);
    let came_to = culprits::verdict(verdict, &promises);
    let outcome = match came_to {
        // What was seen broken stays broken; but half a case is never a success.
        CaseVerdict::AsExpected if stopped.is_some() => Outcome::Inconclusive,
        CaseVerdict::AsExpected => Outcome::AsExpected,
        CaseVerdict::NotAsExpected => Outcome::NotAsExpected,
        CaseVerdict::Inconclusive => Outcome::Inconclusive,
    };
    let mut trouble = verdict.trouble.iter().flat_map(|text| lines(text));
    let first = trouble.next();
    let first = first.map(|line| Headline::Trouble(one_line(&line)));
    Summary {
        id: id.to_owned(),
        file: Some(case.file.display().to_string()),
        line: case.line,
        outcome,
        judged_before: recorded
            .verdict
            .as_ref()
            .map(|before| before.case)
            .filter(|before| *before != came_to),
        headline: headline(outcome, &promises, first.or(stopped)),
        evidence: trouble.collect(),
        expected: expected(&case.expect, &promises),
        got: got(&promises),
        strays: culprits::strays(case, events, &promises),
        promises,
        requests: worst(case, verdict).cloned(),
        judged: verdict.window,
        took_us: events.iter().map(|event| event.at_us).max().unwrap_or(0),
        facts: facts(events),
        unknown: unknown_requests(events),
        drops: drops(events),
        story: timeline::story(case, events, material.index, verdict.window),
        artifacts: artifacts.clone(),
    }
}

/// What the table shows of a case whose services died at one time and lived at another.
fn worst<'a>(case: &Case, verdict: &'a Verdict) -> Option<&'a Requests> {
    let available = |name| {
        let promise = case.promises.get(name);
        promise.is_some_and(|promise| matches!(promise.claim, Claim::Available { .. }))
    };
    let requests =
        verdict
            .promises
            .iter()
            .filter_map(|(name, judged)| match judged.verdict.evidence()? {
                Evidence::Requests(requests) if available(name) => Some(requests),
                _ => None,
            });
    let answered = |it: &Requests, of: &Requests| u128::from(it.answered) * u128::from(of.sent);
    requests.min_by(|one, other| answered(one, other).cmp(&answered(other, one)))
}

/// The summary of a case that did not run.
pub fn of_skipped(id: &str, reason: &str) -> Summary {
    Summary {
        id: id.to_owned(),
        file: None,
        line: None,
        outcome: Outcome::Skipped,
        judged_before: None,
        headline: Some(Headline::Skipped(one_line(reason))),
        evidence: Vec::new(),
        expected: String::new(),
        got: String::new(),
        strays: None,
        promises: Vec::new(),
        requests: None,
        judged: None,
        took_us: 0,
        facts: Vec::new(),
        unknown: Vec::new(),
        drops: Vec::new(),
        story: Story::default(),
        artifacts: Vec::new(),
    }
}

/// The lines of a text that say something, without what would break a report.
fn lines(text: &str) -> Vec<String> {
    let text = clean(text);
    let lines = text.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// Why a case has no end: the run was stopped or killed before its time was over.
fn stopped(events: &[Event]) -> Option<Headline> {
    let over = events
        .iter()
        .any(|event| event.what == EventKind::Phase(Phase::Judged));
    let last_us = events.iter().map(|event| event.at_us).max();
    (!over).then_some(Headline::Stopped { last_us })
}

/// What the first line says. Of several promises, the first of the scenario speaks.
fn headline(
    outcome: Outcome,
    promises: &[PromiseSummary],
    failed: Option<Headline>,
) -> Option<Headline> {
    let first = |of: fn(&PromiseSummary) -> bool| {
        let place = promises.iter().position(of);
        place.map(Headline::Promise)
    };
    match outcome {
        Outcome::Inconclusive => failed
            .or_else(|| first(|promise| promise.state == State::Unknown))
            .or_else(|| first(|promise| promise.expected_by.is_some())),
        Outcome::NotAsExpected => first(|promise| !promise.as_expected),
        Outcome::AsExpected => first(|promise| promise.state == State::Broken),
        Outcome::Skipped | Outcome::NotBegun => None,
    }
}

/// Facts in order of their first mention; of several values for a name each is kept once.
fn facts(events: &[Event]) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for event in events {
        if let EventKind::Fact { name, value } = &event.what {
            let fact = (one_line(name), one_line(value));
            if !facts.contains(&fact) {
                facts.push(fact);
            }
        }
    }
    facts
}
