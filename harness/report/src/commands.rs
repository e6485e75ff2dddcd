//! The commands of a node, as its rules are rebuilt from them.

use chainbreak_model::{
    case::{Case, IptablesVariant},
    event::Command,
};
use chainbreak_netfilter::{
    Family,
    replay::{Backend, OldCopy, Ran, Replay},
};

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

/// The rules before the first command of a node, to be rebuilt from these, each with when it ended.
pub fn before<'a>(
    own: Backend,
    commands: &(impl Iterator<Item = (u64, &'a Command)> + Clone),
) -> Replay {
    let late = commands.clone().filter(|(_, it)| !it.named.is_empty());
    let copies = late.flat_map(|(ended_us, command)| {
        let beside = commands.clone();
        old_copies(own, (ended_us, command), beside)
    });
    Replay::new(own).with(copies.collect::<Vec<_>>())
}

/// What a command of legacy iptables read before it ended. One that was at work when it was given its line may have had the lock for which
/// it waited.
pub(crate) fn old_copies<'a>(
    own: Backend,
    (ended_us, command): (u64, &'a Command),
    others: impl Iterator<Item = (u64, &'a Command)> + Clone,
) -> impl Iterator<Item = OldCopy> {
    let named = command.named.iter();
    let named = named.filter(move |_| is_legacy(command, own));
    named.map(move |named| {
        let given_us = ended_us.saturating_sub(named.before_us);
        let before = others.clone().filter(|(ended, other)| {
            let began = ended.saturating_sub(other.took_us);
            began < given_us && (given_us..ended_us).contains(ended) && is_legacy(other, own)
        });
        let program = command.argv.first().map_or("", String::as_str);
        OldCopy {
            read_us: before.map(|it| it.0).fold(given_us, u64::max),
            ended_us,
            family: if program.contains("ip6tables") {
                Family::V6
            } else {
                Family::V4
            },
            table: named.table.clone(),
        }
    })
}

/// Whether a command writes tables of legacy iptables.
fn is_legacy(command: &Command, own: Backend) -> bool {
    let program = command.argv.first().map_or("", String::as_str);
    program.contains("-legacy") || own == Backend::Legacy && !program.contains("-nft")
}
