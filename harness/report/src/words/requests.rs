//! The words for requests that were lost.

use chainbreak_model::{
    case::{Claim, Destination},
    verdict::{Requests, Span},
};

use super::size;
use crate::{
    attribution::Cause,
    finding::{ExplainedGap, Lost, Outage},
    text::{clock, count, length, one_line, percent},
};

impl Lost {
    pub(super) fn headline(&self) -> String {
        match &self.outage {
            Some(outage) => outage.headline(&self.requests),
            None => one_line(&self.requests.to_string()),
        }
    }

    pub(super) fn evidence(&self, claim: Option<&Claim>) -> Vec<String> {
        let Requests { sent, answered, .. } = self.requests;
        let share = percent(size(answered), size(sent));
        let mut ended = lost(&self.requests);
        if !ended.is_empty() {
            ended.insert_str(0, "; ");
        }
        let mut lines = vec![format!(
            "{share} of {sent} requests answered ({answered}{ended})"
        )];
        lines.extend(claim.and_then(promised));
        lines.extend(self.outage.iter().flat_map(Outage::gaps));
        lines
    }
}

/// How many ended how, of those that were not answered.
fn lost(requests: &Requests) -> String {
    let lost = requests.unanswered();
    let lost: Vec<String> = lost.map(|(word, n)| format!("{n} {word}")).collect();
    lost.join(", ")
}

fn promised(claim: &Claim) -> Option<String> {
    match claim {
        Claim::Available {
            at_least,
            longest_gap,
            ..
        } => {
            let gap = longest_gap
                .map(|gap| format!(", no gap longer than {} s", gap.as_secs_f64()))
                .unwrap_or_default();
            Some(format!("promised: at least {at_least} %{gap}"))
        }
        Claim::Unreachable { .. } => Some("promised: none is answered".to_owned()),
        _ => None,
    }
}

impl Outage {
    fn headline(&self, requests: &Requests) -> String {
        let subject = subject(&self.to);
        let at = self.node.as_ref().map(|node| format!(" on {node}"));
        let at = at.unwrap_or_default();
        let dropped = self.dropped.as_ref().map(|dropped| format!("; {dropped}"));
        let dropped = dropped.unwrap_or_default();
        let undone = self.undone.as_ref().map(|undone| format!("; {undone}"));
        let undone = undone.unwrap_or_default();
        if self.in_one {
            let why = self.why();
            let last = self.answered_last.as_ref().map(|backend| {
                format!("; {backend} answered last, where conntrack may lead its kept port still")
            });
            let last = last.unwrap_or_default();
            format!(
                "{subject} dead{at} for {}: {why}{undone}{dropped}{last}",
                self.longest
            )
        } else {
            let Requests { sent, answered, .. } = requests;
            let astray = self.astray.as_ref().map(|astray| format!("; {astray}"));
            let astray = astray.unwrap_or_default();
            let done = self.done.as_ref();
            let done = done.map(|done| format!("; just before the first: {}", done.text));
            let done = done.unwrap_or_default();
            format!(
                "{subject} lost {} of {sent} requests{at}, one here, one there: {}{done}{undone}{astray}{dropped}",
                sent - answered,
                lost(requests)
            )
        }
    }

    /// Because of whom, or that this is not known.
    fn why(&self) -> String {
        let who = match (&self.programs, &self.turned, &self.cause, &self.astray) {
            (Some(programs), ..) => programs.to_string(),
            (None, Some(turned), ..) => turned.to_string(),
            (None, None, Some(cause), _) => cause.to_string(),
            (None, None, None, Some(astray)) => astray.to_string(),
            (None, None, None, None) if self.from_the_first => {
                let standing = self.standing.as_ref().map(|it| format!(": {it}"));
                format!("from the first request on{}", standing.unwrap_or_default())
            }
            (None, None, None, None) => "no recorded command explains it".to_owned(),
        };
        let done = self.done.as_ref();
        let done = done.map(|done| {
            let when = if done.stays {
                "there since an earlier loss"
            } else {
                "just before it"
            };
            format!("; {when}: {}", done.text)
        });
        format!("{who}{}", done.unwrap_or_default())
    }

    /// The longest gaps.
    fn gaps(&self) -> Vec<String> {
        let gaps = count(self.gaps, "gap");
        let total = length(self.gaps_us);
        let end = if self.gaps > self.told.len() {
            ", the longest:"
        } else {
            ":"
        };
        let first = format!("{gaps}, {total} in all{end}");
        let told = self.told.iter().map(ExplainedGap::line);
        std::iter::once(first).chain(told).collect()
    }
}

impl ExplainedGap {
    fn line(&self) -> String {
        let Span { from_us, to_us } = self.gap.span;
        let cause = self.cause.as_ref().map(|cause| {
            let (verb, at) = (cause.verb, clock(cause.at_us));
            let Cause { link, who, .. } = cause;
            format!("; {link} {verb} by {who} at {at}")
        });
        let programs = self.programs.as_ref().map(|it| format!("; {it}"));
        let turned = self.turned.as_ref();
        let turned = turned.map(|it| format!("; {it} at {}", clock(it.at_us)));
        let heal = self.heal.as_ref();
        let heal = heal.map(|heal| format!("; {heal} at {}", clock(heal.at_us)));
        format!(
            "  {} – {} ({}, {} lost){}{}{}{}",
            clock(from_us),
            clock(to_us),
            length(self.gap.span.len_us()),
            count(self.gap.lost, "request"),
            programs.unwrap_or_default(),
            cause.unwrap_or_default(),
            turned.unwrap_or_default(),
            heal.unwrap_or_default()
        )
    }
}

fn subject(to: &Destination) -> String {
    match to {
        Destination::Service { .. } | Destination::NodePort { .. } => "services".to_owned(),
        Destination::Pod { namespace, name } => format!("pod {namespace}/{name}"),
        Destination::Host(name) => format!("host {name}"),
    }
}
