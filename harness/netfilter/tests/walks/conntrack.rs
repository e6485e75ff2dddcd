//! Connections: known ones, those that are none, and those that nobody looks at.

use chainbreak_netfilter::{
    conntrack::Flow,
    walk::{End, Routing, Step, TcpFlags, Tracking, walk},
};

use crate::{FELIX, Family, POD, Packet, chains, node, only, routed, site, tcp};

const KUBE_PROXY: &str = include_str!("../data/kube-proxy.save");
const EBPF: &str = include_str!("../data/felix-3.28.1-ebpf.save");

pub(crate) fn tracked(walk: &chainbreak_netfilter::walk::Walk) -> (Tracking, String) {
    let step = only(walk).steps.iter().find_map(|step| match step {
        Step::Tracked { tracking, why } => Some((*tracking, why.clone())),
        _ => None,
    });
    step.unwrap()
}

fn syn_ack() -> Packet {
    let mut packet = tcp("192.0.2.9:80", "10.20.2.2:40000").by("eth0");
    packet.flags = TcpFlags::SYN_ACK;
    packet
}

#[test]
fn a_reply_whose_request_was_never_seen_is_invalid_and_kube_proxy_drops_it() {
    let walk = walk(&node(KUBE_PROXY), &syn_ack());
    assert_eq!(tracked(&walk).0, Tracking::Invalid);
    let path = only(&walk);
    assert_eq!(path.end, End::Dropped);
    assert_eq!(site(path.decided()), ("filter", "KUBE-FORWARD", 1));
}

#[test]
fn the_reply_of_a_known_connection_gets_the_addresses_back() {
    let entry = "tcp 6 86400 SYN_SENT src=10.20.1.2 dst=10.96.1.0 sport=40000 dport=80 [UNREPLIED] \
                 src=10.20.2.5 dst=10.20.1.2 sport=8080 dport=40000 mark=0 use=1";
    let mut state = node(FELIX);
    state.add_flow(Flow::parse(entry).unwrap());
    let mut packet = tcp("10.20.2.5:8080", "10.20.1.2:40000").by("eth0");
    packet.flags = TcpFlags::SYN_ACK;
    let walk = walk(&state, &packet);
    assert_eq!(tracked(&walk).0, Tracking::Established);
    let path = only(&walk);
    assert_eq!(
        path.packet.to_string(),
        "tcp 10.96.1.0:80 → 10.20.1.2:40000 SYN,ACK"
    );
    assert!(matches!(&path.end, End::Sent { interface: Some(it), .. } if it == POD));
    assert!(chains(path).contains(&"cali-tw-calia7a3e029a7b"));
}

#[test]
fn a_connection_keeps_an_endpoint_that_no_rule_has_any_more() {
    let entry = "udp 17 30 src=10.20.1.2 dst=10.96.1.0 sport=40000 dport=80 [UNREPLIED] \
                 src=10.20.9.9 dst=10.20.1.2 sport=80 dport=40000 mark=0 use=1";
    let mut state = node(FELIX);
    state.add_flow(Flow::parse(entry).unwrap());
    let walk = walk(
        &state,
        &crate::udp("10.20.1.2:40000", "10.96.1.0:80").by(POD),
    );
    let path = only(&walk);
    assert_eq!(path.packet.dst.to_string(), "10.20.9.9");
    assert!(
        !chains(path).contains(&"KUBE-SERVICES")
            || !chains(path).iter().any(|it| it.starts_with("KUBE-SVC"))
    );
}

#[test]
fn a_flow_that_felix_does_not_track_meets_no_service() {
    let save = format!("{EBPF}{}", nat_of(FELIX));
    let walk = walk(
        &node(&save),
        &tcp("10.20.1.2:40000", "10.96.1.0:80").by("eth0"),
    );
    let path = only(&walk);
    assert_eq!(path.packet.dst.to_string(), "10.96.1.0");
    assert_eq!(path.flow, None);
    assert!(chains(path).contains(&"cali-untracked-flows"));
    assert!(!path.rules().any(|(site, ..)| site.table == "nat"));
}

/// Its nat table.
fn nat_of(save: &str) -> String {
    let (_, rest) = save.split_once("*nat\n").unwrap();
    let (nat, _) = rest.split_once("COMMIT").unwrap();
    format!("*nat\n{nat}COMMIT\n")
}

#[test]
fn a_packet_in_the_middle_is_picked_up_unless_that_is_forbidden() {
    let mut packet = tcp("10.20.1.2:40000", "10.20.1.3:80").by(POD);
    packet.flags = TcpFlags::ACK;
    let mut state = routed();
    assert_eq!(tracked(&walk(&state, &packet)).0, Tracking::New);
    state.set_sysctl("net.netfilter.nf_conntrack_tcp_loose", "0");
    assert_eq!(tracked(&walk(&state, &packet)).0, Tracking::Invalid);
}

#[test]
fn a_source_that_is_reached_another_way_is_refused_only_by_a_strict_filter() {
    let packet = tcp("10.20.1.5:40000", "10.20.1.3:80").by(POD);
    let mut state = routed();
    let sent = |state: &_| only(&walk(state, &packet)).end.arrives();
    assert!(sent(&state));
    state.set_sysctl("net.ipv4.conf.all.rp_filter", "2");
    assert!(sent(&state));
    state.set_sysctl("net.ipv4.conf.all.rp_filter", "1");
    let walk = walk(&state, &packet);
    let End::Refused { why } = &only(&walk).end else {
        panic!("{:?}", only(&walk).end);
    };
    assert!(
        why.contains("rp_filter=1") && why.contains("cali37033675791"),
        "{why}"
    );
}

#[test]
fn a_node_that_does_not_forward_refuses_what_is_not_its_own() {
    let mut state = routed();
    state.set_sysctl("net.ipv4.ip_forward", "0");
    let end = |to: &str| {
        only(&walk(&state, &tcp("10.20.1.2:40000", to).by(POD)))
            .end
            .clone()
    };
    assert!(matches!(end("10.20.1.3:80"), End::Refused { .. }));
    assert_eq!(end("10.0.1.1:80"), End::Delivered);
}

#[test]
fn a_mark_that_a_rule_sets_chooses_the_table_that_a_packet_is_routed_by() {
    let save = "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j MARK --set-xmark 0x100/0x100\nCOMMIT\n";
    let mut state = node(save);
    let routes = format!("{}default dev tun0 table 100 scope link\n", crate::ROUTES);
    let rules = "0: from all lookup local\n100: from all fwmark 0x100/0x100 lookup 100\n32766: from all lookup main\n";
    state.set_routing(Routing::read(Family::V4, rules, &routes, ""));
    let walk = walk(&state, &tcp("10.20.1.2:40000", "8.8.8.8:80").by(POD));
    assert!(matches!(&only(&walk).end, End::Sent { interface: Some(it), .. } if it == "tun0"));
}
