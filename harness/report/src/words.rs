//! The words for what was found, in lines. Terminal and JUnit only lay them out.

mod requests;
pub(crate) mod story;

use std::collections::BTreeSet;

use chainbreak_model::{
    case::{Claim, Expect},
    verdict::{Evidence, Expected, Sources, Span, Spread},
};

use crate::{
    attribution::Cause,
    explain::TOLD,
    finding::{Finding, Logged, RuleFound},
    summary::{Headline, PromiseSummary, State, Summary},
    text::{clean, clock, count, length, one_line},
};

impl Summary {
    /// The first line.
    pub fn headline(&self) -> Option<String> {
        Some(match self.headline.as_ref()? {
            Headline::Promise(place) => self.promises.get(*place)?.headline(),
            Headline::Trouble(text) | Headline::Skipped(text) => text.clone(),
            Headline::NotBegun => "the case has not begun".to_owned(),
            Headline::Stopped { last_us: None } => "interrupted: its history is empty".to_owned(),
            Headline::Stopped { last_us: Some(us) } => {
                let at = clock(*us);
                format!("interrupted: its history ends at {at} s, before the judged time was over")
            }
        })
    }
}

impl PromiseSummary {
    /// One line that says what, where, when and because of whom.
    pub fn headline(&self) -> String {
        let found = self.found();
        match &self.expected_by {
            Some(by) if self.as_expected => {
                format!("{found}; nobody is found behind it, and the scenario expects {by}")
            }
            Some(by) => format!("{found}; the scenario expects {by} behind it"),
            None => found,
        }
    }

    fn found(&self) -> String {
        let name = &self.name;
        match &self.finding {
            Finding::Unknown { cause } => {
                format!("{name} could not be judged: {}", one_line(cause))
            }
            Finding::Kept(evidence) => {
                let missed = match self.expected {
                    Expected::Broken => ", though the incident should break it",
                    Expected::Kept => "",
                };
                format!("{name} kept{missed}: {}", one_line(&evidence.to_string()))
            }
            Finding::Lost(lost) => lost.headline(),
            Finding::Logged(logged) => logged.headline(),
            Finding::Rule(found) => found.headline(),
            Finding::Ruled { evidence, by } => {
                format!("{name} broken: {}; {by}", one_line(&evidence.to_string()))
            }
            Finding::Broken(evidence) => {
                format!("{name} broken: {}", one_line(&evidence.to_string()))
            }
        }
    }

    /// What that rests on, in lines.
    pub fn evidence(&self) -> Vec<String> {
        let claim = self.claim.as_ref();
        match &self.finding {
            Finding::Unknown { .. } | Finding::Kept(_) => Vec::new(),
            Finding::Lost(lost) => lost.evidence(claim),
            Finding::Logged(logged) => logged.evidence(claim),
            Finding::Rule(found) => found.evidence(),
            Finding::Ruled { evidence, .. } | Finding::Broken(evidence) => parts(evidence),
        }
    }
}

impl Logged {
    fn headline(&self) -> String {
        let entries = &self.entries;
        let Some(first) = &entries.first else {
            return one_line(&entries.to_string());
        };
        let said = match &self.finding {
            Some(finding) => finding.to_string(),
            None => clean(first.text.lines().next().unwrap_or_default()),
        };
        let why = self.cause.as_ref().map(|cause| {
            let before = length(first.at_us.saturating_sub(cause.at_us));
            format!(": {cause} {before} before")
        });
        let (agent, node, at) = (entries.agent, &first.node, clock(first.at_us));
        let times = if entries.count > 1 {
            format!(" (first of {})", entries.count)
        } else {
            String::new()
        };
        format!(
            "{agent} on {node} logged at {at}{times}: {}{}",
            one_line(&said),
            why.unwrap_or_default()
        )
    }

    fn evidence(&self, claim: Option<&Claim>) -> Vec<String> {
        let promised = match claim {
            Some(Claim::NoLog { matches, .. }) => {
                Some(format!("promised: nothing like /{matches}/"))
            }
            Some(Claim::HasLog { matches, .. }) => {
                Some(format!("promised: something like /{matches}/"))
            }
            _ => None,
        };
        let mut lines = Vec::from_iter(promised);
        let Some(first) = &self.entries.first else {
            return lines;
        };
        let nodes = self.entries.nodes.iter();
        let nodes: Vec<String> = nodes.map(|(node, n)| format!("{node}: {n}")).collect();
        lines.push(format!("matching entries by node: {}", nodes.join(", ")));
        lines.push("the first of them:".to_owned());
        lines.extend(clean(&first.text).lines().map(|line| format!("  {line}")));
        lines
    }
}

