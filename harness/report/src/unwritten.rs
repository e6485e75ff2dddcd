//! Of a rule that was never there: who made the chain that it was to lead to, and led nobody there.

use std::{collections::BTreeSet, fmt};

use chainbreak_model::{case::RuleQuery, names::NodeName};
use chainbreak_netfilter::{Change, ChangeKind};
use serde::Serialize;

use crate::{
    edits::{EditIndex, RuleEdit},
    presence,
};

/// A chain that nothing leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Unwritten {
    /// Who made it, by the commands.
    pub who: String,
    /// The chain.
    pub chain: String,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, chain } = self;
        write!(f, "{who} made {chain}, and never led there")
    }
}

/// Of the rule that is asked for, on a node, until it was looked for; none where several made its chain, somebody led there from any chain, or
/// what some command did is not known.
pub(crate) fn of_rule(
    index: &EditIndex<'_>,
    query: &RuleQuery,
    (node, until_us): (&NodeName, u64),
) -> Option<Unwritten> {
    let target = query.jump.as_ref()?;
    let edits = index.on(node).filter(|edit| edit.at_us <= until_us);
    let family = presence::of(query.family);
    let is_of = |it: &&Change| it.table == query.table && it.family == family;
    if edits.clone().any(RuleEdit::is_unknown) {
        return None;
    }
    let mut makers: BTreeSet<&str> = BTreeSet::new();
    for edit in edits {
        for change in edit.changes.iter().filter(is_of) {
            match &change.kind {
                ChangeKind::ChainCreated | ChangeKind::ChainDeclared if change.chain == *target => {
                    makers.insert(&edit.command.who);
                }
                ChangeKind::RuleAdded { target: to, .. }
                | ChangeKind::RuleReplaced { target: to, .. }
                    if to.as_ref() == Some(target) =>
                {
                    return None;
                }
                _ => {}
            }
        }
    }
    let mut makers = makers.into_iter();
    let who = makers.next().filter(|_| makers.next().is_none())?;
    Some(Unwritten {
        who: who.to_owned(),
        chain: target.clone(),
    })
}
