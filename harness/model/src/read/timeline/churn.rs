//! `churn` and `rollout`: a Deployment that is scaled over and over, and one that is waited for.

use super::{
    super::{
        fields::{Fields, duration, items, note, number, text},
        traffic::World,
    },
    LENGTH, REPLICAS,
};
use crate::{
    case::Step,
    diagnostic::Gathered,
    language::{Kind, Mapping, needed},
    nearest::suggest,
    yaml::Node,
};

/// How a Deployment is named.
pub(super) const NAMED: Kind = Kind::Form("^[^/]+/[^/]+$", "test/nginx");

pub(super) static CHURN: Mapping = Mapping {
    called: "churn",
    doc: "",
    fields: &[&[
        needed("deployment", NAMED, "NAMESPACE/NAME."),
        needed(
            "replicas",
            Kind::NonEmpty(&Kind::Whole(REPLICAS.0, REPLICAS.1)),
            "Replica counts, taken in turn.",
        ),
        needed("every", Kind::Time, "Distance of two changes."),
        needed("for", Kind::Time, "How long."),
    ]],
};

pub(super) fn read(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Step> {
    let fields = Fields::of(gathered, node, &CHURN)?;
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
    let every = fields.need("every", |node| duration(gathered, node, "every", LENGTH));
    let length = fields.need("for", |node| duration(gathered, node, "for", LENGTH));
    let (namespace, deployment) = deployment?;
    Some(Step::Churn {
        namespace,
        deployment,
        replicas: replicas?,
        every: every?,
        duration: length?,
    })
}

pub(super) fn rollout(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Step> {
    let (namespace, deployment) = deployment(gathered, node, world)?;
    Some(Step::Rollout {
        namespace,
        deployment,
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