impl RuleFound {
    fn headline(&self) -> String {
        let presence = &self.presence;
        let Some((node, span)) = presence.first() else {
            return one_line(&presence.to_string());
        };
        let done = match (&self.cause, presence.forbidden) {
            (Some(cause), _) => format!(": {}", cause.done()),
            (None, _) if self.from_the_first => {
                let unwritten = self.unwritten.as_ref().map(|it| format!("; {it}"));
                format!(": from the first look on{}", unwritten.unwrap_or_default())
            }
            (None, false) => ": no recorded command explains it".to_owned(),
            (None, true) => String::new(),
        };
        let (rule, word) = (&presence.rule, presence.word());
        format!("{rule} {word} on {node} for {span}{done}")
    }

    fn evidence(&self) -> Vec<String> {
        let presence = &self.presence;
        let word = presence.word();
        let mut lines = Vec::new();
        for ((node, spans), told) in presence.wrong.iter().zip(&self.told) {
            let times = count(spans.len(), "time");
            let total = length(spans.iter().map(|span| span.len_us()).sum());
            lines.push(format!("{node}: {word} {times}, {total} in all"));
            lines.extend(told.iter().map(|time| {
                let Span { from_us, to_us } = time.span;
                let done = |cause: &Cause| format!("; {} at {}", cause.done(), clock(cause.at_us));
                let done = time.cause.as_ref().map(done).unwrap_or_default();
                format!("  {} – {}{done}", clock(from_us), clock(to_us))
            }));
        }
        let more = presence.wrong.len().saturating_sub(TOLD);
        lines.extend((more > 0).then(|| format!("and {} more", count(more, "node"))));
        lines
    }
}

/// What evidence consists of, part by part: places of a counter, addresses that the server saw, endpoints.
fn parts(evidence: &Evidence) -> Vec<String> {
    match evidence {
        Evidence::Counter(counted) => {
            let places = counted.places.iter();
            places.map(|(at, rose)| format!("{at}: {rose}")).collect()
        }
        Evidence::Sources(sources) => sources_of(sources),
        Evidence::Balance(spread) => answers_of(spread),
        Evidence::Requests(_)
        | Evidence::Log(_)
        | Evidence::Rule(_)
        | Evidence::Ports(_)
        | Evidence::Resets(_)
        | Evidence::Recovery(_) => Vec::new(),
    }
}

/// How often which endpoint answered.
fn answers_of(spread: &Spread) -> Vec<String> {
    let backends = spread.backends.iter();
    backends
        .map(|(backend, n)| format!("{}: {}", one_line(backend), answers(*n)))
        .collect()
}

/// How often the server saw which address.
fn sources_of(sources: &Sources) -> Vec<String> {
    let seen = sources.seen.iter();
    seen.map(|(address, n)| format!("from {address}: {}", answers(*n)))
        .collect()
}

/// What a case is marked with behind which there are strays.
pub(crate) const STRAYS: &str = "⚠";

fn behind(strays: &BTreeSet<String>) -> String {
    let names: Vec<String> = strays.iter().map(|it| one_line(it)).collect();
    if names.is_empty() {
        format!("{STRAYS} nothing that the case does, and none of its agents, is found behind it")
    } else {
        let names = names.join(" and ");
        format!("{STRAYS} behind it is {names}, and nothing that the case does, nor its agents")
    }
}

/// That others are behind it than the case's own, and that the verdict is not what it was when the case ran.
pub(crate) fn remarks(summary: &Summary) -> Vec<String> {
    let strays = summary.strays.as_ref().map(behind);
    let before = summary.judged_before.map(|before| {
        format!(
            "when it ran it was judged {before}: its history is the same, what judges it is not"
        )
    });
    strays.into_iter().chain(before).collect()
}

/// What a case expects, in short; because of whom, where others are found behind it, or nobody.
pub(crate) fn expected(expect: &Expect, promises: &[PromiseSummary]) -> String {
    let by = promises.iter().find_map(|it| it.expected_by.as_ref());
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    match expect {
        Expect::Healthy => "healthy".to_owned(),
        Expect::Broken(promises) => format!("{} broken{by}", promises.len()),
    }
}

/// What was seen of it, in short.
pub(crate) fn got(promises: &[PromiseSummary]) -> String {
    let number = |state| {
        promises
            .iter()
            .filter(|promise| promise.state == state)
            .count()
    };
    let counted = [
        (number(State::Broken), "broken"),
        (number(State::Unknown), "unknown"),
    ];
    let counted: Vec<String> = counted
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .collect();
    let others = promises.iter().filter(|it| it.expected_by.is_some());
    let others: BTreeSet<&str> = others.flat_map(|it| &it.by).map(String::as_str).collect();
    let others: Vec<&str> = others.into_iter().collect();
    if counted.is_empty() {
        "healthy".to_owned()
    } else if others.is_empty() {
        counted.join(", ")
    } else {
        format!("{} by {}", counted.join(", "), others.join(" and "))
    }
}

fn answers(n: u64) -> String {
    count(size(n), "answer")
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
