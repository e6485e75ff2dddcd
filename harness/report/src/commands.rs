//! The commands of a node, as its rules are rebuilt from them.

use chainbreak_model::{
    case::{Case, IptablesVariant},
    event::Command,
};
use chainbreak_netfilter::{
    Family, Invocation,
    replay::{Backend, OldCopy, Ran, Replay},
};

/// What a program may take from its start until it has read a table, in microseconds, on a busy machine.
const BEGINS_US: u64 = 50_000;

/// What `iptables` without a backend in its name means on the nodes of a case.
pub fn backend(case: &Case) -> Backend {
    match case.cluster.iptables {
        IptablesVariant::Legacy => Backend::Legacy,
        IptablesVariant::Nft => Backend::Nft,
    }
}

/// A command that ended then, as the rules are rebuilt from it.
pub fn ran(ended_us: u64, command: &Command) -> Ran<'_> {
    Ran {
        argv: &command.argv,
        input: &command.input,
        exit: command.exit,
        stderr: &command.stderr,
        ended_us,
    }
}

/// The rules before the first command of a node, to be rebuilt from these, each with when it ended, in that order.
pub fn before(own: Backend, commands: &[(u64, &Command)]) -> Replay {
    let copies = commands
        .iter()
        .filter_map(|ran| old_copy(own, *ran, commands));
    Replay::new(own).with(copies)
}

/// What a command of legacy iptables read before others wrote, and put back. Of one table: of several each is read when the one before it was
/// put back, which nobody saw. Where others were at work when it was given its line it may have waited for them, with the same lock.
pub(crate) fn old_copy(
    own: Backend,
    (ended_us, command): (u64, &Command),
    commands: &[(u64, &Command)],
) -> Option<OldCopy> {
    let named = command.named.first()?;
    let tables = command.input.lines().filter(|line| line.starts_with('*'));
    let family = legacy(command, own).filter(|_| tables.count() == 1)?;
    let given_us = ended_us.saturating_sub(named.before_us);
    let from = commands.partition_point(|it| it.0 < given_us);
    let until = commands.partition_point(|it| it.0 < ended_us);
    let mut read_us = given_us + BEGINS_US;
    let mut is_old = false;
    for (other_ended_us, other) in commands.get(from..until)? {
        if legacy(other, own).is_none() {
            continue;
        }
        if other_ended_us.saturating_sub(other.took_us) <= read_us {
            read_us = read_us.max(*other_ended_us);
        } else {
            is_old = true;
        }
    }
    is_old.then(|| OldCopy {
        read_us,
        ended_us,
        family,
        table: named.table.clone(),
    })
}

/// Which family's tables of legacy iptables a command writes.
pub(crate) fn legacy(command: &Command, own: Backend) -> Option<Family> {
    let family = match Invocation::parse(&command.argv).ok()? {
        Invocation::Single { family, .. } => family,
        Invocation::Restore { family, test, .. } if !test => family,
        Invocation::Restore { .. } | Invocation::NoChange => return None,
    };
    (Backend::of(&command.argv, own) == Backend::Legacy).then_some(family)
}
