//! What somebody wrote is lost where another puts back what he had read before: legacy iptables, without a lock for all.

use std::{collections::BTreeSet, fmt, ptr};

use chainbreak_model::names::NodeName;
use chainbreak_netfilter::{
    Change, Order, diff,
    replay::{Backend, OldCopy},
};
use serde::Serialize;

use crate::{
    commands::{before, legacy},
    edits::{RuleEdit, ended},
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

/// What an edit undid that put back this copy, and what it changed in truth, by those on its node that ended no later. None where nothing is lost
/// by it, and where that is not known.
pub(crate) fn by(
    edit: &RuleEdit<'_>,
    copy: OldCopy,
    until: &[&RuleEdit<'_>],
    own: Backend,
) -> Option<(Undone, Vec<Change>)> {
    let mut then = before(own, &ended(until));
    let earlier = until.iter().filter(|it| !ptr::eq(it.command, edit.command));
    for edit in earlier.filter(|it| it.writes()) {
        then.take(edit.ran()).ok()?;
    }
    let (mut kept, mut put_back) = (then.clone().with([]), then.clone());
    kept.take(edit.ran()).ok()?;
    put_back.take(edit.ran()).ok()?;
    let of = writers(&copy, edit, until, own);
    if kept == put_back || of.is_empty() {
        return None;
    }
    let [then, now] = [&then, &put_back].map(|it| it.ruleset(Backend::Legacy, copy.family));
    let changes = diff(copy.family, &then, &now, Order::Kept);
    let undone = Undone {
        who: edit.command.who.clone(),
        node: edit.command.node.clone(),
        of,
        table: copy.table,
        read_us: copy.read_us,
        at_us: copy.ended_us,
    };
    Some((undone, changes))
}

/// Who else wrote a table after it was read.
fn writers(
    copy: &OldCopy,
    edit: &RuleEdit<'_>,
    until: &[&RuleEdit<'_>],
    own: Backend,
) -> BTreeSet<String> {
    let is_there = |change: &Change| (change.family, &change.table) == (copy.family, &copy.table);
    let since = until.iter().filter(|it| {
        let is_another = !ptr::eq(it.command, edit.command);
        let is_one = is_another && it.at_us > copy.read_us;
        is_one && legacy(it.command, own).is_some() && it.changes.iter().any(is_there)
    });
    since.map(|it| it.command.who.clone()).collect()
}
