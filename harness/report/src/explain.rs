//! What a promise's verdict is explained by: what, where, when and because of whom.

use chainbreak_model::{
    case::{Case, Claim, Query, Traffic},
    event::Event,
    names::{AgentName, NodeName, TrafficName},
    verdict::{Entries, Evidence, Judged, Presence, PromiseVerdict, Requests, Span},
};
use chainbreak_probe::wire::Connections;
use indexmap::IndexMap;

use crate::{
    astray::{self, Astray},
    attribution::{self, Cause, SENT_LATE_US},
    done::{self, Done, SOME_PASS_US},
    edits::EditIndex,
    finding::{ExplainedGap, ExplainedTime, Finding, Logged, Lost, Outage, RuleFound},
    gaps::{self, Gap},
    log_finding::LogFinding,
    meanwhile,
    presence::Asked,
    programs::{self, Programs},
    ruled, standing,
    undone::Undone,
    unwritten, walked,
};

/// So many gaps, nodes, and times on a node are explained.
pub(crate) const TOLD: usize = 5;

/// What a verdict is explained from: the plan and what was recorded.
#[derive(Debug)]
pub(crate) struct Material<'a> {
    pub(crate) case: &'a Case,
    pub(crate) events: &'a [Event],
    pub(crate) index: &'a EditIndex<'a>,
    pub(crate) gaps: &'a IndexMap<TrafficName, Vec<Gap>>,
}

