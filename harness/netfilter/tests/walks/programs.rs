//! A node with Felix in eBPF mode: its programs come before every rule.

use chainbreak_netfilter::{
    Family,
    dumps::{Dumps, Kind},
    walk::{End, Path, Step, Tracking, Walk, walk},
};

use crate::{Packet, tcp};

const SAVE: &str = include_str!("../data/felix-3.28.1-ebpf.save");
const MAP: &str = include_str!("../data/felix.nat");
const ROUTES: &str = "default via 10.0.1.254 dev eth0
10.0.1.0/24 dev eth0 proto kernel scope link src 10.0.1.1
10.20.1.2 dev eni28fc4c87261 scope link
10.20.1.3 dev enic6aea79fd0b scope link
";
/// The interface of a pod.
const POD: &str = "enia7a3e029a7b";

fn dumps(texts: &[&str]) -> Dumps {
    let mut dumps = Dumps::default();
    for text in texts {
        assert!(!dumps.add(text).unwrap().is_empty(), "{text}");
    }
    dumps
}

fn walked(texts: &[&str], packet: &Packet) -> Walk {
    let dumps = dumps(texts).with_programs();
    walk(&dumps.state(Family::V4), packet)
}

fn from_pod(to: &str) -> Packet {
    tcp("10.20.1.9:40000", to).by(POD)
}

/// Those that arrive.
fn arriving(walk: &Walk) -> Vec<&Path> {
    walk.paths.iter().filter(|it| it.end.arrives()).collect()
}

#[test]
fn a_service_is_led_by_the_nat_map_before_any_rule_and_shares_add_up() {
    let walk = walked(&[SAVE, ROUTES, MAP], &from_pod("10.96.1.0:80"));
    let arriving = arriving(&walk);
    let ends: Vec<String> = arriving
        .iter()
        .map(|path| {
            format!(
                "{:.2} {}:{} {}",
                path.share, path.packet.dst, path.packet.dport, path.end
            )
        })
        .collect();
    assert_eq!(
        ends,
        [
            "0.50 10.20.1.2:80 leaves the node by eni28fc4c87261",
            "0.50 10.20.1.3:80 leaves the node by enic6aea79fd0b"
        ]
    );
    for path in arriving {
        let led = path
            .steps
            .iter()
            .position(|it| matches!(it, Step::Programs { .. }));
        let hook = path
            .steps
            .iter()
            .position(|it| matches!(it, Step::Hook { .. }));
        assert!(led.unwrap() < hook.unwrap(), "{path:?}");
        // Its own rules leave to the programs what they have seen, and let it on.
        assert!(
            path.steps.iter().any(|it| matches!(
                it,
                Step::Tracked {
                    tracking: Tracking::Untracked,
                    ..
                }
            )) || path
                .rules()
                .any(|(site, ..)| site.rule.ends_with("-j NOTRACK")),
            "{path:?}"
        );
    }
    // What policies say is not among the dumps.
    assert!(!walk.decided());
    let refused =
        |path: &&Path| matches!(&path.end, End::Refused { why } if why.contains("policy"));
    assert_eq!(walk.paths.iter().filter(refused).count(), 2);
}

#[test]
fn what_the_map_leads_to_nobody_or_does_not_tell_whole_goes_nowhere() {
    let nobody = MAP.replace("count 2 local 1", "count 0 local 1");
    let walk = walked(&[SAVE, ROUTES, &nobody], &from_pod("10.96.1.0:80"));
    let [path] = walk.paths.as_slice() else {
        panic!("{walk:?}")
    };
    assert!(matches!(path.end, End::Rejected { .. }), "{:?}", path.end);
    let [told] = walk.ends().try_into().unwrap();
    assert!(
        told.contains("Felix's NAT map leads 10.96.1.0 port 80 to nobody"),
        "{told}"
    );
    // A local policy is of some clients alone.
    let local = MAP.replace("count 2 local 1", "count 2 local 1 flags internal-local");
    for (map, to) in [(local.as_str(), "10.96.1.0:80"), (MAP, "10.96.0.8:80")] {
        let walk = walked(&[SAVE, ROUTES, map], &from_pod(to));
        assert!(
            matches!(walk.paths[0].end, End::Undecided { .. }),
            "{walk:?}"
        );
    }
}

#[test]
fn another_nodes_port_may_be_led_by_the_programs_here() {
    let map = format!("{MAP}255.255.255.255 port 30080 proto 6 id 4 count 2 local 1\n");
    let walk = walked(&[SAVE, ROUTES, &map], &from_pod("10.0.1.9:30080"));
    let lost = |path: &Path| matches!(path.end, End::Undecided { .. });
    assert!(
        walk.paths.iter().any(lost) && arriving(&walk).len() == 1,
        "{walk:?}"
    );
}

