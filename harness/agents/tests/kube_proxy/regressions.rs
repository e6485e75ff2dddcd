//! What one release breaks and another mends: each is seen in both.

use chainbreak_agents::{
    kube_proxy::{Config, Event},
    step::Severity,
};
use serde_json::json;

use crate::{
    desk::{Desk, HOUR, Invented, SECOND},
    netns::{BACKENDS, Netns},
    objects::{config, nginx, node, other, plain, service_gone, service_with, slice},
};

/// The chain of 10.20.3.9:80 in service nginx, told while another service is taken over.
const LATE: &str = "--to-destination 10.20.3.9:80";

/// A service changes, and while that is taken over nginx gets a third endpoint.
fn told_meanwhile(version: &str) -> Desk<Invented> {
    let events = nginx().into_iter().chain(other(&[("10.20.1.1", "n1")]));
    let mut desk = Desk::synced(config(version), Invented::default(), events);
    desk.pass(5 * SECOND);
    desk.forget();
    let endpoints = [
        ("10.20.10.127", "n1"),
        ("10.20.11.179", "n2"),
        ("10.20.3.9", "n1"),
    ];
    desk.meanwhile = vec![slice("nginx", &endpoints)];
    desk.tell(slice("other", &[("10.20.1.2", "n1")]));
    desk
}

fn writes_late(desk: &Desk<Invented>) -> bool {
    desk.restores().iter().any(|it| it.contains(LATE))
}

#[test]
fn an_endpoint_told_while_changes_are_taken_over_is_lost_to_all_later_partial_syncs() {
    for version in ["1.27.10", "1.28.3", "1.29.1"] {
        let mut desk = told_meanwhile(version);
        assert_eq!(desk.reached.first(), Some(&"taking-changes"), "{version}");
        // The change asked for a sync of its own, which finds nothing to do.
        desk.pass(5 * SECOND);
        desk.tell_later(slice("other", &[("10.20.1.3", "n1")]));
        desk.pass(3 * HOUR);
        assert!(
            desk.restores().len() >= 4,
            "{version} {:?}",
            desk.restore_times()
        );
        assert!(!writes_late(&desk), "{version}");
        assert!(
            desk.logs.iter().all(|it| it.severity == Severity::Info),
            "silently: {}",
            desk.said()
        );
        // A change of that very service brings it back.
        desk.tell_later(slice("nginx", &[("10.20.3.9", "n1")]));
        assert!(writes_late(&desk), "{version}");
    }
}

#[test]
fn from_the_release_that_mends_it_nothing_told_meanwhile_is_lost() {
    for version in ["1.26.15", "1.27.11", "1.28.7", "1.29.2", "1.30.0", "1.32"] {
        let mut desk = told_meanwhile(version);
        assert_eq!(desk.reached, Vec::<&str>::new(), "{version}");
        let told = std::mem::take(&mut desk.meanwhile);
        for event in told {
            desk.tell(event);
        }
        desk.pass(5 * SECOND);
        assert!(writes_late(&desk), "{version}");
    }
}

/// An endpoint that goes meanwhile leaves a chain that nothing may remove: its service's, unwritten,
/// still leads to it. That fails, and so it heals.
#[test]
fn an_endpoint_that_goes_while_changes_are_taken_over_fails_the_sync_and_heals() {
    for backend in BACKENDS {
        let events = nginx().into_iter().chain(other(&[("10.20.1.1", "n1")]));
        let mut desk = Desk::synced(config("1.28.3"), Netns::new(backend), events);
        desk.pass(5 * SECOND);
        desk.meanwhile = vec![slice("nginx", &[("10.20.10.127", "n1")])];
        desk.tell(slice("other", &[("10.20.1.2", "n1")]));
        assert!(failed(&desk), "{backend:?}: {}", desk.said());
        desk.pass(30 * SECOND);
        assert!(!desk.kernel.save("nat").contains("10.20.11.179"));
    }
}

/// The other symptom of the report: a jump to a chain that no sync wrote. It heals by itself, since
/// what fails makes the next sync full.
#[test]
fn a_service_told_while_changes_are_taken_over_fails_the_sync_and_the_next_one_makes_it() {
    let events = nginx().into_iter().chain(other(&[("10.20.1.1", "n1")]));
    let mut desk = Desk::synced(config("1.28.3"), Invented::default(), events);
    desk.pass(5 * SECOND);
    let late = [
        plain("late", "10.96.10.12"),
        slice("late", &[("10.20.3.9", "n1")]),
    ];
    desk.meanwhile = late.into();
    desk.tell(slice("other", &[("10.20.1.2", "n1")]));
    assert!(
        desk.said().contains("Failed to execute iptables-restore"),
        "{}",
        desk.said()
    );
    desk.pass(30 * SECOND);
    assert!(desk.last_restore().contains(LATE));
}