impl Material<'_> {
    /// What is found of a promise, in the time of which it is.
    pub(crate) fn finding(
        &self,
        (claim, time): (Option<&Claim>, Option<Span>),
        judged: &Judged,
    ) -> Finding {
        let evidence = match &judged.verdict {
            PromiseVerdict::Unknown { cause } => {
                let cause = cause.clone();
                return Finding::Unknown { cause };
            }
            PromiseVerdict::Kept(evidence) => return Finding::Kept(evidence.clone()),
            PromiseVerdict::Broken(evidence) => evidence,
        };
        match evidence {
            Evidence::Requests(requests) => {
                Finding::Lost(Box::new(self.lost((claim, time), requests)))
            }
            Evidence::Log(entries) => Finding::Logged(Box::new(self.logged(entries))),
            Evidence::Rule(presence) => Finding::Rule(Box::new(self.rule(claim, presence))),
            Evidence::Sources(_)
            | Evidence::Balance(_)
            | Evidence::Counter(_)
            | Evidence::Ports(_)
            | Evidence::Resets(_)
            | Evidence::Recovery(_) => {
                let evidence = evidence.clone();
                let by = ruled::behind(self.all(), (claim, time), &evidence);
                match by.map(Box::new) {
                    Some(by) => Finding::Ruled { evidence, by },
                    None => Finding::Broken(evidence),
                }
            }
        }
    }

    /// The plan, the history and what its commands changed.
    fn all(&self) -> (&Case, &[Event], &EditIndex<'_>) {
        (self.case, self.events, self.index)
    }

    fn lost(&self, asked: (Option<&Claim>, Option<Span>), requests: &Requests) -> Lost {
        let traffic = self.case.traffic.get(&requests.traffic);
        let outage = requests.longest_gap.zip(traffic);
        Lost {
            requests: requests.clone(),
            outage: outage.map(|(gap, traffic)| self.outage(asked, requests, gap, traffic)),
        }
    }

    fn outage(
        &self,
        (claim, time): (Option<&Claim>, Option<Span>),
        requests: &Requests,
        longest: Span,
        traffic: &Traffic,
    ) -> Outage {
        let name = &requests.traffic;
        let all = self.gaps.get(name).map_or(&[][..], Vec::as_slice);
        let begun = whole(all, longest);
        let (cause, programs) = self.why((name, traffic), begun);
        let node = attribution::node_of(self.case, traffic)
            .or_else(|| cause.as_ref().map(|cause| cause.node.clone()));
        let in_one = tells(longest, claim, requests, traffic);
        let asks = in_one && programs.is_none() && is_its_own(cause.as_ref());
        let turned = asks
            .then(|| walked::of_gap(self.case, self.events, self.index, (name, traffic), begun))
            .flatten();
        let cause = cause.filter(|_| turned.is_none());
        let tells_all = turned.as_ref().is_some_and(|it| !is_an_agent(&it.who));
        let from_the_first = !gaps::was_answered(self.events, name, 0..longest.from_us);
        let judged = lost_in(all, time);
        let done = match (in_one, judged.first()) {
            (true, _) if !asks || tells_all => None,
            (true, _) => self.done_before(name, all, begun),
            // Of requests that are lost one here, one there, before the first of them that the promise is about.
            (false, first) => {
                first.and_then(|gap| done::done(self.case, self.events, name, *gap, SOME_PASS_US))
            }
        };
        let node = node.or_else(|| turned.as_ref().map(|it| it.node.clone()));
        let mut told = self.explained(all, (name, traffic), node.as_ref());
        if turned.is_some() {
            let of_longest = |it: &&mut ExplainedGap| it.gap.span.contains(longest.from_us);
            for gap in told.iter_mut().filter(of_longest) {
                (gap.cause, gap.turned) = (None, turned.clone());
            }
        }
        let is_explained = turned.is_some() || cause.is_some() || programs.is_some();
        let unexplained = match (in_one, is_explained) {
            (true, true) => None,
            (true, false) => Some(longest),
            (false, _) => Some(around(&judged).unwrap_or(longest)),
        };
        let astray = unexplained.and_then(|within| self.astray((name, traffic), within, in_one));
        let is_standing = from_the_first && asks && !is_explained && astray.is_none();
        let standing = is_standing
            .then(|| standing::of_gap(self.all(), (name, traffic), begun))
            .flatten();
        Outage {
            to: traffic.to.clone(),
            longest,
            from_the_first,
            in_one,
            dropped: unexplained.and_then(|span| meanwhile::dropped(self.all(), span)),
            answered_last: meanwhile::left_behind(self.events, (name, traffic), longest),
            gaps: all.len(),
            gaps_us: all.iter().map(|gap| gap.span.len_us()).sum(),
            told,
            cause,
            programs,
            turned,
            standing,
            done,
            astray,
            undone: unexplained.and_then(|time| self.undone(traffic, time, in_one)),
            node,
        }
    }

    /// What was done just before a gap, else before the outage that it is the end of, else what began with an earlier one and lasts.
    fn done_before(&self, name: &TrafficName, all: &[Gap], gap: Span) -> Option<Done> {
        let done = |gap| done::done(self.case, self.events, name, gap, 0);
        let before = || done(gaps::outage_before(all, gap));
        let staying = || done::staying(self.case, self.events, name, all, gap);
        done(gap).or_else(before).or_else(staying)
    }

    /// The old copy of a table that was put back on the node of a traffic's rules: in a time in which some requests were lost, or when all began
    /// to be.
    fn undone(&self, traffic: &Traffic, time: Span, all: bool) -> Option<Undone> {
        let node = attribution::walked_node(self.case, traffic)?;
        let to_us = if all { time.from_us } else { time.to_us };
        let time = Span {
            from_us: time.from_us.saturating_sub(SOME_PASS_US),
            to_us: to_us + SENT_LATE_US,
        };
        self.index.undone(&node, time).cloned()
    }

    /// Where rules led requests that were lost; of a time in which all were, only what explains that.
    fn astray(&self, traffic: (&TrafficName, &Traffic), within: Span, all: bool) -> Option<Astray> {
        astray::of_losses(self.all(), traffic, within, all)
    }

    /// Why requests were lost in a gap: programs that led them astray or dropped them, or a command. What was deleted beside such programs is
    /// not why, nor is what was deleted long enough before for a new connection to be answered without it.
    fn why(
        &self,
        (name, traffic): (&TrafficName, &Traffic),
        gap: Span,
    ) -> (Option<Cause>, Option<Box<Programs>>) {
        let node = attribution::node_of(self.case, traffic);
        let programs =
            node.and_then(|node| programs::of_gap(self.events, self.index, &node, traffic, gap));
        if let Some(programs) = programs {
            return (None, Some(Box::new(programs)));
        }
        let cause = attribution::of_gap(self.case, self.index, traffic, gap);
        let is_needed = |cause: &Cause| {
            let without = cause.at_us..gap.from_us;
            traffic.connections == Connections::Kept
                || !gaps::was_answered(self.events, name, without)
        };
        (cause.filter(is_needed), None)
    }

    /// The longest gaps, each with who cut and who healed it.
    pub(crate) fn explained(
        &self,
        all: &[Gap],
        (name, traffic): (&TrafficName, &Traffic),
        node: Option<&NodeName>,
    ) -> Vec<ExplainedGap> {
        let mut gaps: Vec<&Gap> = all.iter().collect();
        gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.span.len_us()), gap.span.from_us));
        let explained = |gap: &Gap| {
            let (cause, programs) = self.why((name, traffic), gap.span);
            ExplainedGap {
                gap: *gap,
                from_the_first: !gaps::was_answered(self.events, name, 0..gap.span.from_us),
                cause,
                programs,
                turned: None,
                heal: node.and_then(|node| {
                    attribution::healing(self.case, self.index, (traffic, node), gap)
                }),
            }
        };
        gaps.into_iter().take(TOLD).map(explained).collect()
    }

    fn logged(&self, entries: &Entries) -> Logged {
        let first = entries.first.as_ref();
        Logged {
            entries: entries.clone(),
            finding: first.and_then(|first| LogFinding::of(&first.text)),
            cause: first.and_then(|first| attribution::of_entry(self.index, first)),
        }
    }

    fn rule(&self, claim: Option<&Claim>, presence: &Presence) -> RuleFound {
        let asked = claim.and_then(Claim::query).map(|query| Asked {
            case: self.case,
            events: self.events,
            index: self.index,
            query,
            forbidden: presence.forbidden,
        });
        let causes = |node: &NodeName, spans: &[Span]| match &asked {
            Some(asked) => asked.causes(node, spans),
            None => vec![None; spans.len()],
        };
        let told = presence.wrong.iter().take(TOLD);
        let told = told.map(|(node, spans)| {
            let spans = &spans[..spans.len().min(TOLD)];
            let explained = spans.iter().zip(causes(node, spans));
            explained
                .map(|(&span, cause)| ExplainedTime { span, cause })
                .collect()
        });
        let told: Vec<Vec<ExplainedTime>> = told.collect();
        let first = presence.first();
        let from_the_first = first.zip(asked.as_ref());
        let from_the_first = from_the_first
            .is_some_and(|((node, span), asked)| !asked.was_otherwise(node, span.from_us));
        let cause = first.and_then(|(node, span)| {
            let at = presence.wrong.get_index_of(node);
            match at.and_then(|at| told.get(at)?.first()) {
                Some(time) => time.cause.clone(),
                None => causes(node, &[span]).remove(0),
            }
        });
        let unwritten = first.zip(asked.as_ref()).and_then(|((node, span), asked)| {
            let is_never_there = from_the_first && cause.is_none() && !presence.forbidden;
            let Query::Rule(query) = asked.query else {
                return None;
            };
            let until = is_never_there.then_some((node, span.to_us))?;
            unwritten::of_rule(self.index, query, until)
        });
        RuleFound {
            presence: presence.clone(),
            cause,
            from_the_first,
            unwritten,
            told,
        }
    }
}

