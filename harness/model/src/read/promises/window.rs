//! The part of the time that a promise is about.

use std::time::Duration;

use super::{
    super::fields::{Fields, note, text},
    Reading,
};
use crate::{
    case::{Step, Window},
    language::{Field, Kind, optional},
    names::MarkName,
    nearest::suggest,
    yaml::Node,
};

/// When a promise is judged; unless said, while the timeline runs.
pub(super) static WINDOW: [Field; 4] = [
    optional(
        "from",
        Kind::Text,
        "The mark of the timeline with which it begins to be judged.",
    ),
    UNTIL,
    optional(
        "during",
        Kind::Text,
        "The step of the timeline, by its name, while which it is judged.",
    ),
    optional(
        "after",
        Kind::Text,
        "The step of the timeline, by its name, or the mark, after which it is judged.",
    ),
];

pub(super) const UNTIL: Field = optional(
    "until",
    Kind::Text,
    "The mark of the timeline up to which it is judged.",
);

impl Reading<'_> {
    /// `from` and `until`: marks of the timeline, in this order; `during` and `after`: a step of it.
    pub(super) fn window(&self, fields: &Fields<'_>) -> Option<Window> {
        let mark = |name| fields.maybe(name, |node| self.mark(node));
        let (mut from, mut until) = (mark("from")?, mark("until")?);
        if let Some(node) = fields.get("after") {
            self.alone(fields, "after", &["from", "during"]);
            from = Some(self.after(node)?);
        }
        if let Some(node) = fields.get("during") {
            self.alone(fields, "during", &["from", "until"]);
            let step = self.named_step(node)?;
            until = Some(step.over());
            from = Some(step);
        }
        self.in_order(fields, from.as_ref(), until.as_ref());
        Some(Window { from, until })
    }

    /// Notes an `until` that is not after the beginning.
    pub(super) fn in_order(
        &self,
        fields: &Fields<'_>,
        from: Option<&MarkName>,
        until: Option<&MarkName>,
    ) {
        let places = [from, until].map(|mark| self.place(mark?));
        if let ([Some(begin), Some(end)], Some(node)) = (places, fields.get("until"))
            && end <= begin
        {
            let message = "the promise ends before it begins";
            note(self.gathered, &node.place, message, None);
        }
    }

    /// Notes fields that say the same as `field`.
    fn alone(&self, fields: &Fields<'_>, field: &str, others: &[&str]) {
        for other in others.iter().filter(|other| fields.get(other).is_some()) {
            let message = format!("{field} says when already: there is no {other} beside it");
            note(self.gathered, &fields.key(other), message, None);
        }
    }

    /// A step of the timeline that has a name.
    fn named_step(&self, node: &Node) -> Option<MarkName> {
        let name = text(self.gathered, node, "a step")?;
        let step = MarkName::from(name);
        if let Some(steps) = self.known.timeline
            && self.place(&step.over()).is_none()
        {
            let named = steps.iter().filter_map(|step| match step {
                Step::Mark(name) if self.place(&name.over()).is_some() => Some(name.as_str()),
                _ => None,
            });
            let hint = suggest(name, named)
                .or_else(|| Some(format!("write `name: {name}` beside what the step does")));
            let message = format!("no step of the timeline is called {name:?}");
            note(self.gathered, &node.place, message, hint);
        }
        Some(step)
    }

    /// The end of a step, or a mark.
    pub(super) fn after(&self, node: &Node) -> Option<MarkName> {
        let mark = self.mark(node)?;
        let over = mark.over();
        Some(if self.place(&over).is_some() {
            over
        } else {
            mark
        })
    }

    pub(super) fn mark(&self, node: &Node) -> Option<MarkName> {
        let name = text(self.gathered, node, "a mark")?;
        let mark = MarkName::from(name);
        if let Some(steps) = self.known.timeline
            && self.place(&mark).is_none()
        {
            let marks = steps.iter().filter_map(|step| match step {
                Step::Mark(name) if name.of_over().is_none() => Some(name.as_str()),
                _ => None,
            });
            let hint = suggest(name, marks).or_else(|| Some(format!("add `- mark: {name}`")));
            let message = format!("no step of the timeline marks {name:?}");
            note(self.gathered, &node.place, message, hint);
        }
        Some(mark)
    }

    /// Which step of the timeline the mark is.
    fn place(&self, mark: &MarkName) -> Option<usize> {
        let is = |step: &Step| matches!(step, Step::Mark(name) if name == mark);
        self.known.timeline?.iter().position(is)
    }

    /// How long the timeline goes on from the mark, or from its beginning, if every step takes only the time that it
    /// is given.
    fn left(&self, mark: Option<&MarkName>) -> Option<Duration> {
        let steps = self.known.timeline?;
        let place = mark.and_then(|mark| self.place(mark)).unwrap_or(0);
        let before = steps.iter().take(place);
        let begin = before.fold(Duration::ZERO, |due, step| step.next_due(due));
        Some(Step::over(steps).saturating_sub(begin))
    }

    /// Notes a time that is as long as all that is judged.
    pub(super) fn too_long(&self, node: Option<&Node>, time: Duration, mark: Option<&MarkName>) {
        if let (Some(node), Some(left)) = (node, self.left(mark))
            && time >= left
        {
            let why = format!("only {left:?} are left to the end of the timeline");
            self.proves_nothing(node, &why, "");
        }
    }
}
