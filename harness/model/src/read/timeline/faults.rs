//! Steps that do something to the cluster.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a table's function takes any lifetime, a method's path has one"
)]

mod agent;
mod craft;
mod kernel;
mod network;
mod others;

use super::{
    super::{
        fields::{Fields, duration, text},
        traffic::{World, cluster_node, place},
    },
    LENGTH, Read, Word,
};
use crate::{
    case::{Fault, Origin, Step},
    language::{Field, Kind, Mapping, optional},
    names::NodeName,
    yaml::Node,
};
pub(crate) use agent::TAKING_CHANGES;

/// A fault that is being read.
pub(super) struct Reading<'a> {
    pub(super) fields: Fields<'a>,
    pub(super) world: &'a World<'a>,
}

/// What happens to agents.
pub(super) fn of_agents() -> impl Iterator<Item = &'static Word> {
    agent::STEPS.iter()
}

/// What happens to kernels and to packets, and what third parties do.
pub(super) fn of_nodes() -> impl Iterator<Item = &'static Word> {
    let packets = network::STEPS.iter().chain(&craft::STEPS);
    kernel::STEPS.iter().chain(packets).chain(&others::STEPS)
}

const fn fault(
    word: &'static str,
    mapping: &'static Mapping,
    doc: &'static str,
    read: fn(&Reading<'_>) -> Option<Step>,
) -> Word {
    Word {
        field: optional(word, Kind::Fields(mapping), doc),
        read: Read::Fault(mapping, read),
    }
}

const FOR: Field = optional(
    "for",
    Kind::Time,
    "How long; until the timeline is over when not given.",
);

/// The step of what nothing undoes.
fn done(fault: Option<Fault>) -> Option<Step> {
    Some(Step::Fault {
        fault: fault?,
        duration: None,
    })
}

impl Reading<'_> {
    /// The step of a fault that lasts.
    fn lasting(&self, fault: Option<Fault>) -> Option<Step> {
        let length = self.fields.maybe("for", |node| {
            duration(self.fields.gathered, node, "for", LENGTH)
        });
        Some(Step::Fault {
            fault: fault?,
            duration: length?,
        })
    }

    /// `node:`; the inner `None` is every node.
    #[expect(
        clippy::option_option,
        reason = "every node and a mistake are different"
    )]
    fn node(&self) -> Option<Option<NodeName>> {
        let gathered = self.fields.gathered;
        self.fields.maybe("node", |node| {
            let name = text(gathered, node, "node")?;
            cluster_node(gathered, node, self.world, name)
        })
    }

    fn place(&self, node: &Node) -> Option<Origin> {
        place(
            self.fields.gathered,
            node,
            self.world,
            "nothing can happen at",
        )
    }
}
