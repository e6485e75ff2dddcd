//! A moment of a recorded run: the rules of a node as the commands of the case's history left them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use chainbreak_model::{
    case::Case,
    event::{Command, Event, EventKind, Phase},
    names::NodeName,
};
use chainbreak_netfilter::replay::{Backend, Doubt, Replay};
use chainbreak_report::{
    Recorded, Run,
    commands::{backend, before, ran},
    network::{Network, reroutes},
    text::{clock, count},
};

use super::{
    Known, States, asked, at_the_end,
    kept::{self, Check},
    names::Names,
};
use crate::{
    args::{Explain, LATEST},
    cases::{invalid, unknown},
    reports,
};

/// At most so many commands at work at one moment are told apart.
const AT_WORK: usize = 8;

pub(super) fn known(args: &Explain) -> Result<Known> {
    let path = args.run.clone().unwrap_or_else(|| PathBuf::from(LATEST));
    let (run, file) = reports::read(&path)?;
    let (id, recorded) = case(&run, args.case.as_deref())?;
    let history = recorded.history.events();
    let events = history.map_err(|why| invalid(why.to_string()))?;
    let at_us = moment(args.at, &events)?;
    if at_the_end::is_real_cluster(&recorded.case) {
        return at_the_end::known(args, (id, recorded), &file, (&events, at_us));
    }
    let names = Names {
        case: &recorded.case,
        events: &events,
        at_us,
        protocol: asked::protocol(args)?,
    };
    let node = node(args, &recorded.case, |_| names.node(&args.from, &args.to))?;
    let commands = commands(&events, &node);
    if commands.is_empty() {
        return Err(invalid(format!(
            "the history of {id} has no command of {node}, from which its rules could be rebuilt"
        )));
    }
    let network = Network::at(&events, &recorded.case.timeline, reroutes, &node, at_us);
    let own = backend(&recorded.case);
    let ends = names.ends(&node, &args.from, &args.to)?;
    let rebuilt = Rebuilt::of(&commands, at_us, own);
    let check = kept::check(
        reports::folder(&file),
        &recorded.artifacts,
        &node,
        own,
        &commands,
        &events,
    );
    let addresses = names.own(&node);
    let programs = at_the_end::Programs::of(args.at, recorded, &file, &node);
    let states = |network: Option<&str>| -> Result<States> {
        let with_network = rebuilt.states.iter().map(|(premise, replay)| {
            let mut dumps = replay.dumps();
            dumps.set_own(addresses.iter().copied());
            let read = network.map_or(Ok(BTreeSet::new()), |text| dumps.add(text));
            read.map_err(|why| invalid(format!("what {node} routes by cannot be read: {why}")))?;
            Ok((premise.clone(), programs.before(dumps)?))
        });
        with_network.collect()
    };
    let later = network.as_ref().and_then(|it| it.later.as_ref());
    let later = later.map(|(text, words)| anyhow::Ok((states(Some(text))?, words.clone())));
    let doubt = network.as_ref().and_then(|it| it.doubt.clone());
    let mut about = rebuilt.about(&node, &check);
    about.extend(doubt.clone());
    Ok(Known {
        ends,
        states: states(network.as_ref().map(|it| it.text))?,
        later: later.transpose()?,
        at: Some(format!("at {} s on {node} in {id}", clock(at_us))),
        about,
        sure: rebuilt.doubts.is_empty() && check.agrees && doubt.is_none(),
        among: "in the history",
    })
}

/// The case that is meant: by its id, with or without its cell, or the only one.
pub(crate) fn case<'a>(run: &'a Run, wanted: Option<&str>) -> Result<(&'a str, &'a Recorded)> {
    let ids = || run.cases.keys().map(String::as_str);
    let Some(wanted) = wanted else {
        let mut cases = run.begun();
        return match (cases.next(), cases.next()) {
            (Some((id, only)), None) => Ok((id, only)),
            (None, _) => Err(invalid("no case of the run was begun")),
            (Some((id, _)), Some(_)) => Err(invalid(format!(
                "the run has {}: say which with --case, as --case '{id}'",
                count(run.begun().count(), "case")
            ))),
        };
    };
    let cell = format!("{wanted}[");
    let fits = |id: &str| id == wanted || id.starts_with(&cell);
    let mut found = run.cases.iter().filter(|(id, _)| fits(id));
    match (found.next(), found.next()) {
        (Some((id, recorded)), None) => Ok((id, recorded)),
        (Some((one, _)), Some((other, _))) => Err(invalid(format!(
            "--case {wanted} is several: '{one}', '{other}', …"
        ))),
        (None, _) => Err(invalid(unknown(
            &format!("the run has no case {wanted}"),
            wanted,
            ids(),
        ))),
    }
}

