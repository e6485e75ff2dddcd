//! `timeline:`.

use std::{collections::BTreeSet, time::Duration};

mod agents;
mod churn;
mod faults;

pub(crate) use faults::TAKING_CHANGES;

use super::{
    Reader, cluster,
    fields::{Fields, duration, entries, items, note, text, word},
    manifests::{Manifests, kinds},
    name,
    traffic::World,
};
use crate::{
    case::{Step, Versions},
    diagnostic::{Gathered, Place},
    language::{Choice, Field, Kind, Mapping, default, needed, optional, words},
    names::MarkName,
    nearest::suggest,
    yaml::{Entry, Node},
};

/// A step of the timeline.
pub(super) static STEP: Choice = Choice {
    called: "a step of the timeline",
    doc: "What happens next. What has a `for` lasts so long from when it is there, and the next steps happen meanwhile; without it a fault holds until the timeline is over. Where a node or a place may be left out, it is every node.",
    words: || steps().map(|step| &step.field).collect(),
    beside: &[
        optional(
            NAME,
            Kind::Name,
            "Names the step, so that promises can say `during` and `after` it; for steps that have an end of their own.",
        ),
        optional(
            AT,
            Kind::Time,
            "Begins so long after the first step began, and not when the one before it is over; those before it take no longer.",
        ),
    ],
};

/// What names a step, beside what it does.
const NAME: &str = "name";
/// When it begins.
const AT: &str = "at";

/// A word that a step can be, and its reader.
struct Word {
    field: Field,
    read: Read,
}

/// How a step is read.
enum Read {
    /// Of its entry.
    Step(fn(&Reader<'_>, &Entry, &mut There<'_>) -> Option<Step>),
    /// What happens to the cluster, of its fields.
    Fault(&'static Mapping, fn(&faults::Reading<'_>) -> Option<Step>),
}

const fn step(
    word: &'static str,
    kind: Kind,
    doc: &'static str,
    read: fn(&Reader<'_>, &Entry, &mut There<'_>) -> Option<Step>,
) -> Word {
    Word {
        field: optional(word, kind, doc),
        read: Read::Step(read),
    }
}

/// All words, in the order in which they are documented.
fn steps() -> impl Iterator<Item = &'static Word> {
    let of_agents = faults::of_agents().chain(&agents::STEPS);
    STEPS.iter().chain(of_agents).chain(faults::of_nodes())
}

static STEPS: [Word; 8] = [
    step(
        "settle",
        Kind::Time,
        "Let things be for so long.",
        |reader, entry, _| {
            duration(reader.gathered, &entry.node, "settle", LENGTH).map(Step::Settle)
        },
    ),
    step(
        "mark",
        Kind::Name,
        "Give this moment a name, once; promises can refer to it.",
        |reader, entry, _| {
            let name = name(reader.gathered, &entry.node, "a mark");
            name.map(|name| Step::Mark(name.into()))
        },
    ),
    step(
        "churn",
        Kind::Fields(&churn::CHURN),
        "Scale a Deployment through replica counts, over and over.",
        |reader, entry, there| churn::read(reader.gathered, &entry.node, there.world),
    ),
    step(
        "rollout",
        churn::NAMED,
        "Wait until all pods of this Deployment are of its newest template and Ready, and no other is there.",
        |reader, entry, there| churn::rollout(reader.gathered, &entry.node, there.world),
    ),
    step(
        "felix",
        Kind::Felix,
        "Merge this into FelixConfiguration `default`'s spec.",
        felix,
    ),
    step(
        "apply",
        Kind::NonEmpty(&Kind::Any(&[Kind::Text, Kind::Object])),
        "Apply objects: files beside the scenario, or objects written here.",
        |reader, entry, there| Some(apply(reader, entry, there)),
    ),
    step(
        "delete",
        Kind::Fields(&DELETE),
        "Delete an object that was declared, or applied before.",
        |reader, entry, there| delete(reader.gathered, &entry.node, there),
    ),
    step(
        "api",
        Kind::Word(|| words(&API)),
        "`move`: the endpoint of the Service `kubernetes` ends, with its connections, and another one takes its place; who asks the API `direct` notices nothing.",
        |reader, entry, _| word(reader.gathered, &entry.node, "api", &API).map(|()| Step::MoveApi),
    ),
];

