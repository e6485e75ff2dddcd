//! What was done, or happened to the world, before requests were lost, by the words of steps: it blames nobody, and helps where no recorded
//! command explains the loss.

use std::collections::BTreeSet;

use chainbreak_model::{
    case::{Case, Fault, Step},
    event::{Event, EventKind},
    names::TrafficName,
    verdict::Span,
};
use serde::Serialize;

use crate::{
    attribution::SENT_LATE_US,
    gaps::{Beginning, Gap},
    text::one_line,
};

/// What is written into the API takes effect after the step that writes it: a pod ends, and kube-proxy syncs at most a second later
/// (`--iptables-min-sync-period`, 1 s).
const TAKES_EFFECT_US: u64 = 1_000_000;

/// How long before the first of requests that are lost one here, one there: where one of two endpoints is gone, each other request passes.
pub(crate) const SOME_PASS_US: u64 = 500_000;

/// What was done, or happened to the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Done {
    /// In words, what was done first before the others.
    pub text: String,
    /// The third parties that did it, and the words of the steps that did.
    pub by: BTreeSet<String>,
    /// Whether it was done before an earlier loss, and was there still.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
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
    let deeds = deeds(&case.timeline, events);
    of(
        case,
        &before(&deeds, events, name, (gap, before_us)),
        |_| true,
    )
}

/// What lasts and was not undone when this gap began, of what was done before an earlier loss: requests passed in between, as when entries of
/// a full table end.
pub(crate) fn staying(
    case: &Case,
    events: &[Event],
    name: &TrafficName,
    all: &[Gap],
    gap: Span,
) -> Option<Done> {
    let earlier_on = events.iter().take_while(|event| event.at_us < gap.from_us);
    let undone = earlier_on.filter_map(|event| match event.what {
        EventKind::StepEnded { step } => Some(step),
        _ => None,
    });
    let undone: BTreeSet<usize> = undone.collect();
    let stays = |step: usize| match case.timeline.get(step) {
        Some(Step::Fault { fault, .. }) => fault.lasts() && !undone.contains(&step),
        _ => false,
    };
    let mut deeds = deeds(&case.timeline, events);
    deeds.retain(|deed| deed.by.iter().any(|step| stays(*step)));
    if deeds.is_empty() {
        return None;
    }
    let earlier = all.iter().rev().map(|it| it.span);
    let mut earlier = earlier.filter(|it| it.to_us <= gap.from_us);
    let done = earlier.find_map(|it| of(case, &before(&deeds, events, name, (it, 0)), stays))?;
    Some(Done {
        stays: true,
        ..done
    })
}

/// Those deeds, by such of their steps; none where there are none.
fn of(case: &Case, deeds: &[&Deed<'_>], is_meant: impl Fn(usize) -> bool) -> Option<Done> {
    let text: Vec<String> = deeds.iter().map(|deed| one_line(deed.text)).collect();
    let steps = deeds.iter().flat_map(|deed| &deed.by);
    let steps = steps.filter(|step| is_meant(**step));
    let steps = steps.filter_map(|step| case.timeline.get(*step));
    (!text.is_empty()).then(|| Done {
        text: text.join(", "),
        by: steps.flat_map(Step::culprits).map(str::to_owned).collect(),
        stays: false,
    })
}

/// What of it was done then, or so long before.
fn before<'d, 'e>(
    deeds: &'d [Deed<'e>],
    events: &[Event],
    name: &TrafficName,
    (gap, before_us): (Span, u64),
) -> Vec<&'d Deed<'e>> {
    let Some(begun) = Beginning::of(events, name, gap) else {
        return Vec::new();
    };
    let lost_us = begun.lost_us + SENT_LATE_US;
    let since_us = begun.answered_us.saturating_sub(before_us);
    let is_near = |deed: &&Deed<'_>| deed.from_us <= lost_us && deed.to_us >= since_us;
    deeds.iter().filter(is_near).collect()
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
    /// The step that goes on doing it until it ends.
    going: Option<usize>,
    /// The steps that may have done it.
    by: Vec<usize>,
}

fn deeds<'a>(timeline: &[Step], events: &'a [Event]) -> Vec<Deed<'a>> {
    let takes_us = |step: usize| takes_us(timeline.get(step)?);
    let agents_take_us = |step: usize| agents_take_us(timeline.get(step)?);
    let goes_on = |step: usize| timeline.get(step).is_some_and(goes_on);
    let does_something = |step: usize| timeline.get(step).is_none_or(|step| !step.waits());
    let mut deeds: Vec<Deed<'_>> = Vec::new();
    let mut open = None;
    // The step that began last and has said nothing yet, and when.
    let mut begun = None;
    // Those that have begun and are not over, the last one last; and from which deed on none began or ended.
    let (mut running, mut since) = (Vec::new(), 0);
    for event in events {
        match &event.what {
            EventKind::StepBegan { step } => {
                open = Some(*step).filter(|it| takes_us(*it).is_some());
                begun = Some((*step, event.at_us)).filter(|_| does_something(*step));
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
                let own = deeds.iter_mut().filter(|it| it.going == Some(*step));
                own.for_each(|deed| deed.to_us = event.at_us);
                // What is undone is said just before its end, while later steps may be under way.
                for deed in &mut deeds[since..] {
                    deed.by.push(*step);
                    if deed.going.is_none()
                        && let Some(takes_us) = agents_take_us(*step)
                    {
                        deed.to_us = event.at_us + takes_us;
                    }
                }
                running.retain(|it| it != step);
                since = deeds.len();
            }
            EventKind::Step { text } => {
                let begun = begun.take();
                // It says first what it does.
                let going = begun.map(|(step, _)| step).filter(|step| goes_on(*step));
                deeds.push(Deed {
                    text,
                    from_us: begun.map_or(event.at_us, |(_, at_us)| at_us),
                    to_us: going.map_or(event.at_us, |_| u64::MAX),
                    step: open,
                    going,
                    by: running.last().copied().into_iter().collect(),
                });
            }
            _ => {}
        }
    }
    deeds
}

