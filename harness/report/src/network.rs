//! What a node of a recorded run routes by at a moment.

use chainbreak_model::{
    case::{Fault, Step},
    event::{Event, EventKind},
    names::NodeName,
};

use crate::text::clock;

/// As the history has it.
#[derive(Debug)]
pub struct Network<'a> {
    /// What `ip` and settings said.
    pub text: &'a str,
    /// What they said later, where that is something else, and words for it: when it changed is not known.
    pub later: Option<(&'a str, String)>,
    /// That it may have been otherwise at the moment, whatever was said before and after.
    pub doubt: Option<String>,
}

impl<'a> Network<'a> {
    /// What was told nearest to the moment; none of an older run, or of a node that could not be asked. `reroutes` says which steps of the
    /// timeline may change it, and perhaps back again before it is told: for somebody who has nothing else to go by, [`reroutes`].
    pub fn at(
        events: &'a [Event],
        timeline: &[Step],
        reroutes: fn(&Step) -> bool,
        node: &NodeName,
        at_us: u64,
    ) -> Option<Self> {
        let told = events.iter().filter_map(|event| match &event.what {
            EventKind::Network { node: of, text } if of == node => Some((event.at_us, &**text)),
            _ => None,
        });
        let (before, after): (Vec<_>, Vec<_>) = told.partition(|(told_us, _)| *told_us <= at_us);
        let (before, next) = (before.last().copied(), after.first().copied());
        let between = |from_us: u64, to_us: u64, which: fn(&Step) -> bool| {
            let step = |event: &Event| match event.what {
                EventKind::StepBegan { step } | EventKind::StepEnded { step } => {
                    let within = event.at_us > from_us && event.at_us <= to_us;
                    within && timeline.get(step).is_none_or(which)
                }
                _ => false,
            };
            events.iter().any(step)
        };
        if let Some((_, text)) = next.filter(|it| !between(at_us, it.0, |_| true)) {
            return Some(Self::sure(text));
        }
        let (from_us, text) = before.or(next)?;
        if before.is_some() && between(from_us, at_us, reroutes) {
            if let Some((_, text)) = next.filter(|it| !between(at_us, it.0, reroutes)) {
                return Some(Self::sure(text));
            }
            let doubt = format!(
                "NOT SURE: a step of the timeline that may change what {node} routes by began or ended after that was told at {} s.",
                clock(from_us)
            );
            return Some(Self {
                doubt: Some(doubt),
                ..Self::sure(text)
            });
        }
        let changed = after.iter().find(|(_, later)| lines(later) != lines(text));
        let later = changed.map(|(until, later)| {
            let [from, until] = [from_us, *until].map(clock);
            let words = format!(
                "NOT SURE: this is the way by what {node} routed by at {from} s; by what it did at {until} s there is another one. When that \
                 changed is not known."
            );
            (*later, words)
        });
        Some(Self {
            later,
            ..Self::sure(text)
        })
    }

    fn sure(text: &'a str) -> Self {
        Self {
            text,
            later: None,
            doubt: None,
        }
    }
}

/// Whether a step may change routes, addresses or settings, and perhaps back again before they are told.
pub fn reroutes(step: &Step) -> bool {
    let Step::Fault { fault, .. } = step else {
        return false;
    };
    matches!(
        fault,
        Fault::Sysctl { .. } | Fault::LinkDown { .. } | Fault::Route { .. } | Fault::Run(_)
    )
}

/// Routes have no order, and an address's lifetime counts down.
fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|it| !it.contains("valid_lft"))
        .collect();
    lines.sort_unstable();
    lines
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::Origin;

    use super::*;

    fn event(at_us: u64, node: &str, text: &str) -> Event {
        let (node, text) = (node.into(), text.to_owned());
        let what = EventKind::Network { node, text };
        Event { at_us, what }
    }

    #[test]
    fn what_was_told_nearest_counts_unless_something_was_done_meanwhile() {
        let begin = "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0\n";
        let same = "10.0.0.0/24 dev eth0\ndefault via 10.0.0.1 dev eth0\n";
        let end = "10.0.0.0/24 dev eth0\n";
        let events = [
            event(1_000_000, "n1", begin),
            event(1_000_000, "n2", "default via 10.0.0.9 dev eth0\n"),
            event(5_000_000, "n1", same),
            event(9_000_000, "n1", end),
        ];
        let timeline = [
            Step::MoveApi,
            Step::Fault {
                fault: Fault::LinkDown {
                    at: Origin::Node("n1".into()),
                    interface: "eth0".to_owned(),
                },
                duration: None,
            },
        ];
        let with_step = |step: usize, times: &[u64]| {
            let mut events = events.to_vec();
            for at_us in times {
                let what = EventKind::StepBegan { step };
                events.push(Event {
                    at_us: *at_us,
                    what,
                });
            }
            events
        };
        // Nothing was done until it was told again.
        let none = events.to_vec();
        let at = |events: &[Event], node: &str, at_us| {
            let network = Network::at(events, &timeline, reroutes, &node.into(), at_us);
            network.map(|it| (it.text.to_owned(), it.later.is_some(), it.doubt.is_some()))
        };
        let told = |text: &str, later, doubt| Some((text.to_owned(), later, doubt));
        assert_eq!(at(&none, "n1", 0), told(begin, false, false));
        assert_eq!(at(&none, "n1", 6_000_000), told(end, false, false));
        assert_eq!(at(&none, "n1", 9_000_000), told(end, false, false));
        assert_eq!(at(&none, "n3", 3_000_000), None);
        // The API moved: routes may have changed by that, and the last that is known counts.
        let moved = with_step(0, &[7_000_000]);
        assert_eq!(at(&moved, "n1", 6_000_000), told(same, true, false));
        assert_eq!(at(&moved[..3], "n1", 2_000_000), told(same, false, false));
        // A link was down, and is up again before anybody looks.
        let down = with_step(1, &[6_000_000, 8_000_000]);
        assert_eq!(at(&down, "n1", 7_000_000), told(same, false, true));
        assert_eq!(at(&down, "n1", 8_500_000), told(end, false, false));
    }
}
