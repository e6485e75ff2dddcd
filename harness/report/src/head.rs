//! What stands around the verdicts: the run itself, who played the agents, and what they asked the API in vain.

use std::{collections::BTreeSet, fmt};

use chainbreak_model::{
    event::{Event, EventKind},
    names::AgentName,
};
use indexmap::IndexMap;
use serde::Serialize;

use crate::{
    Ended, Run,
    summary::Summary,
    text::{count, length, one_line},
};

/// More unknown requests than these are one missing part that is asked for again and again.
const UNKNOWN: usize = 8;

/// The run itself: which program when, for how long and on which machine, and how it ended where that is worth a line.
pub(crate) fn of_run(run: &Run) -> Vec<String> {
    let header = &run.header;
    let began = header.started.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    let mut facts = vec![("began".to_owned(), began)];
    facts.extend(run.took_us().map(|us| ("took".to_owned(), length(us))));
    facts.push(("seed".to_owned(), header.seed.to_string()));
    let host = header.host.iter();
    facts.extend(host.map(|(name, value)| (one_line(name), one_line(value))));
    let names = facts.iter().map(|(name, _)| name.chars().count());
    let wide = names.max().unwrap_or(0);
    let mut lines = vec![one_line(&header.tool)];
    lines.extend(
        facts
            .iter()
            .map(|(name, value)| format!("  {name:wide$}  {value}")),
    );
    lines.extend(cut_short(run));
    lines
}

/// That a run did not come to its end, if it did not.
pub(crate) fn cut_short(run: &Run) -> Option<String> {
    match &run.ended {
        Some(Ended::Complete) => None,
        Some(Ended::Interrupted(by)) => Some(format!("interrupted by {}", one_line(by))),
        None => Some("it has no end: it was killed, or goes on".to_owned()),
    }
}

/// What the cases of a run say of that, gathered one after the other.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Facts, and in how many cases.
    facts: IndexMap<(String, String), usize>,
    unknown: BTreeSet<String>,
}

impl Head {
    pub(crate) fn add(&mut self, summary: &Summary) {
        for fact in &summary.facts {
            *self.facts.entry(fact.clone()).or_default() += 1;
        }
        let unknown = summary.unknown.iter();
        self.unknown.extend(unknown.map(UnknownRequest::to_string));
    }

    /// Who played the agents, a line for each of them: source, version and hash as the history has them, and
    /// in how many cases where that differs.
    pub(crate) fn played(&self) -> Vec<String> {
        let mut players = Vec::new();
        for agent in AgentName::ALL {
            let of_agent = |((name, _), _): &(&(String, String), &usize)| {
                let rest = name.strip_prefix(agent.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let mut told: Vec<_> = self.facts.iter().filter(of_agent).collect();
            told.sort_by(|((one, _), _), ((other, _), _)| one.cmp(other));
            players.extend(told);
        }
        let names: Vec<&str> = players.iter().map(|((name, _), _)| &**name).collect();
        let wide = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let line = |((name, value), cases): &(&(String, String), &usize)| {
            let alone = names.iter().filter(|other| *other == name).count() == 1;
            let cases = if alone {
                String::new()
            } else {
                format!(", in {}", count(**cases, "case"))
            };
            format!("  {name:wide$}  {value}{cases}")
        };
        players.iter().map(line).collect()
    }

    /// What no case's API server knew, a line for each request; nothing when everything was known.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let texts = &self.unknown;
        if texts.is_empty() {
            return Vec::new();
        }
        let mut lines = vec!["! the API server does not know what it was asked for:".to_owned()];
        lines.extend(texts.iter().take(UNKNOWN).map(|text| format!("  {text}")));
        if let Some(more) = texts.len().checked_sub(UNKNOWN + 1) {
            lines.push(format!(
                "  … and {} more in the cases' events.jsonl",
                more + 1
            ));
        }
        lines
    }
}

/// What an API server was asked for and does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UnknownRequest {
    /// The request, and who made it.
    pub text: String,
    /// How often it came, where that was more than once.
    pub times: Option<u64>,
}

impl UnknownRequest {
    fn new(text: &str, times: Option<u64>) -> Self {
        let text = one_line(text);
        let older = text.rsplit_once(", ").and_then(|(text, times)| {
            let times = times.strip_suffix(" times")?.parse().ok()?;
            Some((text.to_owned(), times))
        });
        match older {
            Some((text, older)) if times.is_none() => Self {
                text,
                times: Some(older),
            },
            _ => Self { text, times },
        }
    }
}

impl fmt::Display for UnknownRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.times
            .iter()
            .try_for_each(|times| write!(f, ", {times} times"))
    }
}

/// The unknown requests of a history, each once: one that came again is told of at the end, with how
/// often.
pub(crate) fn unknown_requests(events: &[Event]) -> Vec<UnknownRequest> {
    let mut requests: Vec<UnknownRequest> = Vec::new();
    for event in events {
        let EventKind::UnknownRequest { text, times } = &event.what else {
            continue;
        };
        let request = UnknownRequest::new(text, *times);
        match requests.iter_mut().find(|it| it.text == request.text) {
            Some(known) => *known = request,
            None => requests.push(request),
        }
    }
    requests
}