#[test]
fn what_leaves_a_pool_may_be_masqueraded_by_felixs_rule_and_what_reaches_itself_is() {
    let rule = "-A cali-nat-outgoing -m mark --mark 0x3800000/0x3f00000 -j MASQUERADE\n";
    let (before, nat) = SAVE.split_once(":cali-nat-outgoing - [0:0]\n").unwrap();
    let (nat, after) = nat.split_once("COMMIT").unwrap();
    let save = format!("{before}:cali-nat-outgoing - [0:0]\n{nat}{rule}COMMIT{after}");
    let walk = walked(&[&save, ROUTES, MAP], &from_pod("192.0.2.9:443"));
    let sources: Vec<String> = arriving(&walk)
        .iter()
        .map(|it| it.packet.src.to_string())
        .collect();
    assert_eq!(sources, ["10.20.1.9", "10.0.1.1"]);
    let itself = tcp("10.20.1.2:40000", "10.96.1.0:80").by("eni28fc4c87261");
    let walk = walked(&[SAVE, ROUTES, MAP], &itself);
    let marked = |path: &&Path| path.packet.mark & 0x0360_0000 == 0x0360_0000;
    let marked: Vec<String> = walk
        .paths
        .iter()
        .filter(marked)
        .map(|it| it.packet.dst.to_string())
        .collect();
    assert_eq!(marked, ["10.20.1.2"], "{walk:?}");
}

#[test]
fn without_a_map_it_is_not_known_where_the_programs_lead() {
    let asked = dumps(&[SAVE, ROUTES]).with_programs();
    assert!(asked.missing().contains(&Kind::NatMap));
    let walk = walk(&asked.state(Family::V4), &from_pod("10.20.1.2:80"));
    let undecided = |path: &Path| matches!(&path.end, End::Undecided { why } if why.contains("10.20.1.2 port 80"));
    assert!(walk.paths.iter().any(undecided), "{walk:?}");
    assert_eq!(arriving(&walk).len(), 1, "{walk:?}");
}

#[test]
fn what_the_node_itself_connects_to_is_led_where_it_connects() {
    let walk = walked(&[SAVE, ROUTES, MAP], &tcp("10.0.1.1:40000", "10.96.1.0:80"));
    let to: Vec<String> = walk
        .paths
        .iter()
        .map(|it| it.packet.dst.to_string())
        .collect();
    assert_eq!(to, ["10.20.1.2", "10.20.1.3"]);
    assert!(walk.paths.iter().all(|it| it.end.arrives()), "{walk:?}");
    // An answer keeps its addresses.
    let mut answer = tcp("10.0.1.1:40000", "10.96.1.0:80");
    answer.flags = chainbreak_netfilter::walk::TcpFlags::SYN_ACK;
    let walk = walked(&[SAVE, ROUTES, MAP], &answer);
    assert!(
        walk.paths
            .iter()
            .all(|it| it.packet.dst.to_string() == "10.96.1.0"),
        "{walk:?}"
    );
}

#[test]
fn what_is_of_a_flow_that_the_programs_know_goes_where_no_dump_tells() {
    let packet = crate::udp("10.20.1.9:40000", "10.20.1.2:53").by(POD);
    let walk = walked(&[SAVE, ROUTES, MAP], &packet);
    let lost = |path: &Path| matches!(path.end, End::Undecided { .. });
    assert!(
        walk.paths.iter().any(lost) && arriving(&walk).len() == 1,
        "{walk:?}"
    );
    // What the node sends over UDP to a Service is led behind the rules, unless it is led where it connects.
    let map = MAP.replace("port 80 proto 6 id 4", "port 80 proto 17 id 4");
    let walk = walked(
        &[SAVE, ROUTES, &map],
        &crate::udp("10.0.1.1:40000", "10.96.1.0:80"),
    );
    assert!(
        walk.paths.iter().any(lost) && arriving(&walk).len() == 2,
        "{walk:?}"
    );
}

#[test]
fn of_a_connection_that_goes_on_the_programs_know_more_than_the_dumps() {
    let mut answer = from_pod("10.20.1.2:40000");
    answer.flags = chainbreak_netfilter::walk::TcpFlags::SYN_ACK;
    let walk = walked(&[SAVE, ROUTES, MAP], &answer);
    assert!(!walk.decided());
    let undecided = |path: &Path| matches!(path.end, End::Undecided { .. });
    assert!(
        walk.paths.iter().any(undecided) && !arriving(&walk).is_empty(),
        "{walk:?}"
    );
    // What they do not know they leave to the rules, by another mark.
    let unknown = |path: &&Path| path.assumes().any(|(_, it)| it == "it does not know it");
    let unknown: Vec<&Path> = walk.paths.iter().filter(unknown).collect();
    let is_marked = |path: &&Path| path.packet.mark & 0x0500_0000 == 0x0500_0000;
    assert!(
        !unknown.is_empty() && unknown.iter().all(is_marked),
        "{walk:?}"
    );
}

#[test]
fn in_iptables_mode_and_where_a_table_stands_in_for_them_there_are_no_programs() {
    let packet = from_pod("10.20.1.2:80");
    let iptables = walked(&[crate::FELIX, ROUTES], &packet);
    assert!(!iptables.paths.iter().any(|it| {
        it.assumes()
            .any(|(question, _)| question.contains("Felix's"))
    }));
    let plain = dumps(&[SAVE, ROUTES]);
    assert!(!plain.missing().contains(&Kind::NatMap));
    let walk = walk(&plain.state(Family::V4), &packet);
    // Without them a pod's packet lacks their mark.
    assert!(
        walk.paths.iter().all(|it| it.end == End::Dropped),
        "{walk:?}"
    );
}
