//! A promise's verdict in words: one line that says what, where, when and because of whom, and the
//! evidence below it.

use chainbreak_model::{
    case::{Case, Claim, Destination, Traffic},
    event::Event,
    names::PromiseName,
    verdict::{
        Counted, Entries, Evidence, Expected, Judged, Presence, PromiseVerdict, Requests, Sources,
        Span, Spread,
    },
};

use crate::{
    attribution::{self, Cause},
    edits::EditIndex,
    gaps::Gap,
    log_finding::LogFinding,
    meanwhile,
    text::{clean, clock, count, length, percent},
};

/// A verdict in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// One line.
    pub headline: String,
    /// Lines of evidence.
    pub evidence: Vec<String>,
}

/// What the words are made from: the plan and what was recorded.
#[derive(Debug)]
pub(crate) struct Material<'a> {
    pub(crate) case: &'a Case,
    pub(crate) events: &'a [Event],
    pub(crate) index: &'a EditIndex<'a>,
    pub(crate) gaps: &'a indexmap::IndexMap<chainbreak_model::names::TrafficName, Vec<Gap>>,
}

impl Material<'_> {
    /// The words for one promise.
    pub(crate) fn words(&self, name: &PromiseName, judged: &Judged) -> Words {
        let claim = self.case.promises.get(name).map(|promise| &promise.claim);
        match &judged.verdict {
            PromiseVerdict::Unknown { cause } => {
                let headline = format!("{name} could not be judged: {}", one_line(cause));
                Words {
                    headline,
                    evidence: Vec::new(),
                }
            }
            PromiseVerdict::Kept(evidence) => {
                let missed = match judged.expected {
                    Expected::Broken => ", though the incident should break it",
                    Expected::Kept => "",
                };
                let headline = format!("{name} kept{missed}: {}", one_line(&evidence.to_string()));
                Words {
                    headline,
                    evidence: Vec::new(),
                }
            }
            PromiseVerdict::Broken(evidence) => match evidence {
                Evidence::Requests(requests) => self.requests(claim, requests),
                Evidence::Log(entries) => self.log(claim, entries),
                Evidence::Rule(presence) => self.rule(claim, presence),
                Evidence::Counter(counted) => rose(name, counted),
                Evidence::Sources(sources) => seen_from(name, sources),
                Evidence::Balance(spread) => spread_over(name, spread),
                Evidence::Ports(_) | Evidence::Resets(_) | Evidence::Recovery(_) => Words {
                    headline: format!("{name} broken: {}", one_line(&evidence.to_string())),
                    evidence: Vec::new(),
                },
            },
        }
    }

    fn requests(&self, promise: Option<&Claim>, requests: &Requests) -> Words {
        let (sent, answered) = (requests.sent, requests.answered);
        let mut outcomes: Vec<String> = requests
            .outcomes
            .iter()
            .map(|(word, n)| format!("{n} {word}"))
            .collect();
        outcomes.retain(|text| !text.ends_with(" answered"));
        let mut evidence = vec![format!(
            "{} of {sent} requests answered ({answered}{}{})",
            share(answered, sent),
            if outcomes.is_empty() { "" } else { "; " },
            outcomes.join(", ")
        )];
        if let Some(Claim::Available {
            at_least,
            longest_gap,
            ..
        }) = promise
        {
            let gap = longest_gap
                .map(|gap| format!(", no gap longer than {} s", gap.as_secs_f64()))
                .unwrap_or_default();
            evidence.push(format!("promised: at least {at_least} %{gap}"));
        }
        if let Some(Claim::Unreachable { .. }) = promise {
            evidence.push("promised: none is answered".to_owned());
        }
        let traffic = self.case.traffic.get(&requests.traffic);
        let (Some(gap), Some(traffic)) = (requests.longest_gap, traffic) else {
            return Words {
                headline: one_line(&requests.to_string()),
                evidence,
            };
        };
        let cause = attribution::of_gap(self.case, self.index, traffic, gap);
        let node = attribution::node_of(self.case, traffic)
            .or_else(|| cause.as_ref().map(|cause| cause.node.clone()));
        let at = node
            .as_ref()
            .map(|node| format!(" on {node}"))
            .unwrap_or_default();
        let why = cause
            .as_ref()
            .map_or_else(|| self.unexplained(gap), Cause::to_string);
        let behind = meanwhile::left_behind(self.events, (&requests.traffic, traffic), gap);
        let why = why + &behind.unwrap_or_default();
        let headline = if tells(gap, promise, requests, traffic) {
            format!("{} dead{at} for {gap}: {why}", subject(traffic))
        } else {
            let (lost, how) = (sent - answered, outcomes.join(", "));
            format!(
                "{} lost {lost} of {sent} requests{at}, one here, one there: {how}{}",
                subject(traffic),
                self.meanwhile(self.all_gaps(requests).unwrap_or(gap))
            )
        };
        evidence.extend(self.gaps_of(requests, traffic, node.as_ref()));
        Words { headline, evidence }
    }

    /// What there is to say about a gap that no command explains.
    fn unexplained(&self, gap: Span) -> String {
        format!("no recorded command explains it{}", self.meanwhile(gap))
    }

    /// Where packets ended in that time, if any did.
    fn meanwhile(&self, span: Span) -> String {
        let dropped = meanwhile::dropped(self.events, span);
        dropped.map_or_else(String::new, |dropped| format!("; {dropped}"))
    }

    /// From the first request that was lost to the last.
    fn all_gaps(&self, requests: &Requests) -> Option<Span> {
        let gaps = self.gaps.get(&requests.traffic)?;
        let (first, last) = (gaps.first()?, gaps.last()?);
        Some(Span {
            from_us: first.span.from_us,
            to_us: last.span.to_us,
        })
    }

    /// The longest gaps, each with who cut and who healed it.
    fn gaps_of(
        &self,
        requests: &Requests,
        traffic: &Traffic,
        node: Option<&chainbreak_model::names::NodeName>,
    ) -> Vec<String> {
        const TOLD: usize = 5;
        let all = self
            .gaps
            .get(&requests.traffic)
            .map_or(&[][..], Vec::as_slice);
        let mut gaps: Vec<&Gap> = all.iter().collect();
        gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.span.len_us()), gap.span.from_us));
        let mut lines = vec![format!(
            "{}, {} in all{}",
            count(all.len(), "gap"),
            length(all.iter().map(|gap| gap.span.len_us()).sum()),
            if all.len() > TOLD {
                ", the longest:"
            } else {
                ":"
            }
        )];
        lines.extend(gaps.into_iter().take(TOLD).map(|gap| {
            let Span { from_us, to_us } = gap.span;
            let cause = attribution::of_gap(self.case, self.index, traffic, gap.span);
            let cause = cause.map(|cause| {
                let verb = cause.verb();
                format!(
                    "; {} {verb} by {} at {}",
                    cause.link,
                    cause.who,
                    clock(cause.at_us)
                )
            });
            let heal = node
                .and_then(|node| attribution::healing(self.index, traffic, node, gap))
                .map(|heal| format!("; {heal} at {}", clock(heal.at_us)));
            format!(
                "  {} – {} ({}, {} lost){}{}",
                clock(from_us),
                clock(to_us),
                length(gap.span.len_us()),
                count(gap.lost, "request"),
                cause.unwrap_or_default(),
                heal.unwrap_or_default()
            )
        }));
        lines
    }

    fn log(&self, promise: Option<&Claim>, entries: &Entries) -> Words {
        let wanted = match promise {
            Some(Claim::NoLog { matches, .. }) => format!("promised: nothing like /{matches}/"),
            Some(Claim::HasLog { matches, .. }) => {
                format!("promised: something like /{matches}/")
            }
            _ => String::new(),
        };
        let Some(first) = &entries.first else {
            let evidence = Vec::from_iter((!wanted.is_empty()).then_some(wanted));
            return Words {
                headline: one_line(&entries.to_string()),
                evidence,
            };
        };
        let said = LogFinding::of(&first.text).map_or_else(
            || clean(first.text.lines().next().unwrap_or_default()),
            |finding| finding.to_string(),
        );
        let cause = attribution::of_entry(self.index, first);
        let why = cause.map(|cause| {
            let before = length(first.at_us.saturating_sub(cause.at_us));
            format!(": {cause} {before} before")
        });
        let (agent, node, at) = (entries.agent, &first.node, clock(first.at_us));
        let times = if entries.count > 1 {
            format!(" (first of {})", entries.count)
        } else {
            String::new()
        };
        let headline = format!(
            "{agent} on {node} logged at {at}{times}: {}{}",
            one_line(&said),
            why.unwrap_or_default()
        );
        let nodes: Vec<String> = entries
            .nodes
            .iter()
            .map(|(node, n)| format!("{node}: {n}"))
            .collect();
        let mut evidence = Vec::from_iter((!wanted.is_empty()).then_some(wanted));
        evidence.push(format!("matching entries by node: {}", nodes.join(", ")));
        evidence.push("the first of them:".to_owned());
        evidence.extend(clean(&first.text).lines().map(|line| format!("  {line}")));
        Words { headline, evidence }
    }

    fn rule(&self, promise: Option<&Claim>, presence: &Presence) -> Words {
        const TOLD: usize = 5;
        let Some((node, span)) = presence.first() else {
            return Words {
                headline: one_line(&presence.to_string()),
                evidence: Vec::new(),
            };
        };
        // Of what was not to be there nobody is blamed for a deletion.
        let rule = match promise {
            Some(Claim::HasRule { rule, .. }) if !presence.forbidden => Some(rule),
            _ => None,
        };
        let cause =
            |node, span: Span| attribution::of_absence(self.index, node, rule?, span.from_us);
        let word = presence.word();
        let done = match (cause(node, span), presence.forbidden) {
            (Some(cause), _) => format!(": {}", cause.done()),
            (None, false) => ": no recorded command explains it".to_owned(),
            (None, true) => String::new(),
        };
        let headline = format!("{} {word} on {node} for {span}{done}", presence.rule);
        let mut evidence = Vec::new();
        for (node, spans) in presence.wrong.iter().take(TOLD) {
            let total = length(spans.iter().map(|span| span.len_us()).sum());
            evidence.push(format!(
                "{node}: {word} {}, {total} in all",
                count(spans.len(), "time")
            ));
            evidence.extend(spans.iter().take(TOLD).map(|&span| {
                let done = cause(node, span)
                    .map(|cause| format!("; {} at {}", cause.done(), clock(cause.at_us)));
                format!(
                    "  {} – {}{}",
                    clock(span.from_us),
                    clock(span.to_us),
                    done.unwrap_or_default()
                )
            }));
        }
        let more = presence.wrong.len().saturating_sub(TOLD);
        evidence.extend((more > 0).then(|| format!("and {} more", count(more, "node"))));
        Words { headline, evidence }
    }
}