const API: [(&str, ()); 1] = [("move", ())];

static DELETE: Mapping = Mapping {
    called: "delete",
    doc: "",
    fields: &[&[
        needed(
            "kind",
            Kind::Word(|| kinds().collect()),
            "As in its manifest.",
        ),
        default("namespace", Kind::Text, "default", "Its namespace."),
        needed("name", Kind::Text, "Its name."),
    ]],
};

/// A step takes at most an hour: longer is a mistake more often than a wish.
const LENGTH: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));
/// As many as a large Deployment has.
pub(super) const REPLICAS: (u64, u64) = (0, 1000);

impl Reader<'_> {
    /// Reads `timeline:`.
    pub(super) fn timeline(&self, node: &Node, world: &World<'_>) -> Option<Vec<Step>> {
        let gathered = self.gathered;
        let items = items(gathered, node, "timeline")?;
        if items.is_empty() {
            let message = "the timeline needs a step: promises are judged while it runs";
            note(
                gathered,
                &node.place,
                message,
                Some("write `- settle: 5s`".into()),
            );
        }
        let mut there = There::begins(world);
        let steps: Vec<Option<Vec<Step>>> = items
            .iter()
            .map(|item| self.timed_step(item, &mut there))
            .collect();
        let steps: Option<Vec<Vec<Step>>> = steps.into_iter().collect();
        steps.map(|steps| steps.concat())
    }

    /// A step; one with a time is waited for.
    fn timed_step(&self, node: &Node, there: &mut There<'_>) -> Option<Vec<Step>> {
        let gathered = self.gathered;
        let given = node.get(AT);
        let time = given.map(|at| (at, duration(gathered, at, AT, LENGTH)));
        let steps = self.named_step(node, there);
        let before = there.due;
        let steps = match time {
            None => steps?,
            Some((at, time)) => {
                let time = time?;
                if time < before {
                    let message = format!("the steps before it take {before:?}");
                    note(gathered, &at.place, message, None);
                }
                [vec![Step::At(time)], steps?].concat()
            }
        };
        there.due = steps.iter().fold(before, |due, step| step.next_due(due));
        Some(steps)
    }

    /// A step; one with a name stands between the marks of its beginning and of its end.
    fn named_step(&self, node: &Node, there: &mut There<'_>) -> Option<Vec<Step>> {
        let gathered = self.gathered;
        let given = node.get(NAME);
        let given = given.map(|node| (node, name(gathered, node, "a step")));
        let step = self.step(node, there)?;
        let Some((at, name)) = given else {
            if let Step::Mark(name) = &step {
                there.marks(gathered, &node.place, name.clone());
            }
            return Some(vec![step]);
        };
        let name = MarkName::from(name?);
        if goes_on(&step) {
            let message =
                "what the step does goes on beside the next ones: it has no end of its own";
            let hint = "put `- mark: NAME` before it, and another one where it is over";
            note(gathered, &at.place, message, Some(hint.into()));
        } else if matches!(step, Step::Mark(_)) {
            note(gathered, &at.place, "a mark is a name already", None);
        }
        there.marks(gathered, &at.place, name.clone());
        let over = Step::Mark(name.over());
        Some(vec![Step::Mark(name), step, over])
    }

    fn step(&self, node: &Node, there: &mut There<'_>) -> Option<Step> {
        let known: Vec<&Word> = steps().collect();
        let (word, entry) = only_entry(self.gathered, node, &STEP)?;
        match known.get(word)?.read {
            Read::Step(read) => read(self, entry, there),
            Read::Fault(mapping, read) => {
                let fields = Fields::of(self.gathered, &entry.node, mapping)?;
                let world = there.world;
                read(&faults::Reading { fields, world })
            }
        }
    }
}

/// Whether what a step does outlasts it.
fn goes_on(step: &Step) -> bool {
    match step {
        Step::Fault {
            duration: Some(_), ..
        } => true,
        Step::Fault { fault, .. } => fault.lasts(),
        _ => false,
    }
}

/// What steps can refer to: the declared objects, those that earlier steps have applied, and what earlier steps have
/// left.
struct There<'a> {
    world: &'a World<'a>,
    applied: Vec<Manifests>,
    marks: BTreeSet<MarkName>,
    /// When the next one is due at the earliest, counted from the beginning of the first.
    due: Duration,
    /// Empty when the cluster could not be read.
    versions: Versions,
    /// FelixConfiguration's `bpfEnabled`; `None` when it cannot be known.
    bpf: Option<bool>,
}