/// Whether an agent is meant: what it does it does because of what the API says.
pub(crate) fn is_an_agent(who: &str) -> bool {
    AgentName::ALL.iter().any(|it| it.as_str() == who)
}

/// Whether nobody is blamed, or kube-proxy is for what it did to its own rules: what that came to says more.
fn is_its_own(cause: Option<&Cause>) -> bool {
    cause.is_none_or(|it| it.who == AgentName::KubeProxy.as_str())
}

/// The gap of which a promise judges a part: what began it may have been before that.
fn whole(all: &[Gap], part: Span) -> Span {
    let spans = all.iter().map(|gap| gap.span);
    let mut around = spans.filter(|span| span.contains(part.from_us));
    around.next().unwrap_or(part)
}

/// What of the gaps is in the time of a promise.
fn lost_in(gaps: &[Gap], time: Option<Span>) -> Vec<Span> {
    let spans = gaps.iter().map(|gap| gap.span);
    let part = |span: Span| time.map_or(Some(span), |time| span.within(time));
    spans.filter_map(part).collect()
}

/// From the first request that was lost to the last.
fn around(lost: &[Span]) -> Option<Span> {
    let (first, last) = (lost.first()?, lost.last()?);
    Some(Span {
        from_us: first.from_us,
        to_us: last.to_us,
    })
}

/// Whether the longest gap is what there is to tell: it is longer than promised, or half of the loss.
fn tells(gap: Span, claim: Option<&Claim>, requests: &Requests, traffic: &Traffic) -> bool {
    let too_long = match claim {
        Some(Claim::Available { longest_gap, .. }) => {
            longest_gap.is_some_and(|limit| u128::from(gap.len_us()) > limit.as_micros())
        }
        _ => false,
    };
    let lost = u128::from(requests.sent - requests.answered);
    let in_gap = u128::from(gap.len_us()) / traffic.every.as_micros().max(1);
    too_long || 2 * in_gap >= lost
}
