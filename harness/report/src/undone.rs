//! What somebody wrote is lost where another puts back what he had read before: legacy iptables, without a lock for all.

use std::{collections::BTreeSet, fmt, ptr};

use chainbreak_model::{event::Command, names::NodeName};
use chainbreak_netfilter::{
    Change, Family,
    replay::{Backend, OldCopy},
};
use serde::Serialize;

use crate::{
    commands::{before, old_copies},
    edits::RuleEdit,
    programs::said,
    text::clock,
};

/// An old copy of a table that was put back over what others had written since it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Undone {
    /// Who put it back.
    pub who: String,
    /// On which node.
    pub node: NodeName,
    /// Which table.
    pub table: String,
    /// When it was read.
    pub read_us: u64,
    /// When it was put back.
    pub at_us: u64,
    /// Whose writes are lost.
    pub of: BTreeSet<String>,
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who,
            node,
            table,
            read_us,
            at_us,
            of,
        } = self;
        let (read, at, of) = (clock(*read_us), clock(*at_us), said(of));
        write!(
            f,
            "{who} put back {table} on {node} at {at} as it was at {read}, without what {of} wrote since"
        )
    }
}

/// What an edit undid, and what it changed in truth, by those on its node that ended no later. None where it put back nothing that was old.
pub(crate) fn by(
    edit: &RuleEdit<'_>,
    until: &[&RuleEdit<'_>],
    own: Backend,
) -> Option<(Vec<Undone>, Option<Vec<Change>>)> {
    let copies = old_copies(own, (edit.at_us, edit.command), ended(until));
    let undone = copies.filter_map(|copy| {
        let of = writers(&copy, edit, until);
        (!of.is_empty()).then(|| Undone {
            who: edit.command.who.clone(),
            node: edit.command.node.clone(),
            table: copy.table,
            read_us: copy.read_us,
            at_us: copy.ended_us,
            of,
        })
    });
    let undone: Vec<Undone> = undone.collect();
    (!undone.is_empty()).then(|| (undone, changed(edit, until, own)))
}

/// Who else wrote a table after it was read.
fn writers(copy: &OldCopy, edit: &RuleEdit<'_>, until: &[&RuleEdit<'_>]) -> BTreeSet<String> {
    let is_there = |change: &Change| (change.family, &change.table) == (copy.family, &copy.table);
    let since = until.iter().filter(|it| {
        let is_another = !ptr::eq(it.command, edit.command);
        is_another && it.at_us > copy.read_us && it.writes() && it.changes.iter().any(is_there)
    });
    since.map(|it| it.command.who.clone()).collect()
}

/// None where not all commands can be followed.
fn changed(edit: &RuleEdit<'_>, until: &[&RuleEdit<'_>], own: Backend) -> Option<Vec<Change>> {
    let mut replay = before(own, &ended(until));
    let earlier = until.iter().filter(|it| !ptr::eq(it.command, edit.command));
    for edit in earlier.filter(|it| it.writes()) {
        replay.take(edit.ran()).ok()?;
    }
    let then = replay.clone();
    replay.take(edit.ran()).ok()?;
    let families = [Family::V4, Family::V6].into_iter();
    let changed = families.flat_map(|family| replay.changed(&then, family));
    Some(changed.collect())
}

/// The commands of edits, each with when it ended.
pub(crate) fn ended<'a>(
    edits: &[&'a RuleEdit<'a>],
) -> impl Iterator<Item = (u64, &'a Command)> + Clone {
    edits.iter().map(|edit| (edit.at_us, edit.command))
}
