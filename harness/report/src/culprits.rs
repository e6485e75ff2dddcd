//! Whether who or what is found behind an incident is what its scenario names: `expect: { broken: […], by: felix }`.
//!
//! Judged is what the first line of a promise says. A command that is named, or Felix's programs, can be another's than the scenario
//! says; what was done just before, and whose rules requests met, can only be what it says.

use std::collections::BTreeSet;

use chainbreak_model::{
    case::{Case, Claim, END_OF_FELIXS_POD},
    event::{Event, EventKind, Phase},
    names::AgentName,
    verdict::{CaseVerdict, Expected, Verdict},
};
use chainbreak_netfilter::Owner;

use crate::{
    attribution::Cause,
    finding::{Finding, Lost, Outage},
    standing::Standing,
    summary::{PromiseSummary, State},
};

/// Who and what is found behind what a promise came to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Culprits {
    /// Agents and third parties whose commands or programs did it.
    pub(crate) by: BTreeSet<String>,
    /// Third parties and the words of steps that did something just before.
    pub(crate) just_before: BTreeSet<String>,
    /// In whose rules requests ended, or who led or translated them by rules; who left them as they are, as it was told to.
    pub(crate) rules_of: BTreeSet<String>,
}

/// Marks the promises that broke as expected, but because of others than the case names. Where neither they nor whom it names
/// are found behind any of them, it marks the first.
pub(crate) fn hold(case: &Case, events: &[Event], promises: &mut [PromiseSummary]) {
    let Some(by) = case.by.as_ref().filter(|_| is_told(case, events)) else {
        return;
    };
    let broke = |it: &PromiseSummary| (it.state, it.expected) == (State::Broken, Expected::Broken);
    let mut broken: Vec<&mut PromiseSummary> = promises.iter_mut().filter(|it| broke(it)).collect();
    let mut is_found = false;
    for promise in &mut broken {
        let named = [&promise.by, &promise.just_before, &promise.rules_of];
        let is_named = named.iter().any(|it| it.contains(by));
        is_found |= is_named;
        if !is_named && !promise.by.is_empty() {
            is_found = true;
            promise.as_expected = false;
            promise.expected_by = Some(by.clone());
        }
    }
    if let Some(first) = broken.first_mut().filter(|_| !is_found) {
        first.expected_by = Some(by.clone());
    }
}

/// Whom the report finds behind promises that broke, where nobody of them is the case's own ([`Case::own_culprits`]). Nobody at all is that
/// only where the case was not to break so: of what something lacks, or somebody outside does, nobody is ever found. What was held against whom
/// the case names ([`hold`]) says so itself.
pub(crate) fn strays(
    case: &Case,
    events: &[Event],
    promises: &[PromiseSummary],
) -> Option<BTreeSet<String>> {
    let mut broken = promises.iter().filter(|it| can_be_somebodys(it)).peekable();
    broken.peek()?;
    let is_held = promises.iter().any(|it| it.expected_by.is_some());
    if is_held || case.cluster.agents().next().is_none() || !is_told(case, events) {
        return None;
    }
    let found = broken.flat_map(|it| [&it.by, &it.just_before, &it.rules_of]);
    let mut found: BTreeSet<String> = found.flatten().cloned().collect();
    // Rules that nobody has signed may be anybody's.
    found.remove(&Owner::Other.to_string());
    let own = case.own_culprits();
    let is_own = found.iter().any(|it| own.contains(&it.as_str()));
    let is_foreseen = found.is_empty() && promises.iter().all(|it| it.as_expected);
    (!is_own && !is_foreseen).then_some(found)
}

/// Whether a promise broke of which it can be said because of whom.
fn can_be_somebodys(promise: &PromiseSummary) -> bool {
    let is_forbidden = matches!(promise.claim, Some(Claim::Unreachable { .. }));
    let is_told = match promise.finding {
        Finding::Lost(_) => !is_forbidden,
        Finding::Logged(_) | Finding::Rule(_) | Finding::Ruled { .. } => true,
        Finding::Unknown { .. } | Finding::Kept(_) | Finding::Broken(_) => false,
    };
    promise.state == State::Broken && is_told
}

/// What a case comes to with that: because of another it is not as expected; because of nobody that is known, it is not known.
pub(crate) fn verdict(verdict: &Verdict, promises: &[PromiseSummary]) -> CaseVerdict {
    let mut odd = promises.iter().filter(|it| it.expected_by.is_some());
    if odd.clone().any(|it| !it.as_expected) {
        CaseVerdict::NotAsExpected
    } else if odd.next().is_some() {
        CaseVerdict::Inconclusive
    } else {
        verdict.case
    }
}

