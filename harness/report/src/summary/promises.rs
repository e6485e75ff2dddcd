//! What reports show of a promise.

use std::collections::BTreeSet;

use chainbreak_model::{
    Judge,
    case::{Case, Claim},
    names::PromiseName,
    verdict::{CaseVerdict, Expected, Judged, PromiseVerdict, Span, Verdict},
};
use serde::Serialize;

use crate::{
    culprits::{self, Culprits},
    explain::Material,
    finding::Finding,
    text::one_line,
};

/// One promise in a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PromiseSummary {
    /// Its name.
    pub name: String,
    /// The step of the timeline during or after which it is judged, if it has a name.
    pub when: Option<String>,
    /// What is promised.
    pub claim: Option<Claim>,
    /// When it was judged, if the case got that far.
    pub judged: Option<Span>,
    /// What it came to.
    pub state: State,
    /// What was expected.
    pub expected: Expected,
    /// Whether that is the same, because of whom the scenario expects.
    pub as_expected: bool,
    /// The agents and third parties whose commands, or programs, are found behind it.
    pub by: BTreeSet<String>,
    /// The third parties and the words of the steps that did something just before.
    pub just_before: BTreeSet<String>,
    /// In whose rules requests ended, or who led or translated them by rules: agents, and `kernel` where conntrack dropped them.
    pub rules_of: BTreeSet<String>,
    /// Because of whom it was expected to break, where others are found behind it, or nobody.
    pub expected_by: Option<String>,
    /// What is found of it.
    pub finding: Finding,
}

/// What a promise came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It held.
    Kept,
    /// It did not.
    Broken,
    /// It could not be judged.
    Unknown,
}

/// Those of a case, in the scenario's order.
pub(super) fn all(
    verdict: &Verdict,
    judge: &Judge<'_>,
    material: &Material<'_>,
) -> Vec<PromiseSummary> {
    let promises = verdict.promises.iter();
    let summary = |(name, judged): (&PromiseName, &Judged)| {
        let promise = material.case.promises.get(name);
        let claim = promise.map(|promise| &promise.claim);
        let time = promise.and_then(|promise| judge.time_of(promise));
        let finding = material.finding((claim, time), judged);
        let culprits = Culprits::of(material.case, claim, &finding);
        PromiseSummary {
            name: name.to_string(),
            when: when(material.case, name),
            claim: claim.cloned(),
            judged: time,
            state: match judged.verdict {
                PromiseVerdict::Kept(_) => State::Kept,
                PromiseVerdict::Broken(_) => State::Broken,
                PromiseVerdict::Unknown { .. } => State::Unknown,
            },
            expected: judged.expected,
            as_expected: judged.is_as_expected(),
            by: culprits.by,
            just_before: culprits.just_before,
            rules_of: culprits.rules_of,
            expected_by: None,
            finding,
        }
    };
    let mut promises = promises.map(summary).collect::<Vec<_>>();
    if verdict.case == CaseVerdict::AsExpected {
        culprits::hold(material.case, material.events, &mut promises);
    }
    promises
}

fn when(case: &Case, name: &PromiseName) -> Option<String> {
    let promise = case.promises.get(name)?;
    case.when(promise).map(|when| one_line(&when))
}
