//! A node with Felix in eBPF mode of which it is known what policies its programs have.

mod words;

use chainbreak_netfilter::{
    Family,
    dumps::{Dumps, Kind},
    walk::{End, Packet, Path, Protocol, Step, Walk, walk},
};

use crate::{tcp, udp};

/// What a real Felix v3.32.1 noted of the pod 10.20.2.2, without what the instructions do.
const POLICIES: &str = include_str!("../data/felix-3.32.1.policies");
/// The same policies, of v3.28.1.
const POLICIES_OF_V3_28: &str = include_str!("../data/felix-3.28.1.policies");
/// `app == 'other'`.
const SETS: &str = "IP set 0xcfb03d1c7ffe2ba0\n   10.20.1.4/32\n";
const MAP: &str = include_str!("../data/felix.nat");
const ROUTES: &str = "default via 10.0.1.254 dev eth0
10.0.1.0/24 dev eth0 proto kernel scope link src 10.0.1.2
10.20.1.0/24 via 10.0.1.1 dev eth0
10.20.2.2 dev cali2733c3e547f scope link
10.20.2.3 dev cali4976587cbc3 scope link
";
const FELIX_ROUTES: &str = "10.20.1.0/26: remote workload in-pool nat-out nh 10.0.1.1
10.20.2.2/32: local workload in-pool nat-out idx 7
10.20.2.3/32: local workload in-pool nat-out idx 8
";

fn walked(texts: &[&str], packet: &Packet) -> Walk {
    let mut dumps = Dumps::default();
    for text in texts {
        assert!(!dumps.add(text).unwrap().is_empty(), "{text}");
    }
    walk(&dumps.with_programs().state(Family::V4), packet)
}

/// Of a packet that begins something at the pod or from it, what decides and where it ends; the only way that it has.
fn decided(texts: &[&str], packet: &Packet) -> String {
    let walk = walked(texts, packet);
    let [path] = walk.paths.as_slice() else {
        panic!("{walk:?}")
    };
    let words = path.steps.iter().filter_map(|step| match step {
        Step::Programs { what } => Some(what.as_str()),
        _ => None,
    });
    let end = match &path.end {
        End::Refused { why } => why.clone(),
        End::Sent { .. } => "sent".to_owned(),
        other => other.to_string(),
    };
    words.chain([end.as_str()]).collect::<Vec<_>>().join("; ")
}

const ALL: [&str; 5] = [ROUTES, FELIX_ROUTES, MAP, POLICIES, SETS];
const DENIES: &str = "denies it, in Felix's programs at cali2733c3e547f";

fn to_pod(from: &str, port: u16) -> Packet {
    let to = format!("10.20.2.2:{port}");
    tcp(&format!("{from}:40000"), &to).by("eth0")
}

#[test]
fn a_policy_lets_in_whom_its_rules_allow_and_tells_which_one_it_was() {
    for (noted, policy) in [
        (POLICIES, "GlobalNetworkPolicy default.far"),
        (POLICIES_OF_V3_28, "policy default.far"),
    ] {
        let texts = [ROUTES, FELIX_ROUTES, MAP, noted, SETS];
        let allows = format!("{policy} lets it pass at cali2733c3e547f; sent");
        let denies = format!("{policy} {DENIES}");
        let ends = format!("the end of tier default {DENIES}");
        for (from, port, what) in [
            ("10.20.1.3", 80, &allows),
            ("10.20.1.3", 8000, &allows),
            ("10.20.1.3", 8100, &allows),
            ("10.20.1.3", 8101, &ends),
            ("10.20.1.4", 80, &denies),
            ("10.99.1.1", 80, &ends),
        ] {
            assert_eq!(decided(&texts, &to_pod(from, port)), *what, "{from} {port}");
        }
        let mut echo = to_pod("10.20.1.3", 0);
        echo.protocol = Protocol::ICMP;
        for (kind, arrives) in [(8, true), (13, false)] {
            echo.icmp = kind;
            // Whether it is of a flow that they know, no dump tells.
            let walk = walked(&texts, &echo);
            assert_eq!(walk.paths[0].end.arrives(), arrives, "{kind}: {walk:?}");
        }
    }
}

#[test]
fn what_passes_a_tier_is_left_to_the_profiles() {
    let sends = |port: u16| {
        let to = format!("10.20.1.3:{port}");
        udp("10.20.2.2:40000", &to).by("cali2733c3e547f")
    };
    let dumps = [&ALL[..], &["UDP 10.9.9.9:1 -> 10.9.9.8:2  Active ago 1s\n"]].concat();
    let policy = "GlobalNetworkPolicy default.far lets it pass at cali2733c3e547f; sent";
    let profile = "a profile lets it pass at cali2733c3e547f; sent";
    assert_eq!(decided(&dumps, &sends(53)), policy);
    assert_eq!(decided(&dumps, &sends(54)), profile);
}

