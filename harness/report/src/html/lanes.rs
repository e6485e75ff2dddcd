//! What happened on a time axis: a lane for the scenario's steps, and one for each agent on each node.

mod bars;

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{event::EventKind, names::NodeName};

pub(super) use self::bars::Bar;
use super::{axis::Scale, commands::Commands};
use crate::{
    explain::{Material, is_an_agent},
    timeline::{Happening, Kind, Story, TimelineEntry},
};

/// More lanes of agents are not drawn: those of nodes on which nothing was cut go first.
const LANES: usize = 12;
/// The axis has room for so many marks side by side; those of one kind that would cover each other are one.
const SIDE_BY_SIDE: u64 = 100;
/// A mark's words are not longer: what it stands for is below in full.
const WORDS: usize = 200;

/// All lanes of a case.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) scenario: Lane,
    pub(super) agents: Vec<(Actor, Lane)>,
    /// How many lanes of agents are not drawn.
    pub(super) left_out: usize,
}

/// Who did something, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Actor {
    pub(super) node: NodeName,
    pub(super) who: String,
}

/// What is on a lane.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) bars: Vec<Bar>,
    pub(super) marks: Vec<Mark>,
}

/// Something that happened, or some of the same kind at nearly the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) shape: Shape,
    /// When, in microseconds since the case began.
    pub(super) at_us: u64,
    /// How many there are.
    pub(super) times: usize,
    /// The first of them.
    pub(super) text: String,
    /// Its command, where that is shown.
    pub(super) command: Option<usize>,
}

/// How a mark looks, so that no colour is needed to tell one from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    Wrote,
    FullSync,
    Log,
    Failed,
    Cut,
    Step,
    Trouble,
}

impl Shape {
    /// What its mark is called by in the page, and in the legend.
    pub(super) const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::Cut, "cut", "deleted another's rules"),
        (Self::Failed, "failed", "a restore failed"),
        (Self::Log, "log", "logged a warning or worse"),
        (Self::Wrote, "wrote", "wrote rules"),
        (Self::FullSync, "full", "full sync"),
        (Self::Step, "step", "step of the scenario"),
        (Self::Trouble, "trouble", "the world failed"),
    ];

    pub(super) fn id(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(shape, ..)| *shape == self)
            .map_or("", |(_, id, _)| id)
    }

    /// What stands on traffic's strip, or around the whole, has none.
    pub(super) fn of(what: &Happening) -> Option<Self> {
        Some(match what {
            Happening::Wrote {
                full_sync: true, ..
            } => Self::FullSync,
            _ => match what.kind() {
                Kind::Wrote => Self::Wrote,
                Kind::Cut => Self::Cut,
                Kind::Failed => Self::Failed,
                Kind::Log => Self::Log,
                Kind::Step => Self::Step,
                Kind::Trouble => Self::Trouble,
                Kind::Phase | Kind::GapBegan | Kind::GapEnded => return None,
            },
        })
    }
}

impl Lanes {
    /// Of a case with that story.
    pub(super) fn of(
        material: &Material<'_>,
        story: &Story,
        scale: &Scale,
        commands: &Commands<'_>,
    ) -> Self {
        let mut scenario = Marks::default();
        let actors = actors(material).into_iter();
        let mut agents: BTreeMap<Actor, Marks> =
            actors.map(|actor| (actor, Marks::default())).collect();
        for entry in story.entries().filter(|entry| scale.shows(entry.at_us)) {
            let Some(shape) = Shape::of(&entry.what) else {
                continue;
            };
            let marks = match actor(entry) {
                Some(actor) => agents.entry(actor).or_default(),
                None => &mut scenario,
            };
            marks.add(shape, entry, scale, commands);
        }
        let mut scenario = Lane::of(scenario);
        let agents = agents.into_iter();
        let mut agents: BTreeMap<Actor, Lane> = agents
            .map(|(actor, marks)| (actor, Lane::of(marks)))
            .collect();
        for (place, bar) in bars::of(material) {
            match place {
                bars::Place::Scenario => scenario.bars.push(bar),
                bars::Place::Agent(agent, node) => {
                    let lanes = agents.iter_mut();
                    let its = lanes.filter(|(actor, _)| {
                        let at = node.as_ref().is_none_or(|node| actor.node == *node);
                        at && actor.who == agent.as_str()
                    });
                    its.for_each(|(_, lane)| lane.bars.push(bar.clone()));
                }
            }
        }
        let all = agents.len();
        let agents = drawn(agents);
        Self {
            scenario,
            left_out: all - agents.len(),
            agents,
        }
    }
}

/// The marks of a lane: what would cover each other is one. What tells most is drawn last, above the others.
#[derive(Debug, Default)]
struct Marks(BTreeMap<(Shape, u64), Mark>);

impl Marks {
    fn add(&mut self, shape: Shape, entry: &TimelineEntry, scale: &Scale, commands: &Commands<'_>) {
        let at = scale.offset(entry.at_us) * SIDE_BY_SIDE / scale.total_us();
        let mark = self.0.entry((shape, at)).or_insert_with(|| Mark {
            shape,
            at_us: entry.at_us,
            times: 0,
            text: crate::text::cut(&entry.what.to_string(), WORDS),
            command: None,
        });
        mark.times += 1;
        mark.command = mark.command.or_else(|| commands.entry(entry));
    }
}

impl Lane {
    fn of(marks: Marks) -> Self {
        Self {
            bars: Vec::new(),
            marks: marks.0.into_values().collect(),
        }
    }

    /// Whether something was taken away or went wrong.
    fn tells(&self) -> bool {
        let told = [Shape::Cut, Shape::Failed, Shape::Log];
        self.marks.iter().any(|mark| told.contains(&mark.shape))
    }
}

/// The agents that are known to be there: by a command or a log entry.
fn actors(material: &Material<'_>) -> BTreeSet<Actor> {
    let actor = |node: &NodeName, who: &str| Actor {
        node: node.clone(),
        who: who.to_owned(),
    };
    let events = material.events.iter();
    let actors = events.filter_map(|event| match &event.what {
        EventKind::Command(command) if is_an_agent(&command.who) => {
            Some(actor(&command.node, &command.who))
        }
        EventKind::Log(entry) => Some(actor(&entry.node, entry.agent.as_str())),
        _ => None,
    });
    actors.collect()
}

fn actor(entry: &TimelineEntry) -> Option<Actor> {
    Some(Actor {
        node: entry.node.clone()?,
        who: entry.who.clone(),
    })
}

/// Those that there is room for, in their order.
fn drawn(mut agents: BTreeMap<Actor, Lane>) -> Vec<(Actor, Lane)> {
    let mut nodes: Vec<(bool, NodeName)> = Vec::new();
    for (actor, lane) in &agents {
        match nodes.last_mut() {
            Some((quiet, node)) if *node == actor.node => *quiet &= !lane.tells(),
            _ => nodes.push((!lane.tells(), actor.node.clone())),
        }
    }
    nodes.sort();
    let mut room = LANES;
    let mut kept = BTreeSet::new();
    for (_, node) in nodes {
        let lanes = agents.keys().filter(|actor| actor.node == node).count();
        if lanes > room && !kept.is_empty() {
            break;
        }
        room = room.saturating_sub(lanes);
        kept.insert(node);
    }
    agents.retain(|actor, _| kept.contains(&actor.node));
    agents.into_iter().collect()
}