/// What the node says waits for the sync: only services and endpoints have trackers of their own.
#[test]
fn labels_told_while_changes_are_taken_over_make_the_next_sync_full() {
    let mut desk = Desk::synced(config("1.28.3"), Invented::default(), nginx());
    desk.pass(5 * SECOND);
    desk.forget();
    desk.meanwhile = vec![node(json!({"zone": "a"}))];
    desk.tell(slice("nginx", &[("10.20.3.9", "n1")]));
    let typed: Vec<&str> = desk.ran.iter().map(|(_, it)| it.argv[0].as_str()).collect();
    let restore = typed.iter().position(|it| *it == "iptables-restore");
    let ensured = typed.iter().position(|it| *it == "iptables");
    assert!(
        restore < ensured,
        "the sync under way is partial: {typed:?}"
    );
    assert_eq!(desk.ensured(), 14);
}

const XLB: &str = "KUBE-XLB-IU46S4VZFN77LK6S";

/// nginx behind a load balancer that keeps to the node's own endpoints.
fn local_nginx() -> [Event; 2] {
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.10.10", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 32100, "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}});
    [
        service_with("nginx", json!({}), spec, status),
        slice("nginx", &[("10.20.10.127", "n1"), ("10.20.11.179", "n2")]),
    ]
}

/// 1.23 wrote it, `version` comes after it, and then the endpoint of this node goes away.
fn upgraded(backend: crate::netns::Backend, versions: &[&str]) -> Desk<Netns> {
    let mut netns = Netns::new(backend);
    for version in versions {
        netns = Desk::synced(config(version), netns, local_nginx()).kernel;
    }
    let last = versions.last().expect("a version");
    let mut desk = Desk::synced(config(last), netns, local_nginx());
    desk.tell_later(slice("nginx", &[("10.20.11.179", "n2")]));
    desk
}

fn failed(desk: &Desk<Netns>) -> bool {
    desk.said().contains("Failed to execute iptables-restore")
}

#[test]
fn chains_that_1_23_left_fail_every_sync_from_1_28_on_once_an_endpoint_goes() {
    for backend in BACKENDS {
        for version in ["1.28", "1.30", "1.34"] {
            let mut desk = upgraded(backend, &["1.23", version]);
            assert!(failed(&desk), "{backend:?} {version}: {}", desk.said());
            desk.forget();
            desk.pass(31 * SECOND);
            assert!(failed(&desk), "not even a full sync: {}", desk.said());
            // Whoever removes the leftovers by hand heals it.
            desk.kernel
                .restore(&format!("*nat\n:{XLB} - [0:0]\n-X {XLB}\nCOMMIT\n"));
            desk.forget();
            desk.pass(31 * SECOND);
            assert!(!failed(&desk), "{}", desk.said());
            assert!(!desk.kernel.save("nat").contains("10.20.10.127:80"));
        }
    }
}

#[test]
fn who_comes_by_way_of_a_release_until_1_27_is_rid_of_what_1_23_left() {
    for versions in [&["1.23", "1.27"][..], &["1.23", "1.24", "1.30"]] {
        for backend in BACKENDS {
            let mut desk = upgraded(backend, versions);
            assert!(!failed(&desk), "{backend:?} {versions:?}: {}", desk.said());
            assert!(!desk.kernel.save("nat").contains("KUBE-XLB-"));
        }
    }
}

#[test]
fn a_service_that_goes_takes_its_1_23_chain_along_only_until_1_27() {
    for (version, stays) in [("1.27", false), ("1.28", true)] {
        let netns = Netns::new(BACKENDS[0]);
        let early = Desk::synced(config("1.23"), netns, local_nginx()).kernel;
        let mut desk = Desk::synced(config(version), early, local_nginx());
        desk.tell_later(service_gone("nginx"));
        assert_eq!(
            desk.kernel.save("nat").contains("KUBE-XLB-"),
            stays,
            "{version}"
        );
    }
}

#[test]
fn a_shorter_full_sync_period_makes_releases_heal_sooner_that_have_one_and_no_other() {
    for (version, heals) in [("1.32", false), ("1.33", true), ("1.34", true)] {
        let config = Config {
            full_sync_period: 3 * SECOND,
            ..config(version)
        };
        let mut desk = Desk::synced(config, Netns::new(BACKENDS[0]), nginx());
        desk.kernel.sh("iptables -t nat -F PREROUTING");
        desk.pass(10 * SECOND);
        let rules = desk.kernel.chain("nat", "PREROUTING");
        assert_eq!(
            rules.iter().any(|it| it.ends_with("-j KUBE-SERVICES")),
            heals,
            "{version}"
        );
    }
}