#[test]
fn where_sets_or_policies_are_not_dumped_both_ways_are_told() {
    let question = |walk: &Walk| {
        let asked = |path: &Path| {
            let mut asked = path.assumes().map(|(question, _)| question.to_owned());
            asked.next().unwrap_or_default()
        };
        assert_eq!(
            walk.paths.iter().filter(|it| it.end.arrives()).count(),
            1,
            "{walk:?}"
        );
        assert_eq!(walk.paths.len(), 2, "{walk:?}");
        asked(&walk.paths[0])
    };
    let without_sets = walked(&ALL[..4], &to_pod("10.20.1.4", 80));
    let asked = question(&without_sets);
    assert!(
        asked.starts_with("whether a rule of GlobalNetworkPolicy default.far"),
        "{asked}"
    );
    // Another pod of the node, whose program was not noted.
    let other = tcp("10.20.1.4:40000", "10.20.2.3:80").by("eth0");
    let asked = question(&walked(&ALL, &other));
    assert!(asked.contains("not among the dumps"), "{asked}");
    let none = walked(&[ROUTES, FELIX_ROUTES, MAP], &to_pod("10.20.1.4", 80));
    assert!(question(&none).contains("no dump tells"), "{none:?}");
}

/// Whether each way arrives.
fn arriving(walk: &Walk) -> Vec<bool> {
    walk.paths.iter().map(|it| it.end.arrives()).collect()
}

fn asks(walk: &Walk, what: &str) {
    let mut asked = walk.paths.iter().flat_map(Path::assumes);
    assert!(
        asked.any(|(question, _)| question.contains(what)),
        "{what}: {walk:?}"
    );
}

#[test]
fn what_a_pod_sends_to_its_own_node_or_to_itself_is_certain_only_where_a_rule_or_a_policy_says_so()
{
    let sends = |to: &str| tcp("10.20.2.2:40000", to).by("cali2733c3e547f");
    let to_node = sends("10.0.1.2:9999");
    let walk = walked(&ALL, &to_node);
    asks(&walk, "defaultEndpointToHostAction");
    assert_eq!(arriving(&walk), [true, false], "{walk:?}");
    let accepts = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i cali+ -m comment --comment \"cali:JheEucsDZYJ7ze_r\" -m mark --mark 0x1000000/0x1000000 -j ACCEPT\nCOMMIT\n";
    let walk = walked(&[&ALL[..], &[accepts]].concat(), &to_node);
    assert_eq!(arriving(&walk), [true], "{walk:?}");
    // To itself, as by a Service.
    let walk = walked(&ALL, &sends("10.20.2.2:80"));
    assert_eq!(arriving(&walk), [true], "{walk:?}");
    let walk = walked(&ALL, &sends("10.20.2.2:81"));
    asks(&walk, "comes back to who sent it");
    assert_eq!(arriving(&walk), [true, false], "{walk:?}");
    // With an address that is no pod's of this node.
    let foreign = tcp("10.20.1.3:40000", "10.20.1.9:80").by("cali2733c3e547f");
    asks(&walked(&ALL, &foreign), "is no pod's of this node");
}

#[test]
fn what_is_no_services_of_their_addresses_ends_where_their_routes_lead_nowhere() {
    for (flag, words) in [
        ("blackhole-drop", "serviceLoopPrevention"),
        ("blackhole-reject", "icmp-port-unreachable"),
    ] {
        let routes = format!("10.96.0.0/12: {flag}\n");
        let packet = tcp("10.20.2.2:40000", "10.96.7.7:99").by("cali2733c3e547f");
        let walk = walked(&[&ALL[..], &[&routes]].concat(), &packet);
        let [path] = walk.paths.as_slice() else {
            panic!("{walk:?}")
        };
        assert!(path.end.to_string().contains(words), "{walk:?}");
    }
}

#[test]
fn a_dump_of_policies_is_named_and_missed() {
    let mut dumps = Dumps::default();
    assert_eq!(dumps.add(POLICIES).unwrap(), [Kind::FelixPolicies].into());
    assert_eq!(dumps.add(SETS).unwrap(), [Kind::FelixSets].into());
    assert!(
        !dumps
            .with_programs()
            .missing()
            .contains(&Kind::FelixPolicies)
    );
    let mut other = Dumps::default();
    other.add(MAP).unwrap();
    assert!(
        other
            .with_programs()
            .missing()
            .contains(&Kind::FelixPolicies)
    );
}
