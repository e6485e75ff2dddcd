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
    let save = masquerading();
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

/// As a real Felix v3.32.1 printed them, with addresses of this node.
const FLOWS: &str = "\
TCP 10.20.1.9:40001 -> 10.96.1.0:80 -> 10.20.1.3:80  Active ago 1.5s ESTABLISHED
UDP 10.20.1.9:40000 -> 10.96.0.10:53 -> 10.20.1.2:53  Active ago 2.25s
";
const FELIX_ROUTES: &str = "\
   10.20.0.0/16: remote in-pool nat-out
   10.20.1.9/32: local workload in-pool nat-out idx 9
    10.0.1.1/32: local host
    10.0.1.9/32: remote host
";

fn segment(from: &str, to: &str, by: &str) -> Packet {
    let mut segment = tcp(from, to).by(by);
    segment.flags = chainbreak_netfilter::walk::TcpFlags::ACK;
    segment
}

/// With what Felix writes for a pool whose pods are masqueraded outside.
fn masquerading() -> String {
    let rule = "-A cali-nat-outgoing -m mark --mark 0x3800000/0x3f00000 -j MASQUERADE\n";
    let (before, nat) = SAVE.split_once(":cali-nat-outgoing - [0:0]\n").unwrap();
    let (nat, after) = nat.split_once("COMMIT").unwrap();
    format!("{before}:cali-nat-outgoing - [0:0]\n{nat}{rule}COMMIT{after}")
}

#[test]
fn a_flow_that_the_programs_know_goes_on_as_they_know_it() {
    let texts = [SAVE, ROUTES, MAP, FLOWS, FELIX_ROUTES];
    // Of UDP it is not known whether both ends' policies let it pass.
    let request = crate::udp("10.20.1.9:40000", "10.96.0.10:53").by(POD);
    let data = segment("10.20.1.9:40001", "10.96.1.0:80", POD);
    for (packet, to, ways) in [(request, "10.20.1.2", 2), (data, "10.20.1.3", 1)] {
        let walk = walked(&texts, &packet);
        assert_eq!(walk.paths.len(), ways, "{walk:?}");
        let [path] = arriving(&walk).try_into().unwrap();
        assert_eq!(path.packet.dst.to_string(), to);
    }
}

#[test]
fn an_answer_keeps_its_source_up_to_the_end_of_the_rules() {
    let texts = [SAVE, ROUTES, MAP, FLOWS, FELIX_ROUTES];
    let answer = segment("10.20.1.3:80", "10.20.1.9:40001", "enic6aea79fd0b");
    let walk = walked(&texts, &answer);
    let [path] = walk.paths.as_slice() else {
        panic!("{walk:?}")
    };
    let in_hooks = path.steps.iter().filter_map(|step| match step {
        Step::Hook { packet, .. } => Some(packet.src.to_string()),
        _ => None,
    });
    assert!(in_hooks.clone().count() > 2 && in_hooks.clone().all(|it| it == "10.20.1.3"));
    assert_eq!(path.packet.src.to_string(), "10.96.1.0");
}

#[test]
fn of_ipv6_a_dump_of_ipv4_says_nothing() {
    let dumps = dumps(&[SAVE, ROUTES, MAP, FLOWS, FELIX_ROUTES]).with_programs();
    let packet = segment("[fd00::9]:40000", "[fd00::2]:80", POD);
    let walk = walk(&dumps.state(Family::V6), &packet);
    let asked = |path: &Path| {
        path.steps.iter().any(|step| {
            matches!(step, Step::Assumed { question, .. } if question.contains("connection tracking"))
        })
    };
    assert!(walk.paths.iter().all(asked), "{walk:?}");
}

#[test]
fn what_asks_a_service_by_a_flow_that_is_not_known_may_have_been_led_where_it_connected() {
    let texts = [SAVE, ROUTES, MAP, FLOWS, FELIX_ROUTES];
    let walk = walked(&texts, &segment("10.20.1.9:40009", "10.96.1.0:80", POD));
    let lost = |path: &Path| matches!(path.end, End::Undecided { .. });
    assert!(walk.paths.iter().all(lost), "{walk:?}");
}

#[test]
fn what_is_of_no_flow_that_the_programs_know_is_left_to_the_rules_or_begins_one() {
    let texts = [SAVE, ROUTES, MAP, FLOWS, FELIX_ROUTES];
    let walk = walked(&texts, &segment("10.20.1.9:40002", "10.20.1.2:80", POD));
    let left = |path: &Path| path.packet.mark & 0x0500_0000 == 0x0500_0000;
    assert!(walk.paths.iter().all(left), "{walk:?}");
    let request = crate::udp("10.20.1.9:40009", "10.20.1.2:53").by(POD);
    let walk = walked(&texts, &request);
    assert_eq!(walk.paths.len(), 2, "a policy decides: {walk:?}");
    assert_eq!(arriving(&walk).len(), 1, "{walk:?}");
}

#[test]
fn by_felixs_routes_it_is_known_what_leaves_the_pools_but_for_other_nodes() {
    let save = masquerading();
    for (to, masqueraded) in [
        ("192.0.2.9:443", &[true][..]),
        ("10.20.1.2:443", &[false]),
        ("10.0.1.9:443", &[false, true]),
    ] {
        let walk = walked(&[&save, ROUTES, MAP, FLOWS, FELIX_ROUTES], &from_pod(to));
        let arriving = arriving(&walk);
        let sources = arriving.iter().map(|it| it.packet.src.to_string());
        let told: Vec<bool> = sources.map(|src| src == "10.0.1.1").collect();
        assert_eq!(told, masqueraded, "{to}: {walk:?}");
    }
    // Also in a connection that has begun.
    let flows = format!("{FLOWS}TCP 10.20.1.9:40003 -> 192.0.2.9:443  Active ago 1s ESTABLISHED\n");
    let goes_on = segment("10.20.1.9:40003", "192.0.2.9:443", POD);
    let walk = walked(&[&save, ROUTES, MAP, &flows, FELIX_ROUTES], &goes_on);
    let marked = |path: &Path| path.packet.mark & 0x03f0_0000 == 0x0380_0000;
    assert!(walk.paths.iter().all(marked), "{walk:?}");
}