/// The moment that is asked about: as said, else the end of the judged time, else that of the case.
pub(crate) fn moment(at: Option<Duration>, events: &[Event]) -> Result<u64> {
    let last = events.iter().map(|event| event.at_us).max().unwrap_or(0);
    let Some(at) = at else {
        let judged = |event: &&Event| matches!(event.what, EventKind::Phase(Phase::Judged));
        return Ok(events.iter().find(judged).map_or(last, |it| it.at_us));
    };
    let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
    if at_us > last {
        return Err(invalid(format!(
            "--at: the history of the case ends at {} s",
            clock(last)
        )));
    }
    Ok(at_us)
}

/// The node that is asked for, or otherwise meant.
pub(super) fn node(
    args: &Explain,
    case: &Case,
    otherwise: impl FnOnce(&[NodeName]) -> Option<NodeName>,
) -> Result<NodeName> {
    let all: Vec<NodeName> = case.cluster.node_names().collect();
    let listed = || {
        let names: Vec<&str> = all.iter().map(NodeName::as_str).collect();
        names.join(", ")
    };
    match &args.node {
        Some(node) => all
            .iter()
            .find(|it| it.as_str() == node)
            .cloned()
            .ok_or_else(|| invalid(format!("the case has no node {node}, but {}", listed()))),
        None => otherwise(&all)
            .ok_or_else(|| invalid(format!("on which node? Say it with --node: {}", listed()))),
    }
}

/// The commands that ran on a node, in the order of their ends.
pub(crate) fn commands<'a>(events: &'a [Event], node: &NodeName) -> Vec<(u64, &'a Command)> {
    let on_node = events.iter().filter_map(|event| match &event.what {
        EventKind::Command(command) if command.node == *node => Some((event.at_us, command)),
        _ => None,
    });
    let mut commands: Vec<(u64, &Command)> = on_node.collect();
    commands.sort_by_key(|it| it.0);
    commands
}

/// So many commands that ended after one are looked at.
const SIDE_BY_SIDE: usize = 16;

/// So many other orders are tried where a command cannot be followed.
const TRIED: usize = 32;

/// What could not be followed of a command, which ended then.
type Unfollowed<'a> = (u64, &'a Command, Doubt);

