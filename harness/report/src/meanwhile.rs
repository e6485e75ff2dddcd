//! Where packets ended while a traffic got no answers: the drop census of a gap. It blames nobody, and helps where no
//! recorded command explains the gap: a rule may have been there all the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use chainbreak_model::{
    case::{Case, Fault, Step, Traffic},
    event::{Event, EventKind},
    names::TrafficName,
    verdict::Span,
};
use chainbreak_netfilter::Site;
use chainbreak_probe::wire::{Connections, Outcome, Protocol};
use serde::Serialize;

use crate::{
    attribution::SENT_LATE_US,
    gaps::Beginning,
    text::{count, one_line},
};

/// The census looks every three seconds, and says with a look what came since the one before.
const LOOK_US: u64 = 3_500_000;

/// What is written into the API takes effect after the step that writes it: a pod ends, and kube-proxy syncs at most a second later
/// (`--iptables-min-sync-period`, 1 s).
const TAKES_EFFECT_US: u64 = 1_000_000;

/// How long before the first of requests that are lost one here, one there: where one of two endpoints is gone, each other request passes.
pub(crate) const SOME_PASS_US: u64 = 500_000;

/// The rule in which most packets ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Dropped {
    /// How many.
    pub packets: u64,
    /// On which node.
    pub node: String,
    /// Whose rule.
    pub owner: String,
    /// The rule.
    pub site: Site,
}

/// What was done, or happened to the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Done {
    /// In words, what was done first before the others.
    pub text: String,
    /// The third parties that did it, and the words of the steps that did.
    pub by: BTreeSet<String>,
}

/// Of what was told within the gap or with the first look after it.
pub(crate) fn dropped(events: &[Event], gap: Span) -> Option<Dropped> {
    let told = gap.from_us..=gap.to_us + LOOK_US;
    let mut sums: BTreeMap<(&str, &str, Site), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| told.contains(&event.at_us)) {
        let EventKind::Drops(seen) = &event.what else {
            continue;
        };
        for dropped in &seen.grown {
            let site = Site {
                table: dropped.table.clone(),
                chain: dropped.chain.clone(),
                rule: dropped.rule.clone(),
            };
            let key = (seen.node.as_str(), dropped.owner.as_str(), site);
            *sums.entry(key).or_default() += dropped.packets;
        }
    }
    let ((node, owner, site), packets) = sums.into_iter().max_by_key(|(_, packets)| *packets)?;
    Some(Dropped {
        packets,
        node: node.to_owned(),
        owner: owner.to_owned(),
        site,
    })
}

/// Of a UDP client that keeps its port: where its packets went last. conntrack leads them there as long as they come,
/// whatever the rules say.
pub(crate) fn left_behind(
    events: &[Event],
    (name, traffic): (&TrafficName, &Traffic),
    gap: Span,
) -> Option<String> {
    if (traffic.protocol, traffic.connections) != (Protocol::Udp, Connections::Kept) {
        return None;
    }
    let before = events.iter().filter(|event| event.at_us < gap.from_us);
    let mut backends = before.filter_map(|event| match &event.what {
        EventKind::Sample { traffic, sample } if traffic == name => match &sample.outcome {
            Outcome::Answered { backend, .. } if !backend.is_empty() => Some(backend),
            _ => None,
        },
        _ => None,
    });
    backends.next_back().map(|backend| one_line(backend))
}

/// What was done, or happened to the world, between the last request that was answered and the first that was lost. What costs only some
/// requests may let others pass in between: then it is looked for so long before the last one that was answered, too.
pub(crate) fn done(
    case: &Case,
    events: &[Event],
    name: &TrafficName,
    gap: Span,
    before_us: u64,
) -> Option<Done> {
    let begun = Beginning::of(events, name, gap)?;
    let lost_us = begun.lost_us + SENT_LATE_US;
    let since_us = begun.answered_us.saturating_sub(before_us);
    let mut deeds = deeds(&case.timeline, events);
    deeds.retain(|deed| deed.from_us <= lost_us && deed.to_us >= since_us);
    let text: Vec<String> = deeds.iter().map(|deed| one_line(deed.text)).collect();
    let steps = deeds.iter().flat_map(|deed| &deed.by);
    let steps = steps.filter_map(|step| case.timeline.get(*step));
    let by = steps.flat_map(Step::culprits).map(str::to_owned);
    (!text.is_empty()).then(|| Done {
        text: text.join(", "),
        by: by.collect(),
    })
}

