//! What faults run in places, told before it is run.

use chainbreak_model::{
    case::{Fault, Origin},
    names::NodeName,
};

use super::{command, conntrack::TABLE, link, process::HOLD, rules, sysctl};
use crate::cluster::{Command, Place};

/// Where commands run: in a place, or on every node.
type At = Option<Place>;

/// Every command that a fault may run itself, those that undo it among them, in order. Agents are told to end, to begin and to change
/// through what the backend has for that.
pub(crate) fn orders(fault: &Fault) -> Vec<(At, Command)> {
    let (at, commands) = match fault {
        Fault::Slow { .. }
        | Fault::Agent { .. }
        | Fault::Reboot { .. }
        | Fault::Upgrade { .. }
        | Fault::Switch { .. } => (None, Vec::new()),
        Fault::Sysctl { at, set } => {
            let paths = set.keys().map(|name| sysctl::path(name));
            let commands =
                paths.flat_map(|path| [command(&["cat", &path]), command(&["tee", &path])]);
            (of(at.as_ref()), commands.collect())
        }
        Fault::FillConntrack { node, .. } => {
            let reads = TABLE.map(|name| command(&["cat", &sysctl::path(name)]));
            let commands = reads.into_iter().chain([Command::Probe]);
            (on(node.as_ref()), commands.collect())
        }
        Fault::LinkDown { at, interface } => (of(Some(at)), undone_by_ip(&link::down(interface))),
        Fault::Mtu {
            at,
            interface,
            bytes,
        } => {
            let bytes = bytes.to_string();
            (of(Some(at)), undone_by_ip(&link::resize(interface, &bytes)))
        }
        Fault::Route { at, to, via, dev } => {
            let route = link::written(to, *via, dev.as_deref());
            let reroute = link::reroute(to, *via, &route);
            let unroute = command(&link::unroute(&reroute[0], &route));
            let commands = undone_by_ip(&reroute).into_iter().chain([unroute]);
            (of(Some(at)), commands.collect())
        }
        Fault::Loss { at, share } => {
            let lose = rules::LOSING.into_iter();
            let lose = lose.flat_map(|program| rules::lose(program, *share));
            let lose = lose.map(|argv| command(&argv));
            let commands = [command(&rules::HAS_V6)].into_iter().chain(lose);
            (of(Some(at)), commands.collect())
        }
        Fault::Lock { node } => (on(node.as_ref()), vec![command(&["sh", "-c", HOLD])]),
        Fault::Craft(craft) => (of(craft.from.as_ref()), vec![Command::Probe]),
        Fault::Run(run) => (of(run.at.as_ref()), vec![command(&run.argv)]),
        Fault::Flush { node, rules, chain } => {
            let flush = rules::flush(rules, chain.as_deref());
            (on(node.as_ref()), vec![command(&flush)])
        }
        Fault::DeleteRule {
            node, rules, chain, ..
        } => {
            let list_and_delete = rules::list_and_delete(rules, chain);
            let commands = list_and_delete.map(|argv| command(&argv));
            (on(node.as_ref()), commands.to_vec())
        }
    };
    commands.into_iter().map(|it| (at.clone(), it)).collect()
}

fn of(at: Option<&Origin>) -> At {
    at.map(Place::from)
}

fn on(node: Option<&NodeName>) -> At {
    node.cloned().map(Place::Node)
}

fn undone_by_ip(argvs: &[Vec<&str>]) -> Vec<Command> {
    let commands = argvs.iter().map(|argv| command(argv));
    commands.chain([command(&link::BATCH)]).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use chainbreak_model::case::{Entries, Family, Run, TableRef};

    use super::{super::Faults, *};
    use crate::{
        fake::{Commands, Fake},
        log::EventLog,
    };

    fn at() -> Origin {
        Origin::Node("n1".into())
    }

    /// Each fault that changes settings or links, with what its commands are answered by.
    fn of_settings() -> [(Fault, &'static str); 5] {
        let interface = || "eth0".to_owned();
        let set = [("net.ipv4.ip_forward".to_owned(), "1".to_owned())];
        let set = Fault::Sysctl {
            at: None,
            set: set.into_iter().collect(),
        };
        let down = Fault::LinkDown {
            at: at(),
            interface: interface(),
        };
        let mtu = Fault::Mtu {
            at: at(),
            interface: interface(),
            bytes: 1400,
        };
        let route = || Fault::Route {
            at: at(),
            to: "fd00::/64".to_owned(),
            via: None,
            dev: Some(interface()),
        };
        [
            (set, "1"),
            (down, ""),
            (mtu, "1: eth0: <UP> mtu 1500"),
            (route(), ""),
            (route(), "fd00::/64 dev eth1"),
        ]
    }

    /// The same of what is done to packets and rules.
    fn of_packets() -> [(Fault, &'static str); 6] {
        let rules = || TableRef {
            backend: None,
            family: Family::Ip,
            table: "nat".to_owned(),
        };
        let fill = Fault::FillConntrack {
            node: None,
            entries: Entries::Full,
        };
        let loss = Fault::Loss {
            at: at(),
            share: 30.0,
        };
        let run = Fault::Run(Run {
            at: None,
            who: "istio".to_owned(),
            argv: ["sh", "-c", "iptables -N ISTIO"]
                .map(str::to_owned)
                .to_vec(),
        });
        let flush = Fault::Flush {
            node: None,
            rules: rules(),
            chain: None,
        };
        let delete = Fault::DeleteRule {
            node: None,
            rules: rules(),
            chain: "PREROUTING".to_owned(),
            matches: "SERVICES".to_owned(),
        };
        [
            (fill, "1"),
            (loss, "0"),
            (Fault::Lock { node: None }, "held"),
            (run, ""),
            (flush, ""),
            (delete, "-A PREROUTING -j KUBE-SERVICES"),
        ]
    }

    #[tokio::test]
    async fn what_a_fault_runs_is_what_it_was_said_to_run() {
        for (fault, answer) in of_settings().into_iter().chain(of_packets()) {
            let fake = Fake {
                // Whoever is told something reads it.
                commands: Commands::Shell(
                    format!("echo '{answer}'; cat >/dev/null"),
                    Duration::ZERO,
                ),
                ..Fake::default()
            };
            let (fake, cluster) = fake.cluster();
            let (log, _events) = EventLog::new();
            let mut injected = Faults::new(&cluster, 0, &log);
            let done = injected.inject(&fault, None).await;
            assert!(done.is_ok(), "{fault:?}: {done:?}");
            injected.heal_all().await;
            let said = orders(&fault).into_iter().map(|(_, it)| match it {
                Command::Argv(argv) => argv.join(" "),
                Command::Probe => "probe".to_owned(),
            });
            let (ran, said): (BTreeSet<String>, BTreeSet<String>) =
                (fake.asked().into_iter().collect(), said.collect());
            // A route is set back in one of two ways.
            let untold: Vec<&String> = ran.difference(&said).collect();
            assert!(
                untold.is_empty() && !ran.is_empty(),
                "{fault:?}: {untold:?} of {said:?}"
            );
        }
    }
}