/// The rules that commands left on a node where there were these before, and what is left out of them. They took effect in the order of their ends, but where one
/// cannot be followed then, and all can once two that ran side by side before it have changed places.
pub(crate) fn replayed<'a>(
    begin: &Replay,
    commands: &[(u64, &'a Command)],
) -> (Replay, Vec<Unfollowed<'a>>) {
    let mut order = commands.to_vec();
    let (mut replay, mut doubts) = followed(begin, &order);
    let mut known = 0;
    while let Some(at) = doubts.get(known).map(|it| it.0) {
        let tried = swapped(&order, at).map(|other| (followed(begin, &other), other));
        let better = tried.into_iter().find(|((_, doubts), _)| {
            let next = doubts.get(known);
            next.is_none_or(|it| it.0 > at)
        });
        match better {
            Some((other, of)) => ((replay, doubts), order) = (other, of),
            None => known += 1,
        }
    }
    let unfollowed = doubts.into_iter().map(|(at, doubt)| {
        let (ended, command) = order[at];
        (ended, command, doubt)
    });
    let unfollowed = unfollowed.collect();
    (replay, unfollowed)
}

/// What commands left in this order, and which of them could not be followed.
fn followed(begin: &Replay, commands: &[(u64, &Command)]) -> (Replay, Vec<(usize, Doubt)>) {
    let mut replay = begin.clone();
    let doubt = |(at, (ended, command)): (usize, &(u64, &Command))| {
        let doubt = replay.take(ran(*ended, command)).err()?;
        Some((at, doubt))
    };
    let doubts = commands.iter().enumerate().filter_map(doubt).collect();
    (replay, doubts)
}

/// The same commands with two in each other's place that ran side by side, of different programs, not after this one: the latest first.
fn swapped<'a>(
    commands: &[(u64, &'a Command)],
    at: usize,
) -> impl Iterator<Item = Vec<(u64, &'a Command)>> {
    let beside = |first: usize, second: usize| {
        let [(ended, one), (other_ended, other)] = [commands[first], commands[second]];
        one.who != other.who && other_ended.saturating_sub(other.took_us) < ended
    };
    let last = commands.len().saturating_sub(1);
    let pairs = (0..=at).rev().flat_map(move |first| {
        let until = (first + SIDE_BY_SIDE).min(last);
        (first + 1..=until).map(move |second| (first, second))
    });
    let pairs = pairs.filter(move |(first, second)| beside(*first, *second));
    pairs.take(TRIED).map(|(first, second)| {
        let mut other = commands.to_vec();
        other[first..=second].rotate_right(1);
        other
    })
}

/// The rules at a moment.
struct Rebuilt<'a> {
    /// Of how many commands.
    commands: usize,
    /// Without and with what each command made that was at work.
    states: Vec<(Option<String>, Replay)>,
    /// What could not be followed.
    doubts: Vec<Unfollowed<'a>>,
}

impl<'a> Rebuilt<'a> {
    fn of(commands: &[(u64, &'a Command)], at_us: u64, own: Backend) -> Self {
        let over = commands.partition_point(|it| it.0 <= at_us);
        let (over, after) = commands.split_at(over);
        let begin = before(own, commands);
        let (mut replay, mut doubts) = replayed(&begin, over);
        let mut states = vec![(None, replay.clone())];
        let at_work = |it: &&(u64, &Command)| it.0.saturating_sub(it.1.took_us) < at_us;
        for (ended, command) in after.iter().filter(at_work) {
            let earlier = replay.clone();
            if let Err(doubt) = replay.take(ran(*ended, command)) {
                doubts.push((*ended, *command, doubt));
            }
            if replay != earlier && states.len() < AT_WORK {
                let what = at_work_words(*ended, command);
                if let Some((premise, _)) = states.last_mut() {
                    let not = format!("{what} had not taken effect");
                    *premise = Some(match premise.take() {
                        Some(had) => format!("{had}, and {not}"),
                        None => not,
                    });
                }
                states.push((Some(format!("{what} had taken effect")), replay.clone()));
            }
        }
        Self {
            commands: over.len(),
            states,
            doubts,
        }
    }

    fn about(&self, node: &NodeName, check: &Check) -> Vec<String> {
        let mut about = vec![format!(
            "The rules of {node} are rebuilt from the {} that had ended there; {}.",
            count(self.commands, "command"),
            check.words
        )];
        if let Some((at_us, command, doubt)) = self.doubts.first() {
            let more = match self.doubts.len() {
                1 => String::new(),
                all => format!(", and {} more", all - 1),
            };
            about.push(format!(
                "NOT SURE: what this made is not known, and left out: {} at {} s, `{}`: {doubt}{more}.",
                command.who,
                clock(*at_us),
                command.argv.join(" "),
            ));
        }
        about
    }
}

fn at_work_words(ended: u64, command: &Command) -> String {
    let program = command.argv.first().map_or("", String::as_str);
    let program = Path::new(program).file_name().unwrap_or_default();
    format!(
        "the {} of {} that ran from {} s to {} s",
        program.to_string_lossy(),
        command.who,
        clock(ended.saturating_sub(command.took_us)),
        clock(ended)
    )
}

#[cfg(test)]
mod tests {
    use chainbreak_netfilter::Family;

    use super::*;

    fn command(who: &str, took_us: u64, words: &str, input: &str) -> Command {
        Command {
            who: who.to_owned(),
            node: "n1".into(),
            argv: words.split(' ').map(str::to_owned).collect(),
            input: input.to_owned(),
            exit: 0,
            stderr: String::new(),
            took_us,
            named: Vec::new(),
        }
    }

    #[test]
    fn of_commands_that_ran_side_by_side_that_one_is_first_after_which_the_others_are_allowed() {
        let makes = command(
            "kube-proxy",
            2_000,
            "iptables -t filter -N KUBE-FORWARD",
            "",
        );
        let deletes = "*filter\n-X KUBE-FORWARD\nCOMMIT\n";
        let cleans = command("felix", 30_000, "iptables-restore --noflush", deletes);
        let left = |ends: [u64; 3]| {
            let [first, again, gone] = ends;
            let mut commands = vec![(first, &makes), (again, &makes), (gone, &cleans)];
            commands.sort_by_key(|it| it.0);
            let (replay, doubts) = replayed(&Replay::new(Backend::Legacy), &commands);
            let filter = replay.table(None, Family::V4, "filter").unwrap();
            let is_there = filter.table.chains.contains_key("KUBE-FORWARD");
            (is_there, doubts.len())
        };
        assert_eq!(left([10_000, 100_000, 110_000]), (true, 0));
        // Felix's began when the second was over already.
        assert_eq!(left([10_000, 100_000, 140_000]), (false, 1));
    }

    #[test]
    fn what_two_made_side_by_side_is_found_by_what_is_allowed_later() {
        let restore = "iptables-restore --noflush";
        let made = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n";
        let deleted = "*nat\n:KUBE-SERVICES - -\n-X KUBE-SERVICES\nCOMMIT\n";
        let writes = command("kube-proxy", 26_000, restore, made);
        let deletes = command("felix", 10_000, restore, deleted);
        let again = command("kube-proxy", 2_000, "iptables -t nat -N KUBE-SERVICES", "");
        // By their ends Felix's was first, and then the chain would be there when it is made again.
        let commands = [(410_000, &deletes), (419_000, &writes), (1_514_000, &again)];
        let (_, doubts) = replayed(&Replay::new(Backend::Legacy), &commands);
        assert_eq!(doubts.len(), 0);
    }
}