/// Whether the history is whole, and says what agents do to rules: in the lab alone it does.
fn is_told(case: &Case, events: &[Event]) -> bool {
    let is_whole = |event: &Event| event.what == EventKind::Phase(Phase::Judged);
    let is_by = |event: &Event, agent: AgentName| match &event.what {
        EventKind::Command(command) => command.who == agent.as_str(),
        _ => false,
    };
    let is_recorded = case
        .cluster
        .agents()
        .next()
        .is_none_or(|agent| events.iter().any(|event| is_by(event, agent)));
    is_recorded && events.iter().any(is_whole)
}

impl Culprits {
    fn rules_of(who: &str) -> Self {
        Self {
            rules_of: BTreeSet::from([who.to_owned()]),
            ..Self::default()
        }
    }

    /// Whom and what a finding names. Nobody where requests were answered that should not be.
    pub(crate) fn of(case: &Case, claim: Option<&Claim>, finding: &Finding) -> Self {
        let cause = match finding {
            Finding::Lost(_) if matches!(claim, Some(Claim::Unreachable { .. })) => None,
            Finding::Lost(lost) => return of_lost(case, lost),
            Finding::Logged(logged) => logged.cause.as_ref(),
            Finding::Rule(found) => {
                if let Some(unwritten) = &found.unwritten {
                    return Self::rules_of(&unwritten.who);
                }
                found.cause.as_ref()
            }
            Finding::Ruled { by, .. } => return Self::rules_of(by.who()),
            Finding::Unknown { .. } | Finding::Kept(_) | Finding::Broken(_) => None,
        };
        Self {
            by: cause.map(who).into_iter().collect(),
            ..Self::default()
        }
    }
}

fn of_lost(case: &Case, lost: &Lost) -> Culprits {
    let Some(outage) = &lost.outage else {
        return Culprits::default();
    };
    // Of traffic that nobody is to answer packets end all the time.
    let mut claims = case.promises.values().map(|promise| &promise.claim);
    let is_forbidden = claims.any(|it| matches!(it, Claim::Unreachable { .. }));
    let ended = outage.dropped.as_ref().filter(|_| !is_forbidden);
    let ended = ended.filter(|it| 2 * it.of_owner >= lost.requests.sent - lost.requests.answered);
    let is_told = outage.cause.is_some() || outage.programs.is_some() || outage.turned.is_some();
    let led = outage.answered_last.as_ref();
    let led = led.filter(|_| !is_told && outage.to.service().is_some());
    let rules_of = [
        ended.map(|it| it.owner.clone()),
        outage.astray.as_ref().map(|it| it.who.clone()),
        outage
            .standing
            .as_ref()
            .and_then(Standing::who)
            .map(str::to_owned),
        // Of a Service's addresses entries are kube-proxy's: its rules made them, and it deletes those that lead to nobody.
        led.map(|_| AgentName::KubeProxy.to_string()),
    ];
    let mut culprits = of_outage(outage);
    culprits.rules_of = rules_of.into_iter().flatten().collect();
    let undone = outage.undone.iter().map(|it| it.who.clone());
    let deaf = outage.dropped.iter().filter_map(|it| it.deaf.as_ref());
    let forgot = deaf.map(|it| it.who.clone());
    culprits.just_before.extend(undone.chain(forgot));
    culprits
}

/// Of requests that were lost one here, one there, the line names no command.
fn of_outage(outage: &Outage) -> Culprits {
    let done = outage.done.as_ref();
    let just_before = done.map(|it| it.by.clone()).unwrap_or_default();
    if !outage.in_one {
        return Culprits {
            just_before,
            ..Culprits::default()
        };
    }
    let programs = outage.programs.as_ref();
    let programs = programs.map(|_| AgentName::Felix.to_string());
    let turned = outage.turned.as_ref().map(|it| named(&it.who));
    let cause = outage.cause.as_ref().map(who);
    Culprits {
        by: programs.into_iter().chain(turned).chain(cause).collect(),
        just_before,
        ..Culprits::default()
    }
}

fn who(cause: &Cause) -> String {
    named(&cause.who)
}

fn named(who: &str) -> String {
    let ends = who == END_OF_FELIXS_POD;
    let felix = AgentName::Felix.as_str();
    (if ends { felix } else { who }).to_owned()
}
