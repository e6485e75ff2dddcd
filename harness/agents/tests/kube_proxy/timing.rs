//! When syncs come, seen from outside.

use std::time::Duration;

use serde_json::json;

use crate::{
    desk::{Desk, HOUR, Invented, SECOND},
    objects::{config, nginx, node, plain},
};

fn synced(version: &str) -> Desk<Invented> {
    Desk::synced(config(version), Invented::default(), nginx())
}

fn milliseconds(desk: &Desk<Invented>) -> Vec<u128> {
    desk.restore_times()
        .iter()
        .map(Duration::as_millis)
        .collect()
}

/// One event every 100 ms for 3 s, at rest before. Of the burst of two, a tenth is left after the
/// second run, so the third comes 0.9 s later: a second from start to start (issue 138073).
#[test]
fn a_stream_of_events_is_synced_once_a_second_with_a_burst_until_1_33() {
    for (version, times) in [
        ("1.32", vec![5_000, 5_100, 6_000, 7_000, 8_000]),
        ("1.34", vec![5_000, 6_000, 7_000, 8_000]),
    ] {
        let mut desk = synced(version);
        desk.pass(5 * SECOND);
        desk.forget();
        for i in 0..30 {
            desk.tell(plain(&format!("s{i}"), &format!("10.96.3.{i}")));
            desk.pass(Duration::from_millis(100));
        }
        desk.pass(5 * SECOND);
        assert_eq!(milliseconds(&desk), times, "{version}");
    }
}

#[test]
fn without_events_a_partial_sync_comes_every_hour() {
    let mut desk = synced("1.32");
    desk.forget();
    desk.pass(2 * HOUR);
    assert_eq!(desk.restore_times(), [HOUR, 2 * HOUR]);
    assert_eq!(desk.ensured(), 0);
}

/// The last full sync must be more than an hour old.
#[test]
fn from_1_33_a_full_sync_comes_after_an_hour() {
    for version in ["1.33", "1.34"] {
        let mut desk = synced(version);
        desk.forget();
        desk.pass(3599 * SECOND);
        desk.tell(plain("early", "10.96.3.1"));
        assert_eq!((desk.restores().len(), desk.ensured()), (1, 0), "{version}");
        desk.pass(2 * SECOND);
        desk.tell(plain("late", "10.96.3.2"));
        assert_eq!(
            (desk.restores().len(), desk.ensured()),
            (2, 14),
            "{version}"
        );
    }
}

#[test]
fn a_change_of_the_node_s_labels_makes_a_full_sync() {
    let zone = |name: &str| node(json!({"topology.kubernetes.io/zone": name, "x": "y"}));
    for (version, jumps) in [("1.20", 0), ("1.26", 12), ("1.27", 14), ("1.34", 14)] {
        let mut desk = synced(version);
        desk.tell_later(zone("a"));
        desk.forget();
        desk.tell_later(zone("b"));
        assert_eq!(desk.ensured(), jumps, "{version}");
        desk.forget();
        desk.tell_later(zone("b"));
        assert_eq!(desk.ensured(), 0, "{version}: nothing changed");
    }
}

#[test]
fn from_1_34_only_labels_of_the_topology_count() {
    for (version, syncs) in [("1.33", 1), ("1.34", 0)] {
        let mut desk = synced(version);
        desk.tell_later(node(json!({"topology.kubernetes.io/zone": "a"})));
        desk.forget();
        desk.tell_later(node(json!({"topology.kubernetes.io/zone": "a", "x": "y"})));
        assert_eq!(desk.restores().len(), syncs, "{version}");
    }
}

#[test]
fn from_1_34_a_node_outside_all_zones_asks_for_no_sync_at_the_start() {
    for (version, syncs) in [("1.33", 1), ("1.34", 0)] {
        let mut desk = synced(version);
        desk.forget();
        desk.tell_later(node(json!({"kubernetes.io/hostname": "n1"})));
        assert_eq!(desk.restores().len(), syncs, "{version}");
    }
}
