//! kube-proxy in nftables mode, both of its layouts.

use chainbreak_netfilter::{
    conntrack::Flow,
    nft::listing,
    walk::{End, State, walk},
};

use crate::{chains, ends, only, routed, site, tcp};

const CHAINS: &str = include_str!("../data/kube-proxy-1.35.4.nft");
const MAPS: &str = include_str!("../data/kube-proxy-1.36.1.nft");

fn node(text: &str) -> State {
    let mut state = routed();
    state.add_nft(&listing(text).unwrap());
    state
}

#[test]
fn a_service_leads_to_each_endpoint_by_its_share_in_both_layouts() {
    for (text, first) in [(CHAINS, "10.20.1.3"), (MAPS, "10.20.1.2")] {
        let walk = walk(
            &node(text),
            &tcp("10.20.1.5:40000", "10.96.1.0:80").by("cali37033675791"),
        );
        assert!(walk.decided());
        assert_eq!(walk.paths.len(), 2, "{:?}", ends(&walk));
        assert!(ends(&walk).iter().all(|it| it.starts_with("0.50 Sent")));
        assert_eq!(walk.paths[0].packet.dst.to_string(), first);
        assert!(chains(&walk.paths[0]).contains(&"service-3DQLO4TQ-test/nginx/tcp/http"));
        assert_eq!(walk.paths[0].packet.src.to_string(), "10.20.1.5");
    }
}

#[test]
fn a_source_outside_of_the_cluster_is_masqueraded_in_both_layouts() {
    for text in [CHAINS, MAPS] {
        let walk = walk(
            &node(text),
            &tcp("192.0.2.9:40000", "10.96.1.1:80").by("eth0"),
        );
        for path in &walk.paths {
            assert_eq!(path.packet.src.to_string(), "10.0.1.1");
            assert_eq!((path.packet.sport, path.packet.mark), (0, 0));
        }
    }
}

#[test]
fn a_pod_that_reaches_itself_by_its_service_is_masqueraded_in_both_layouts() {
    for (text, pod, by) in [
        (CHAINS, "10.20.1.3", "cali6fa97c49190"),
        (MAPS, "10.20.1.3", "cali6fa97c49190"),
    ] {
        let walk = walk(
            &node(text),
            &tcp(&format!("{pod}:40000"), "10.96.1.0:80").by(by),
        );
        let to_itself = walk
            .paths
            .iter()
            .find(|it| it.packet.dst.to_string() == pod);
        assert_eq!(to_itself.unwrap().packet.src.to_string(), "10.0.1.1");
        let other = walk
            .paths
            .iter()
            .find(|it| it.packet.dst.to_string() != pod);
        assert_eq!(other.unwrap().packet.src.to_string(), pod);
    }
}

#[test]
fn a_port_that_no_service_has_is_rejected_and_an_address_that_none_has_is_dropped() {
    for text in [CHAINS, MAPS] {
        let state = node(text);
        let end = |to: &str| {
            let walk = walk(&state, &tcp("10.20.1.5:40000", to).by("cali37033675791"));
            let path = only(&walk).clone();
            assert_eq!(site(path.decided()).1, "cluster-ips-check");
            path.end
        };
        assert!(matches!(end("10.96.1.0:81"), End::Rejected { .. }));
        assert_eq!(end("10.96.7.7:80"), End::Dropped);
    }
}

#[test]
fn a_service_without_endpoints_is_rejected_by_the_map_that_says_so() {
    let map =
        "map no-endpoint-services {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict";
    let filled = format!(
        "{map}\n\t\telements = {{ 10.96.1.9 . tcp . 80 comment \"test/gone:http\" : goto reject-chain }}"
    );
    for text in [CHAINS, MAPS] {
        let state = node(&text.replacen(map, &filled, 1));
        let walk = walk(
            &state,
            &tcp("10.20.1.5:40000", "10.96.1.9:80").by("cali37033675791"),
        );
        assert_eq!(site(only(&walk).decided()).1, "reject-chain");
    }
}

#[test]
fn a_known_connection_asks_no_map() {
    let entry = "tcp 6 86400 ESTABLISHED src=10.20.1.5 dst=10.96.1.0 sport=40000 dport=80 \
                 src=10.20.2.7 dst=10.20.1.5 sport=80 dport=40000 [ASSURED] mark=0 use=1";
    let mut state = node(MAPS);
    state.add_flow(Flow::parse(entry).unwrap());
    let mut packet = tcp("10.20.1.5:40000", "10.96.1.0:80").by("cali37033675791");
    packet.flags = chainbreak_netfilter::walk::TcpFlags::ACK;
    let walk = walk(&state, &packet);
    assert_eq!(only(&walk).packet.dst.to_string(), "10.20.2.7");
    assert!(!chains(only(&walk)).contains(&"services"));
}

#[test]
fn an_expression_that_is_not_known_leaves_both_branches_open() {
    let text = "table inet x {\n\tchain f {\n\t\ttype filter hook forward priority filter; policy accept;\n\
                \t\tip saddr 10.20.1.5 meta skuid 0 counter packets 0 bytes 0 drop\n\t}\n}\n";
    let walk = walk(
        &node(text),
        &tcp("10.20.1.5:40000", "10.20.1.3:80").by("cali37033675791"),
    );
    assert_eq!(walk.paths.len(), 2);
    assert_eq!(walk.paths[0].end, End::Dropped);
    assert!(walk.paths[1].end.arrives());
    let question = walk.paths[0].assumes().next().unwrap().0;
    assert!(question.contains("meta skuid 0"), "{question}");
}
