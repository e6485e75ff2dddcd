//! A verdict on the histories of these tests.

use chainbreak_model::{
    case::{Case, Expect},
    event::{Event, Phase, What},
    verdict::{
        CaseVerdict, Entries, Evidence, Expected, FirstEntry, Judged, Presence, PromiseVerdict,
        Requests, Span, Verdict,
    },
};
use indexmap::IndexMap;

pub(crate) fn judge(case: &Case, events: &[Event]) -> Verdict {
    let at = |phase| {
        events
            .iter()
            .find(|event| event.what == What::Phase(phase))
            .map(|event| event.at_us)
    };
    let window = at(Phase::Judging).map(|from_us| Span {
        from_us,
        to_us: at(Phase::Judged).unwrap_or(u64::MAX),
    });
    let trouble: Vec<String> = events
        .iter()
        .filter_map(|event| match &event.what {
            What::Trouble { text } => Some(text.clone()),
            _ => None,
        })
        .collect();
    let seen = [
        ("answers", window.map(|window| answers(events, window))),
        ("no-restore-errors", window.map(|_| restore_errors(events))),
        ("jump-stays", window.map(|_| jump_stays(events))),
    ];
    let mut promises = IndexMap::new();
    for (name, seen) in seen {
        let expected = match &case.expect {
            Expect::Broken(broken) if broken.contains(&name.into()) => Expected::Broken,
            _ => Expected::Kept,
        };
        let verdict = match seen {
            Some((true, evidence)) => PromiseVerdict::Broken(evidence),
            Some((false, evidence)) => PromiseVerdict::Kept(evidence),
            None => PromiseVerdict::Unknown {
                cause: "the case was not judged".to_owned(),
            },
        };
        promises.insert(name.into(), Judged { verdict, expected });
    }
    let unknown = promises
        .values()
        .any(|judged: &Judged| matches!(judged.verdict, PromiseVerdict::Unknown { .. }));
    let verdict = if unknown || !trouble.is_empty() {
        CaseVerdict::Inconclusive
    } else if promises.values().all(Judged::is_as_expected) {
        CaseVerdict::AsExpected
    } else {
        CaseVerdict::NotAsExpected
    };
    Verdict {
        case: verdict,
        promises,
        trouble,
        window,
    }
}

fn answers(events: &[Event], window: Span) -> (bool, Evidence) {
    let gaps = chainbreak_report::gaps::gaps(events, window);
    let gaps = &gaps.values().next().map_or(&[][..], Vec::as_slice);
    let sent = events
        .iter()
        .filter(|event| matches!(event.what, What::Sample { .. }))
        .count();
    let lost: usize = gaps.iter().map(|gap| gap.lost).sum();
    let longest = gaps
        .iter()
        .map(|gap| gap.span)
        .max_by_key(|span| span.len_us());
    let mut outcomes = IndexMap::from([("answered".to_owned(), (sent - lost) as u64)]);
    if lost > 0 {
        outcomes.insert("timed out".to_owned(), lost as u64);
    }
    let requests = Requests {
        traffic: "shop".into(),
        sent: sent as u64,
        answered: (sent - lost) as u64,
        outcomes,
        longest_gap: longest,
        gaps: gaps.len() as u64,
    };
    (lost > 0, Evidence::Requests(requests))
}

fn restore_errors(events: &[Event]) -> (bool, Evidence) {
    let mut entries = Entries {
        agent: chainbreak_model::names::AgentName::KubeProxy,
        count: 0,
        nodes: IndexMap::new(),
        first: None,
    };
    for event in events {
        if let What::Log(entry) = &event.what
            && entry.text.contains("Failed to execute iptables-restore")
        {
            entries.count += 1;
            *entries.nodes.entry(entry.node.clone()).or_default() += 1;
            entries.first.get_or_insert_with(|| FirstEntry {
                at_us: event.at_us,
                node: entry.node.clone(),
                text: entry.text.clone(),
            });
        }
    }
    (entries.count > 0, Evidence::Log(entries))
}

fn jump_stays(events: &[Event]) -> (bool, Evidence) {
    let mut presence = Presence {
        rule: super::jump().to_string(),
        absent: IndexMap::new(),
    };
    for event in events {
        if let What::Rules(seen) = &event.what {
            let spans: &mut Vec<Span> = presence.absent.entry(seen.node.clone()).or_default();
            match (seen.count, spans.last_mut()) {
                (0, _) => spans.push(Span {
                    from_us: event.at_us,
                    to_us: 15_000_000,
                }),
                (_, Some(open)) => open.to_us = event.at_us,
                (_, None) => {}
            }
        }
    }
    presence.absent.retain(|_, spans| !spans.is_empty());
    (!presence.absent.is_empty(), Evidence::Rule(presence))
}