impl<'a> There<'a> {
    fn begins(world: &'a World<'a>) -> Self {
        let cluster = world.cluster;
        Self {
            world,
            applied: Vec::new(),
            marks: BTreeSet::new(),
            due: Duration::ZERO,
            versions: cluster.map(Versions::of).unwrap_or_default(),
            bpf: cluster.and_then(|cluster| match cluster.felix.get(agents::BPF) {
                Some(value) => value.as_bool(),
                None => Some(false),
            }),
        }
    }

    /// A mark is one moment.
    fn marks(&mut self, gathered: &Gathered, place: &Place, name: MarkName) {
        if self.marks.contains(&name) {
            let message = format!("{:?} is marked already", name.as_str());
            note(gathered, place, message, None);
        }
        self.marks.insert(name);
    }
}

fn apply(reader: &Reader<'_>, entry: &Entry, there: &mut There<'_>) -> Step {
    let applied = reader.manifests(Some(&entry.node));
    let objects = applied.objects();
    there.applied.push(applied);
    Step::Apply(objects)
}

fn felix(reader: &Reader<'_>, entry: &Entry, there: &mut There<'_>) -> Option<Step> {
    let gathered = reader.gathered;
    needs_felix(gathered, &entry.key, there.world);
    let spec = cluster::calico::felix_spec(gathered, &entry.node)?;
    if let Some(value) = spec.get(agents::BPF) {
        there.bpf = value.as_bool();
    }
    Some(Step::Felix(spec))
}

fn needs_felix(gathered: &Gathered, place: &Place, world: &World<'_>) {
    if world
        .cluster
        .is_some_and(|cluster| cluster.calico.is_none())
    {
        note(gathered, place, "there is no Felix without calico", None);
    }
}

fn delete(gathered: &Gathered, node: &Node, there: &There<'_>) -> Option<Step> {
    let fields = Fields::of(gathered, node, &DELETE)?;
    let kinds: Vec<_> = kinds().map(|kind| (kind, kind)).collect();
    let kind = fields.need("kind", |node| word(gathered, node, "kind", &kinds));
    let namespace = fields.or_default("namespace", |node| {
        text(gathered, node, "namespace").map(str::to_owned)
    });
    let name = fields.need("name", |node| text(gathered, node, "name"));
    let (kind, namespace, name) = (kind?, namespace?, name?);
    let all = || std::iter::once(there.world.manifests).chain(&there.applied);
    let found = all().find_map(|known| known.refer(kind, Some(&namespace), name));
    if let Some(object) = found {
        return Some(Step::Delete(object));
    }
    if all().all(Manifests::is_complete) {
        let known: Vec<String> = all().flat_map(|known| known.names(kind)).collect();
        let written = format!("{namespace}/{name}");
        let hint = suggest(&written, known.iter().map(String::as_str));
        let message = format!("unknown {kind} {written:?}");
        note(gathered, &node.place, message, hint);
    }
    None
}

/// The one entry of a mapping that says by its key which of the choice's words it is: that word's number, and the entry.
pub(super) fn only_entry<'a>(
    gathered: &Gathered,
    node: &'a Node,
    choice: &Choice,
) -> Option<(usize, &'a Entry)> {
    let what = choice.called;
    let known: Vec<&str> = (choice.words)().iter().map(|field| field.word).collect();
    let beside = |word: &String| choice.beside.iter().any(|field| field.word == word);
    let entries = entries(gathered, node, what)?;
    let mut entries = entries.iter().filter(|(word, _)| !beside(word));
    let (first, second) = (entries.next(), entries.next());
    let (Some((word, entry)), None) = (first, second) else {
        let second = second.map_or(&node.place, |(_, entry)| &entry.key);
        let message = format!("{what} is exactly one of {}", known.join(", "));
        note(gathered, second, message, None);
        return None;
    };
    let found = known.iter().position(|known| known == word);
    if found.is_none() {
        let hint = suggest(word, known.iter().copied());
        note(
            gathered,
            &entry.key,
            format!("{what} cannot be {word:?}"),
            hint,
        );
    }
    Some((found?, entry))
}