/// Something that was done, as the history says.
struct Deed<'a> {
    text: &'a str,
    /// When its step began, which may say it only when it is done; else when it is said.
    from_us: u64,
    /// When it was over and had taken effect, of what runs once.
    to_us: u64,
    /// The step that runs once, whose end is its end.
    step: Option<usize>,
    /// The steps that may have done it.
    by: Vec<usize>,
}

fn deeds<'a>(timeline: &[Step], events: &'a [Event]) -> Vec<Deed<'a>> {
    // How long after its end one takes effect that runs once.
    let takes_us = |step: usize| match timeline.get(step)? {
        Step::Fault { duration: None, .. } => Some(0),
        Step::Felix(_) | Step::Apply(_) | Step::Delete(_) | Step::MoveApi => Some(TAKES_EFFECT_US),
        _ => None,
    };
    // An agent does its first work within as long after it was started.
    let agents_take_us = |step: usize| match timeline.get(step) {
        Some(Step::Fault {
            fault: Fault::Agent { .. } | Fault::Upgrade { .. } | Fault::Switch { .. },
            ..
        }) => Some(TAKES_EFFECT_US),
        _ => None,
    };
    let does_something = |step: usize| {
        let step = timeline.get(step);
        step.is_none_or(|step| !step.waits())
    };
    let mut deeds: Vec<Deed<'_>> = Vec::new();
    let (mut open, mut began_us) = (None, None);
    // Those that have begun and are not over, the last one last; and from which deed on none began or ended.
    let (mut running, mut since) = (Vec::new(), 0);
    for event in events {
        match &event.what {
            EventKind::StepBegan { step } => {
                open = Some(*step).filter(|it| takes_us(*it).is_some());
                began_us = Some(event.at_us).filter(|_| does_something(*step));
                running.push(*step);
                since = deeds.len();
            }
            EventKind::StepEnded { step } => {
                if open == Some(*step) {
                    let own = deeds.iter_mut().filter(|deed| deed.step == open);
                    let until_us = event.at_us + takes_us(*step).unwrap_or(0);
                    own.for_each(|deed| deed.to_us = until_us);
                    open = None;
                }
                // What is undone is said just before its end, while later steps may be under way.
                for deed in &mut deeds[since..] {
                    deed.by.push(*step);
                    if let Some(takes_us) = agents_take_us(*step) {
                        deed.to_us = event.at_us + takes_us;
                    }
                }
                running.retain(|it| it != step);
                since = deeds.len();
            }
            EventKind::Step { text } => deeds.push(Deed {
                text,
                from_us: began_us.take().unwrap_or(event.at_us),
                to_us: event.at_us,
                step: open,
                by: running.last().copied().into_iter().collect(),
            }),
            _ => {}
        }
    }
    deeds
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            packets,
            node,
            owner,
            site,
        } = self;
        let Site { table, chain, rule } = site;
        let packets = count(usize::try_from(*packets).unwrap_or(usize::MAX), "packet");
        let rule = one_line(rule);
        write!(
            f,
            "{packets} ended meanwhile in {table} {chain} {rule} on {node} ({owner})"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::{
        case::{AgentFault, Destination, ObjectRef, Origin},
        names::AgentName,
    };
    use chainbreak_probe::wire::Sample;

    use super::*;

    fn answered(at_us: u64, backend: &str) -> Event {
        let local = ([10, 20, 1, 2], 40_000).into();
        let outcome = Outcome::Answered {
            backend: backend.to_owned(),
            seen_as: Some(local),
            local,
        };
        let sample = Sample {
            at_us,
            took_us: 300,
            late_us: None,
            outcome,
        };
        let traffic = "asks".into();
        let what = EventKind::Sample { traffic, sample };
        Event { at_us, what }
    }

    #[test]
    fn what_is_undone_is_its_own_steps_and_not_done_when_the_settle_began_that_is_under_way() {
        let fault = Fault::LinkDown {
            at: Origin::Host("outside".to_owned()),
            interface: "eth0".to_owned(),
        };
        let down = Step::Fault {
            fault,
            duration: Some(Duration::from_secs(1)),
        };
        let timeline = [down, Step::Settle(Duration::from_secs(3))];
        let say = |text: &str| EventKind::Step {
            text: text.to_owned(),
        };
        let events = [
            (1_000, EventKind::StepBegan { step: 0 }),
            (1_010, say("eth0 down")),
            (1_020, EventKind::StepBegan { step: 1 }),
            (2_010, say("eth0 up")),
            (2_020, EventKind::StepEnded { step: 0 }),
            (4_020, EventKind::StepEnded { step: 1 }),
        ];
        let events = events.map(|(at_us, what)| Event { at_us, what });
        let deeds = deeds(&timeline, &events);
        let told: Vec<_> = deeds.iter().map(|it| (it.text, it.from_us)).collect();
        assert_eq!(told, [("eth0 down", 1_000), ("eth0 up", 2_010)]);
        let by = |deed: &Deed<'_>| deed.by.iter().map(|it| timeline[*it].word()).collect();
        let by: Vec<Vec<&str>> = deeds.iter().map(by).collect();
        assert_eq!(by, [vec!["link-down"], vec!["settle", "link-down"]]);
    }

    #[test]
    fn an_agent_that_was_started_again_takes_effect_for_a_while_after_its_step() {
        let fault = Fault::Agent {
            agent: AgentName::Felix,
            what: AgentFault::Stop,
            node: None,
        };
        let stop = Step::Fault {
            fault,
            duration: Some(Duration::from_millis(300)),
        };
        let timeline = [stop, Step::Settle(Duration::from_secs(3))];
        let say = |text: &str| EventKind::Step {
            text: text.to_owned(),
        };
        let events = [
            (1_000, EventKind::StepBegan { step: 0 }),
            (1_010, say("stop felix")),
            (1_020, EventKind::StepBegan { step: 1 }),
            (301_010, say("start felix")),
            (301_020, EventKind::StepEnded { step: 0 }),
        ];
        let events = events.map(|(at_us, what)| Event { at_us, what });
        let ends: Vec<u64> = deeds(&timeline, &events)
            .iter()
            .map(|it| it.to_us)
            .collect();
        assert_eq!(ends, [1_010, 301_020 + TAKES_EFFECT_US]);
    }

    #[test]
    fn what_is_deleted_goes_until_a_while_after_its_step_although_it_is_said_at_its_beginning() {
        let pod = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: Some("test".to_owned()),
            name: "web".to_owned(),
        };
        let timeline = [Step::Delete(pod)];
        let text = "delete Pod test/web".to_owned();
        let events = [
            (1_000, EventKind::StepBegan { step: 0 }),
            (1_010, EventKind::Step { text }),
            (4_000, EventKind::StepEnded { step: 0 }),
        ];
        let events = events.map(|(at_us, what)| Event { at_us, what });
        let deeds = deeds(&timeline, &events);
        let told: Vec<_> = deeds.iter().map(|it| (it.from_us, it.to_us)).collect();
        assert_eq!(told, [(1_000, 4_000 + TAKES_EFFECT_US)]);
    }

    #[test]
    fn a_client_that_keeps_its_udp_port_was_answered_last_by_somebody() {
        let events = [
            answered(10, "statsd-old"),
            answered(20, "statsd-old"),
            answered(90, "statsd-new"),
        ];
        let gap = Span {
            from_us: 30,
            to_us: 90,
        };
        let of = |protocol, connections| {
            let traffic = Traffic {
                from: Origin::Host("outside".to_owned()),
                to: Destination::Host("db".to_owned()),
                protocol,
                port: 53,
                family: None,
                every: Duration::from_millis(50),
                connections,
                timeout: Duration::from_secs(1),
            };
            left_behind(&events, (&"asks".into(), &traffic), gap)
        };
        let last = of(Protocol::Udp, Connections::Kept);
        assert_eq!(last.as_deref(), Some("statsd-old"));
        assert_eq!(of(Protocol::Udp, Connections::New), None);
        assert_eq!(of(Protocol::Tcp, Connections::Kept), None);
    }
}
