use super::*;

#[test]
fn numbers_of_a_rule_have_their_names_and_others_stay_numbers() {
    for (numeric, named) in [
        (
            "ct state 0x2,0x4 accept",
            "ct state established,related accept",
        ),
        (
            "ct state { 0x2, 0x8 } accept",
            "ct state { established, new } accept",
        ),
        (
            "ct state vmap { 0x1 : drop, 0x2 : accept }",
            "ct state vmap { invalid : drop, established : accept }",
        ),
        (
            "ct status ! 0x10,0x20 accept",
            "ct status ! snat,dnat accept",
        ),
        (
            "ct status & 0x20 == 0x20 accept",
            "ct status & dnat == dnat accept",
        ),
        (
            "tcp flags != 0x2 / 0x2,0x10 accept",
            "tcp flags != syn / syn,ack accept",
        ),
        (
            "tcp flags & (0x1 | 0x2) == 0x2 drop",
            "tcp flags & (fin | syn) == syn drop",
        ),
        (
            "fib daddr . iif type != { 2, 5 } drop",
            "fib daddr . iif type != { local, multicast } drop",
        ),
        (
            "ip saddr . meta l4proto . th dport vmap { 10.0.0.6 . 6 . 6 : drop, 10.0.0.17 . 17 . 53 : accept }",
            "ip saddr . meta l4proto . th dport vmap { 10.0.0.6 . tcp . 6 : drop, 10.0.0.17 . udp . 53 : accept }",
        ),
        (
            "meta l4proto 6 dnat ip to numgen random mod 2 map { 0 : 10.20.1.2 . 80, 1 : 10.20.1.3 . 80 }",
            "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.20.1.2 . 80, 1 : 10.20.1.3 . 80 }",
        ),
        (
            "log prefix \"a: \" ct state 0x8 drop",
            "log prefix \"a: \" ct state new drop",
        ),
        (
            "iifname \"a\" log prefix \"ct state 0x8\" ct state 0x8 drop",
            "iifname \"a\" log prefix \"ct state 0x8\" ct state new drop",
        ),
        (
            "ct state 0x8 tcp dport 6 comment \"meta l4proto 6\"",
            "ct state new tcp dport 6 comment \"meta l4proto 6\"",
        ),
    ] {
        assert_eq!(rule_of(numeric).as_deref(), Some(named));
        assert_eq!(rule_of(named), None, "{named}");
    }
}

#[test]
fn numbers_without_names_stay_numbers() {
    for rule in [
        "meta mark 0x00000006 accept",
        "tcp dport 6 accept",
        "meta l4proto 253 accept",
        "fib saddr . iif oif 1 drop",
        "meta l4proto",
        "fib",
        "ct state {",
    ] {
        assert_eq!(rule_of(rule), None, "{rule}");
    }
}

#[test]
fn numbers_of_an_element_have_the_names_of_the_sets_fields() {
    let named = |about: &str, element: &str| element_of(element, &of_set([&about.to_owned()]));
    assert_eq!(
        named(
            "type ipv4_addr . inet_proto . inet_service : verdict",
            "10.0.0.6 . 6 . 17 comment \"6 . 6\" : goto a/6"
        )
        .as_deref(),
        Some("10.0.0.6 . tcp . 17 comment \"6 . 6\" : goto a/6")
    );
    assert_eq!(
        named("typeof ip daddr . meta l4proto", "10.0.0.6 . 17").as_deref(),
        Some("10.0.0.6 . udp")
    );
    assert_eq!(named("type inet_service", "6"), None);
}