/// A counter that rose too little or too much, place by place.
fn rose(name: &PromiseName, counted: &Counted) -> Words {
    let places = counted.places.iter();
    Words {
        headline: format!("{name} broken: {}", one_line(&counted.to_string())),
        evidence: places.map(|(at, rose)| format!("{at}: {rose}")).collect(),
    }
}

/// Addresses that the server saw.
fn seen_from(name: &PromiseName, sources: &Sources) -> Words {
    let seen = sources.seen.iter();
    Words {
        headline: format!("{name} broken: {}", one_line(&sources.to_string())),
        evidence: seen
            .map(|(address, n)| format!("from {address}: {}", answers(*n)))
            .collect(),
    }
}

/// Endpoints and what each of them answered.
fn spread_over(name: &PromiseName, spread: &Spread) -> Words {
    let backends = spread.backends.iter();
    Words {
        headline: format!("{name} broken: {}", one_line(&spread.to_string())),
        evidence: backends
            .map(|(backend, n)| format!("{}: {}", one_line(backend), answers(*n)))
            .collect(),
    }
}

fn answers(n: u64) -> String {
    count(usize::try_from(n).unwrap_or(usize::MAX), "answer")
}

fn subject(traffic: &Traffic) -> String {
    match &traffic.to {
        Destination::Service { .. } | Destination::NodePort { .. } => "services".to_owned(),
        Destination::Pod { namespace, name } => format!("pod {namespace}/{name}"),
        Destination::Host(name) => format!("host {name}"),
    }
}

fn share(part: u64, whole: u64) -> String {
    let size = |n| usize::try_from(n).unwrap_or(usize::MAX);
    percent(size(part), size(whole))
}

/// Whether the longest gap is what there is to tell: it is longer than promised, or half of the loss.
fn tells(gap: Span, promise: Option<&Claim>, requests: &Requests, traffic: &Traffic) -> bool {
    let too_long = match promise {
        Some(Claim::Available { longest_gap, .. }) => {
            longest_gap.is_some_and(|limit| u128::from(gap.len_us()) > limit.as_micros())
        }
        _ => false,
    };
    let lost = u128::from(requests.sent - requests.answered);
    let in_gap = u128::from(gap.len_us()) / traffic.every.as_micros().max(1);
    too_long || 2 * in_gap >= lost
}

/// A text in one line, without what would break a report.
pub(crate) fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}
