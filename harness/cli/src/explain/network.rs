//! What a node of a recorded run routes by at a moment.

use chainbreak_model::{
    event::{Event, EventKind},
    names::NodeName,
};
use chainbreak_report::text::clock;

/// As the history has it.
pub(super) struct Network<'a> {
    /// What `ip` and settings said.
    pub(super) text: &'a str,
    /// What they said later, where that is something else, and words for it: when it changed is not known.
    pub(super) later: Option<(&'a str, String)>,
}

impl<'a> Network<'a> {
    /// The last that was told before the moment, else the first; none of an older run, or of a node that could not be asked.
    pub(super) fn at(events: &'a [Event], node: &NodeName, at_us: u64) -> Option<Self> {
        let told = events.iter().filter_map(|event| match &event.what {
            EventKind::Network { node: of, text } if of == node => Some((event.at_us, &**text)),
            _ => None,
        });
        let (before, after): (Vec<_>, Vec<_>) = told.partition(|(told_us, _)| *told_us <= at_us);
        let (from, text) = *before.last().or(after.first())?;
        let changed = after.iter().find(|(_, later)| lines(later) != lines(text));
        let later = changed.map(|(until, later)| {
            let [from, until] = [from, *until].map(clock);
            let words = format!(
                "NOT SURE: this is the way by what {node} routed by at {from} s; by what it did at {until} s there is another one. When that \
                 changed is not known."
            );
            (*later, words)
        });
        Some(Self { text, later })
    }
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
    use super::*;

    fn told(at_us: u64, node: &str, text: &str) -> Event {
        let (node, text) = (node.into(), text.to_owned());
        let what = EventKind::Network { node, text };
        Event { at_us, what }
    }

    #[test]
    fn the_last_that_was_told_before_counts_and_a_later_change_is_told_of() {
        let begin = "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0\n";
        let same = "10.0.0.0/24 dev eth0\ndefault via 10.0.0.1 dev eth0\n";
        let end = "10.0.0.0/24 dev eth0\n";
        let events = [
            told(1_000_000, "n1", begin),
            told(1_000_000, "n2", "default via 10.0.0.9 dev eth0\n"),
            told(5_000_000, "n1", same),
            told(9_000_000, "n1", end),
        ];
        let at = |node: &str, at_us| Network::at(&events, &node.into(), at_us);
        let before = at("n1", 0).unwrap();
        assert_eq!(before.text, begin);
        let (later, words) = before.later.unwrap();
        assert_eq!(later, end);
        assert!(words.contains("at 1.000 s; by what it did at 9.000 s"));
        assert_eq!(at("n1", 6_000_000).unwrap().text, same);
        assert!(at("n1", 9_000_000).unwrap().later.is_none());
        assert!(at("n2", 3_000_000).unwrap().later.is_none());
        assert!(at("n3", 3_000_000).is_none());
        let unchanged = Network::at(&events[..3], &"n1".into(), 2_000_000);
        assert!(unchanged.unwrap().later.is_none());
    }
}
