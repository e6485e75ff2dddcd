//! Large clusters: more than a thousand endpoints.

use chainbreak_agents::kube_proxy::Event;

use crate::{
    desk::{Desk, HOUR, Invented, SECOND},
    objects::{config, nginx, plain, slice},
};

/// Services of ten endpoints each.
fn services(count: usize) -> Vec<Event> {
    let events = (0..count).flat_map(|i| {
        let name = format!("s{i}");
        let ips: Vec<String> = (0..10).map(|j| format!("10.20.{i}.{j}")).collect();
        let endpoints: Vec<(&str, &str)> = ips.iter().map(|ip| (ip.as_str(), "n2")).collect();
        [
            plain(&name, &format!("10.96.4.{i}")),
            slice(&name, &endpoints),
        ]
    });
    events.collect()
}

fn synced(version: &str, count: usize) -> Desk<Invented> {
    Desk::synced(config(version), Invented::default(), services(count))
}

#[test]
fn above_a_thousand_endpoints_the_many_comments_are_left_out() {
    for version in ["1.20", "1.32", "1.34"] {
        let small = synced(version, 100);
        let large = synced(version, 101);
        let commented = |desk: &Desk<Invented>, chain: &str| {
            let input = desk.last_restore();
            let mut rules = input
                .lines()
                .filter(|it| it.starts_with(&format!("-A {chain}")) && !it.contains("cluster IP"));
            rules.any(|it| it.contains("--comment"))
        };
        for chain in ["KUBE-SVC-", "KUBE-SEP-"] {
            assert!(commented(&small, chain), "{version} {chain}");
            assert!(!commented(&large, chain), "{version} {chain}");
        }
        assert!(large.last_restore().contains("\"test/s0:http cluster IP\""));
    }
}

#[test]
fn a_large_cluster_looks_for_stale_chains_once_a_sync_period() {
    let mut desk = synced("1.32", 101);
    desk.forget();
    for i in 0..5 {
        // Every 10 s from 5 s on: the second look is due after 30 s, at 35 s.
        desk.tell_later(plain(&format!("t{i}"), &format!("10.96.5.{i}")));
        desk.pass(5 * SECOND);
    }
    assert_eq!(desk.restores().len(), 5);
    assert_eq!(desk.typed("iptables-save").len(), 1);
    let mut desk = Desk::synced(config("1.32"), Invented::default(), nginx());
    desk.forget();
    desk.tell_later(plain("t", "10.96.5.1"));
    desk.tell_later(plain("u", "10.96.5.2"));
    assert_eq!(desk.typed("iptables-save").len(), 2);
}

#[test]
fn the_hourly_full_sync_spares_large_clusters_from_1_34_8() {
    for (version, full) in [
        ("1.33", true),
        ("1.34.7", true),
        ("1.34.8", false),
        ("1.36", false),
    ] {
        let mut desk = synced(version, 101);
        desk.forget();
        desk.pass(HOUR + SECOND);
        desk.tell(plain("t", "10.96.5.1"));
        assert_eq!(desk.ensured() > 0, full, "{version}");
    }
}
