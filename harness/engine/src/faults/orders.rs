//! What faults run in places, told before it is run.

use chainbreak_model::{
    case::{Fault, Origin},
    names::NodeName,
};

use super::{conntrack::TABLE, link, process::HOLD, rules, sysctl};
use crate::cluster::{Command, Place};

/// Where commands run: in a place, or on every node.
type At = Option<Place>;

/// Every command that a fault may run itself, those that undo it among them, in order. Agents are told to end, to begin and to change
/// through what the backend has for that.
pub(crate) fn orders(fault: &Fault) -> Vec<(At, Command)> {
    let all = |at: At, argvs: Vec<Vec<String>>| {
        let commands = argvs.into_iter().map(Command::Argv);
        commands.map(|it| (at.clone(), it)).collect()
    };
    match fault {
        Fault::Slow { .. } | Fault::Agent { .. } | Fault::Upgrade { .. } | Fault::Switch { .. } => {
            Vec::new()
        }
        Fault::Sysctl { at, set } => {
            let paths = set.keys().map(|name| sysctl::path(name));
            let argvs = paths.flat_map(|path| [words(&["cat", &path]), words(&["tee", &path])]);
            all(of(at.as_ref()), argvs.collect())
        }
        Fault::FillConntrack { node, .. } => {
            let reads = TABLE.map(|name| words(&["cat", &sysctl::path(name)]));
            let at = on(node.as_ref());
            let mut orders: Vec<_> = all(at.clone(), reads.to_vec());
            orders.push((at, Command::Probe));
            orders
        }
        Fault::LinkDown { at, interface } => {
            let down = link::down(interface).map(|it| words(&it));
            all(of(Some(at)), undone_by_ip(down))
        }
        Fault::Mtu {
            at,
            interface,
            bytes,
        } => {
            let resize = link::resize(interface, &bytes.to_string()).map(|it| words(&it));
            all(of(Some(at)), undone_by_ip(resize))
        }
        Fault::Route { at, to, via, dev } => {
            let route = link::written(to, *via, dev.as_deref());
            let [show, replace] = link::reroute(to, *via, &route);
            let unroute = link::unroute(&show, &route);
            let reroute = [words(&show), words(&replace), unroute];
            all(of(Some(at)), undone_by_ip(reroute))
        }
        Fault::Loss { at, share } => {
            let lose = rules::LOSING.into_iter();
            let lose = lose.flat_map(|program| rules::lose(program, *share));
            let argvs = [words(&rules::HAS_V6)].into_iter().chain(lose);
            all(of(Some(at)), argvs.collect())
        }
        Fault::Lock { node } => all(on(node.as_ref()), vec![words(&["sh", "-c", HOLD])]),
        Fault::Craft(craft) => vec![(of(craft.from.as_ref()), Command::Probe)],
        Fault::Run(run) => all(of(run.at.as_ref()), vec![run.argv.clone()]),
        Fault::Flush { node, rules, chain } => {
            let flush = rules::flush(rules, chain.as_deref());
            all(on(node.as_ref()), vec![flush])
        }
        Fault::DeleteRule {
            node, rules, chain, ..
        } => {
            let list_and_delete = rules::list_and_delete(rules, chain);
            all(on(node.as_ref()), list_and_delete.to_vec())
        }
    }
}

fn of(at: Option<&Origin>) -> At {
    at.map(Place::from)
}

fn on(node: Option<&NodeName>) -> At {
    node.cloned().map(Place::Node)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&it| it.to_owned()).collect()
}

fn undone_by_ip<const N: usize>(argvs: [Vec<String>; N]) -> Vec<Vec<String>> {
    argvs.into_iter().chain([words(&link::BATCH)]).collect()
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
            argv: words(&["sh", "-c", "iptables -N ISTIO"]),
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