/// How long after its end a step takes effect that runs once.
fn takes_us(step: &Step) -> Option<u64> {
    match step {
        Step::Fault { duration: None, .. } => Some(0),
        Step::Felix(_) | Step::Apply(_) | Step::Delete(_) | Step::MoveApi => Some(TAKES_EFFECT_US),
        _ => None,
    }
}

/// An agent does its first work within as long after it was started.
fn agents_take_us(step: &Step) -> Option<u64> {
    let Step::Fault { fault, .. } = step else {
        return None;
    };
    let starts_one = matches!(
        fault,
        Fault::Agent { .. } | Fault::Reboot { .. } | Fault::Upgrade { .. } | Fault::Switch { .. }
    );
    starts_one.then_some(TAKES_EFFECT_US)
}

/// Whether a step costs a request now and then as long as it is there.
fn goes_on(step: &Step) -> bool {
    let Step::Fault { fault, .. } = step else {
        return false;
    };
    matches!(fault, Fault::Craft(_) | Fault::Loss { .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::{
        case::{AgentFault, ObjectRef, Origin},
        names::AgentName,
    };

    use super::*;

    fn say(text: &str) -> EventKind {
        EventKind::Step {
            text: text.to_owned(),
        }
    }

    fn at(events: impl IntoIterator<Item = (u64, EventKind)>) -> Vec<Event> {
        let events = events.into_iter();
        events.map(|(at_us, what)| Event { at_us, what }).collect()
    }

    fn lasting(fault: Fault, duration: Duration) -> Step {
        let duration = Some(duration);
        Step::Fault { fault, duration }
    }

    #[test]
    fn what_is_undone_is_its_own_steps_and_not_done_when_the_settle_began_that_is_under_way() {
        let fault = Fault::LinkDown {
            at: Origin::Host("outside".to_owned()),
            interface: "eth0".to_owned(),
        };
        let down = lasting(fault, Duration::from_secs(1));
        let timeline = [down, Step::Settle(Duration::from_secs(3))];
        let events = [
            (1_000, EventKind::StepBegan { step: 0 }),
            (1_010, say("eth0 down")),
            (1_020, EventKind::StepBegan { step: 1 }),
            (2_010, say("eth0 up")),
            (2_020, EventKind::StepEnded { step: 0 }),
            (4_020, EventKind::StepEnded { step: 1 }),
        ];
        let events = at(events);
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
        let stop = lasting(fault, Duration::from_millis(300));
        let timeline = [stop, Step::Settle(Duration::from_secs(3))];
        let events = [
            (1_000, EventKind::StepBegan { step: 0 }),
            (1_010, say("stop felix")),
            (1_020, EventKind::StepBegan { step: 1 }),
            (301_010, say("start felix")),
            (301_020, EventKind::StepEnded { step: 0 }),
        ];
        let events = at(events);
        let ends: Vec<u64> = deeds(&timeline, &events)
            .iter()
            .map(|it| it.to_us)
            .collect();
        assert_eq!(ends, [1_010, 301_020 + TAKES_EFFECT_US]);
    }

    #[test]
    fn what_costs_a_request_now_and_then_is_at_work_as_long_as_it_is_there() {
        let fault = Fault::Loss {
            at: Origin::Host("outside".to_owned()),
            share: 10.0,
        };
        let loss = lasting(fault, Duration::from_secs(3));
        let timeline = [loss, Step::Settle(Duration::from_secs(3))];
        let events = [
            (1_000, EventKind::StepBegan { step: 0 }),
            (1_010, say("10 % of packets are lost")),
            (1_020, EventKind::StepBegan { step: 1 }),
            (3_001_000, say("none are lost")),
            (3_001_010, EventKind::StepEnded { step: 0 }),
        ];
        let events = at(events);
        let spans = |events: &[Event]| {
            let deeds = deeds(&timeline, events);
            deeds
                .iter()
                .map(|it| (it.from_us, it.to_us))
                .collect::<Vec<_>>()
        };
        let whole = (1_000, 3_001_010);
        assert_eq!(spans(&events), [whole, (3_001_000, 3_001_000)]);
        assert_eq!(spans(&events[..3]), [(1_000, u64::MAX)]);
        // Another step ends meanwhile, which began before.
        let beside = [
            EventKind::StepBegan { step: 1 },
            say("eth0 down"),
            EventKind::StepBegan { step: 0 },
            say("10 % of packets are lost"),
            say("eth0 up"),
            EventKind::StepEnded { step: 1 },
            say("none are lost"),
            EventKind::StepEnded { step: 0 },
        ];
        let events = at((1..).zip(beside));
        assert_eq!(spans(&events), [(2, 2), (3, 8), (5, 5), (7, 7)]);
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
        let events = [
            (1_000, EventKind::StepBegan { step: 0 }),
            (1_010, say("delete Pod test/web")),
            (4_000, EventKind::StepEnded { step: 0 }),
        ];
        let events = at(events);
        let deeds = deeds(&timeline, &events);
        let told: Vec<_> = deeds.iter().map(|it| (it.from_us, it.to_us)).collect();
        assert_eq!(told, [(1_000, 4_000 + TAKES_EFFECT_US)]);
    }
}
