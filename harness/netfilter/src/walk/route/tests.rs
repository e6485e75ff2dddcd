use super::*;

const ROUTES: &str = "default via 10.0.0.254 dev eth0 proto static metric 100
10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1
blackhole 10.20.1.0/26 proto bird
10.20.1.2 dev cali1 scope link
10.30.0.0/16 proto static metric 5
\tnexthop via 10.0.0.2 dev eth0 weight 1
\tnexthop via 10.0.0.3 dev eth0 weight 1
default dev tun0 table 100 scope link
throw 10.40.0.0/16 table 100
local 10.0.0.1 dev eth0 table local proto kernel scope host src 10.0.0.1
local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1
broadcast 10.0.0.255 dev eth0 table local proto kernel scope link src 10.0.0.1
";
const RULES: &str = "0:\tfrom all lookup local
100:\tfrom all fwmark 0x100/0x100 lookup 100
200:\tnot from 10.0.0.0/8 prohibit
32766:\tfrom all lookup main
";

fn look(dst: &str, mark: u32) -> Found {
    let routing = Routing::read(Family::V4, RULES, ROUTES, "");
    let (src, dst) = ("10.20.1.2".parse().unwrap(), dst.parse().unwrap());
    let input = Some("cali1");
    routing.look(Query {
        dst,
        src,
        mark,
        input,
    })
}

fn by(found: &Found) -> (Kind, Vec<String>) {
    let Found::Route(kind, hops, _) = found else {
        panic!("{found:?}");
    };
    let hop = |hop: &Hop| match hop.via {
        Some(via) => format!("{via} {}", hop.interface),
        None => hop.interface.clone(),
    };
    (*kind, hops.iter().map(hop).collect())
}

#[test]
fn the_longest_route_of_the_first_table_that_has_one_is_taken() {
    let hop = |words: &str| vec![words.to_owned()];
    let unicast = |words: &str| (Kind::Unicast, hop(words));
    assert_eq!(by(&look("10.20.1.2", 0)), unicast("cali1"));
    assert_eq!(by(&look("8.8.8.8", 0)), unicast("10.0.0.254 eth0"));
    assert_eq!(by(&look("8.8.8.8", 0x300)), unicast("tun0"));
    let routing = Routing::read(Family::V4, RULES, ROUTES, "");
    let from_outside = routing.look(Query {
        dst: "8.8.8.8".parse().unwrap(),
        src: "192.0.2.9".parse().unwrap(),
        mark: 0,
        input: None,
    });
    assert_eq!(by(&from_outside).0, Kind::Prohibit);
    assert_eq!(by(&look("10.40.0.1", 0x100)), unicast("10.0.0.254 eth0"));
    assert_eq!(by(&look("10.20.1.3", 0)).0, Kind::Blackhole);
    assert_eq!(by(&look("10.0.0.1", 0x100)).0, Kind::Local);
    assert_eq!(by(&look("10.0.0.255", 0)).0, Kind::Broadcast);
    let two = vec!["10.0.0.2 eth0".to_owned(), "10.0.0.3 eth0".to_owned()];
    assert_eq!(by(&look("10.30.1.1", 0)), (Kind::Unicast, two));
}

#[test]
fn without_a_local_table_addresses_are_the_nodes() {
    let addresses = "2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0\n";
    for addresses in [addresses, ""] {
        let routes = "10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1";
        let routing = Routing::read(Family::V4, "", routes, addresses);
        let kind = |address: &str, on| routing.kind(address.parse().unwrap(), on);
        assert_eq!(kind("10.0.0.1", None), Kind::Local);
        assert_eq!(kind("10.0.0.1", Some("eth1")), Kind::Unicast);
        assert_eq!(kind("127.0.0.1", None), Kind::Local);
        assert_eq!(kind("10.0.0.2", None), Kind::Unicast);
        let next = "10.0.0.9".parse().unwrap();
        let address = routing.address_of("eth0", next, next);
        assert_eq!(address, Some("10.0.0.1".parse().unwrap()));
    }
}

#[test]
fn ipv6_gives_the_destination_itself_else_the_interfaces_address_that_is_most_like_it() {
    let addresses = "1: lo    inet6 ::1/128 scope host
2: cali1    inet6 fd00:1::1/64 scope global
2: cali1    inet6 fe80::1/64 scope link
3: eth0    inet6 fd00:2::1/64 scope global
3: eth0    inet6 2001:db8::1/64 scope global
3: eth0    inet6 fd00:2::10/128 scope global deprecated
3: eth0    inet6 fd00:2::11/128 scope global tentative
3: eth0    inet6 fe80::3/64 scope link
";
    let routing = Routing::read(Family::V6, "", "", addresses);
    let of = |interface: &str, dst: &str| {
        let dst = dst.parse().unwrap();
        let address = routing.address_of(interface, dst, dst);
        address.unwrap().to_string()
    };
    // Linux 6.18: what the node sends to itself leaves by lo, which has no address that is wide enough.
    assert_eq!(of("lo", "fd00:2::1"), "fd00:2::1");
    assert_eq!(of("eth0", "fd00:1::9"), "fd00:2::1");
    assert_eq!(of("eth0", "2001:db8:9::9"), "2001:db8::1");
    assert_eq!(of("cali1", "2001:db8:9::9"), "fd00:1::1");
    assert_eq!(of("eth0", "fd00:2::13"), "fd00:2::1");
    assert_eq!(of("eth0", "fe80::9"), "fe80::3");
    assert_eq!(of("lo", "::1"), "::1");
}

#[test]
fn a_rule_that_is_not_understood_is_no_route() {
    let rules = "0: from all lookup local\n10: from all tun_id 7 lookup 100\n";
    let routing = Routing::read(Family::V4, rules, ROUTES, "");
    let (src, dst) = ("10.20.1.2".parse().unwrap(), "10.20.1.2".parse().unwrap());
    let found = routing.look(Query {
        dst,
        src,
        mark: 0,
        input: None,
    });
    assert!(matches!(found, Found::Open(words) if words.contains("tun_id 7")));
}

#[test]
fn the_default_route_is_the_main_tables_of_ipv4_where_there_is_one_interface() {
    let by = |routes: &str| {
        let routing = Routing::read(Family::V4, "", routes, "");
        routing.default_interface().map(str::to_owned)
    };
    let eth0 = Some("eth0".to_owned());
    assert_eq!(by("default via 10.0.0.1 dev eth0 proto dhcp\n"), eth0);
    assert_eq!(by("default dev eth0 scope link\n"), eth0);
    let other = "default via 10.0.0.9 dev eth1 table 2\ndefault via fe80::1 dev br0\n10.0.0.0/24 dev br0 scope link\n";
    assert_eq!(by(other), None);
    assert_eq!(
        by(&format!("{other}default nhid 7 via 10.0.0.1 dev eth0\n")),
        eth0
    );
    let two =
        "default via 10.0.0.1 dev eth0 metric 100\ndefault via 10.0.1.1 dev eth1 metric 200\n";
    assert_eq!(by(two), None);
}
