//! `timeline:`.

use std::{collections::BTreeSet, time::Duration};

mod agents;
mod faults;

use super::{
    Reader, cluster,
    fields::{Fields, duration, entries, items, note, number, text, word},
    manifests::{Manifests, kinds},
    name,
    traffic::World,
    words,
};
use crate::{
    case::{Step, Versions},
    diagnostic::{Gathered, Place},
    names::MarkName,
    nearest::suggest,
    yaml::{Entry, Node},
};

/// A step takes at most an hour: longer is a mistake more often than a wish.
const STEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));
/// As many as a large Deployment has.
const REPLICAS: (u64, u64) = (0, 1000);

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
            .map(|item| self.named_step(item, &mut there))
            .collect();
        let steps: Option<Vec<Vec<Step>>> = steps.into_iter().collect();
        steps.map(|steps| steps.concat())
    }

    /// A step; one with a name stands between the marks of its beginning and of its end.
    fn named_step(&self, node: &Node, there: &mut There<'_>) -> Option<Vec<Step>> {
        let gathered = self.gathered;
        let given = node.get(words::STEP_NAME);
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
        let gathered = self.gathered;
        let what = "a step of the timeline";
        let (word, entry) = only_entry(gathered, node, what, words::STEPS, &[words::STEP_NAME])?;
        let (node, world) = (&entry.node, there.world);
        match word {
            "settle" => duration(gathered, node, "settle", STEP).map(Step::Settle),
            "mark" => name(gathered, node, "a mark").map(|name| Step::Mark(name.into())),
            "churn" => churn(gathered, node, world),
            "felix" => felix(gathered, entry, there),
            "upgrade" => agents::upgrade(gathered, node, there),
            "switch" => agents::switch(gathered, node, there),
            "apply" => {
                let applied = self.manifests(Some(node));
                let objects = applied.objects();
                there.applied.push(applied);
                Some(Step::Apply(objects))
            }
            "delete" => delete(gathered, node, there),
            fault => faults::read(gathered, fault, node, world),
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

fn felix(gathered: &Gathered, entry: &Entry, there: &mut There<'_>) -> Option<Step> {
    needs_felix(gathered, &entry.key, there.world);
    let spec = cluster::felix_spec(gathered, &entry.node)?;
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
    let fields = Fields::of(gathered, node, "delete", words::DELETE)?;
    let kinds: Vec<_> = kinds().map(|kind| (kind, kind)).collect();
    let kind = fields.need("kind", |node| word(gathered, node, "kind", &kinds));
    let namespace = fields.or("namespace", "default", |node| {
        text(gathered, node, "namespace")
    });
    let name = fields.need("name", |node| text(gathered, node, "name"));
    let (kind, namespace, name) = (kind?, namespace?, name?);
    let all = || std::iter::once(there.world.manifests).chain(&there.applied);
    let found = all().find_map(|known| known.refer(kind, Some(namespace), name));
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

/// The one entry of a mapping that says by its key what it is, `beside` others.
pub(super) fn only_entry<'a>(
    gathered: &Gathered,
    node: &'a Node,
    what: &str,
    known: &[&'static str],
    beside: &[&str],
) -> Option<(&'static str, &'a Entry)> {
    let entries = entries(gathered, node, what)?;
    let mut entries = entries
        .iter()
        .filter(|(word, _)| !beside.contains(&word.as_str()));
    let (first, second) = (entries.next(), entries.next());
    let (Some((word, entry)), None) = (first, second) else {
        let second = second.map_or(&node.place, |(_, entry)| &entry.key);
        let message = format!("{what} is exactly one of {}", known.join(", "));
        note(gathered, second, message, None);
        return None;
    };
    let found = known.iter().find(|known| *known == word);
    if found.is_none() {
        let hint = suggest(word, known.iter().copied());
        note(
            gathered,
            &entry.key,
            format!("{what} cannot be {word:?}"),
            hint,
        );
    }
    Some((*found?, entry))
}

fn churn(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Step> {
    let fields = Fields::of(gathered, node, "churn", words::CHURN)?;
    let deployment = fields.need("deployment", |node| deployment(gathered, node, world));
    let replicas = fields.need("replicas", |node| {
        let items = items(gathered, node, "replicas")?;
        if items.is_empty() {
            note(gathered, &node.place, "churn needs a replica count", None);
        }
        let counts: Vec<Option<u32>> = items
            .iter()
            .map(|item| number(gathered, item, "replicas", REPLICAS))
            .collect();
        counts.into_iter().collect::<Option<Vec<u32>>>()
    });
    let every = fields.need("every", |node| duration(gathered, node, "every", STEP));
    let length = fields.need("for", |node| duration(gathered, node, "for", STEP));
    let (namespace, deployment) = deployment?;
    Some(Step::Churn {
        namespace,
        deployment,
        replicas: replicas?,
        every: every?,
        duration: length?,
    })
}

fn deployment(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<(String, String)> {
    let written = text(gathered, node, "deployment")?;
    let Some((namespace, name)) = written.split_once('/') else {
        let hint = format!("write NAMESPACE/NAME, as in default/{written}");
        note(
            gathered,
            &node.place,
            format!("{written:?} names no Deployment"),
            Some(hint),
        );
        return None;
    };
    if !world.manifests.has("Deployment", namespace, name) && world.manifests.is_complete() {
        let known = world.manifests.names("Deployment");
        let hint = suggest(written, known.iter().map(String::as_str));
        note(
            gathered,
            &node.place,
            format!("unknown deployment {written:?}"),
            hint,
        );
        return None;
    }
    Some((namespace.to_owned(), name.to_owned()))
}
