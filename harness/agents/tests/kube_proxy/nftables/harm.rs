//! Somebody else changes kube-proxy's table. Nobody watches it: what is lost is missed when a write needs it, or
//! made again by a full sync.

use chainbreak_agents::kube_proxy::Event;

use super::nftables;
use crate::{
    desk::{Desk, HOUR, SECOND},
    netns::{BACKENDS, Netns},
    objects::{nginx, node, other, plain, service_gone, slice},
};

const SERVICE: &str = "chain service-3DQLO4TQ-test/nginx/tcp/http {";
const ENDPOINT: &str = "chain endpoint-5YCAXA76-test/nginx/tcp/http__10.20.10.127/80 {";

fn synced(version: &str) -> Desk<Netns> {
    let events = nginx().into_iter().chain(other(&[("10.20.11.1", "n2")]));
    let mut desk = Desk::synced(nftables(version), Netns::new(BACKENDS[0]), events);
    desk.pass(5 * SECOND);
    desk.forget();
    desk
}

fn leads_to_nginx(desk: &mut Desk<Netns>) -> bool {
    let table = desk.kernel.table();
    table
        .get("map service-ips {")
        .is_some_and(|it| it.contains("10.96.10.10 . tcp . 80 : goto service-3DQLO4TQ-test/nginx"))
}

fn change_other(desk: &mut Desk<Netns>, ip: &str) {
    desk.tell_later(slice("other", &[(ip, "n2")]));
}

#[test]
fn a_deleted_table_is_missed_by_the_next_change_and_made_anew_by_the_one_after() {
    for version in ["1.31", "1.32", "1.33", "1.34", "1.36"] {
        let mut desk = synced(version);
        desk.kernel.sh("nft delete table ip kube-proxy");
        desk.pass(10 * 60 * SECOND);
        assert!(desk.ran.is_empty(), "{version}: nobody looks");
        change_other(&mut desk, "10.20.11.2");
        let said = desk.said();
        assert!(
            said.contains("\"nftables sync failed\" err=<\n\t/dev/stdin:1:")
                && said.contains("Error: No such file or directory")
                && said.contains("\n > ipFamily=\"IPv4\""),
            "{version}: {said}"
        );
        assert!(said.contains("\"Sync failed\" ipFamily=\"IPv4\" retryingTime=\"30s\""));
        assert!(desk.kernel.table().is_empty(), "{version}");
        desk.forget();
        desk.pass(31 * SECOND);
        assert!(leads_to_nginx(&mut desk), "{version}: {}", desk.said());
        let said = desk.said();
        assert!(!said.contains("ync failed"), "{version}: {said}");
        // A whole table that is not there is not listed without a word.
        let unlisted = said.contains("\"Failed to list existing nftables objects\" err=<");
        assert_eq!(
            unlisted,
            !["1.31", "1.32"].contains(&version),
            "{version}: {said}"
        );
    }
}

#[test]
fn an_empty_sync_does_not_notice_that_the_table_is_gone() {
    let mut desk = synced("1.32");
    desk.kernel.sh("nft delete table ip kube-proxy");
    // The hourly run has nothing to change.
    desk.pass(3 * HOUR);
    assert!(!desk.said().contains("failed"), "{}", desk.said());
    assert!(desk.kernel.table().is_empty());
}

#[test]
fn until_1_32_flushed_elements_stay_lost() {
    for version in ["1.31", "1.32"] {
        let mut desk = synced(version);
        desk.kernel.sh("nft flush map ip kube-proxy service-ips");
        for ip in ["10.20.11.2", "10.20.11.3"] {
            change_other(&mut desk, ip);
        }
        desk.pass(5 * HOUR);
        assert!(!leads_to_nginx(&mut desk), "{version}");
        assert!(
            !desk.said().contains("failed"),
            "{version}: {}",
            desk.said()
        );
        // A change that deletes one of them fails, and what follows is full.
        desk.tell_later(service_gone("other"));
        assert!(desk.said().contains("nftables sync failed"), "{version}");
        desk.pass(31 * SECOND);
        assert!(leads_to_nginx(&mut desk), "{version}: {}", desk.said());
    }
}

#[test]
fn from_1_33_flushed_elements_come_back_with_the_hourly_full_sync() {
    for version in ["1.33", "1.34", "1.36"] {
        let mut desk = synced(version);
        desk.kernel.sh("nft flush map ip kube-proxy service-ips");
        change_other(&mut desk, "10.20.11.2");
        desk.pass(HOUR / 2);
        assert!(!leads_to_nginx(&mut desk), "{version}");
        // The hour counts from the last full sync, and somebody must sync then.
        desk.pass(HOUR);
        assert!(leads_to_nginx(&mut desk), "{version}: {}", desk.said());
        assert!(desk.said().contains("fullSync=true"), "{version}");
    }
}

#[test]
fn an_emptied_chain_stays_so_until_its_service_changes_or_a_full_sync() {
    let mut desk = synced("1.32");
    desk.kernel.sh(&format!(
        "nft flush chain ip kube-proxy {}",
        SERVICE.split(' ').nth(1).unwrap()
    ));
    change_other(&mut desk, "10.20.11.2");
    desk.pass(5 * HOUR);
    assert!(!desk.kernel.table().contains_key(SERVICE));
    desk.tell_later(slice("nginx", &[("10.20.10.127", "n1")]));
    assert!(desk.kernel.table()[SERVICE].contains("numgen random mod 1 vmap"));
}

#[test]
fn a_restart_or_other_node_labels_mend_everything_in_1_32() {
    let mut desk = synced("1.32");
    desk.kernel.sh("nft flush map ip kube-proxy service-ips");
    desk.tell_later(node(serde_json::json!({"a": "b"})));
    assert!(leads_to_nginx(&mut desk), "{}", desk.said());
}

/// The first sync of a process takes an endpoint's chain as it finds it from 1.33 on, also an empty one.
#[test]
fn a_restart_of_1_33_leaves_an_emptied_endpoint_chain() {
    for (version, mended) in [("1.32", true), ("1.33", false)] {
        let mut desk = synced(version);
        let chain = ENDPOINT.split(' ').nth(1).unwrap();
        desk.kernel
            .sh(&format!("nft flush chain ip kube-proxy {chain}"));
        desk.kernel.sh("nft flush map ip kube-proxy service-ips");
        let events = nginx().into_iter().chain(other(&[("10.20.11.1", "n2")]));
        let mut next = Desk::synced(nftables(version), desk.kernel, events);
        assert!(leads_to_nginx(&mut next), "{version}: {}", next.said());
        assert_eq!(
            next.kernel.table().contains_key(ENDPOINT),
            mended,
            "{version}"
        );
        next.pass(2 * HOUR);
        assert!(
            next.kernel.table().contains_key(ENDPOINT),
            "{version}: the hourly full sync"
        );
    }
}

#[test]
fn what_an_earlier_process_left_is_taken_over() {
    for version in ["1.32", "1.34", "1.36"] {
        let mut desk = synced(version);
        let before = desk.kernel.table();
        // Another priority than this one's, and a service that went while nobody was there.
        desk.kernel
            .sh("nft add chain ip kube-proxy service-AAAAAAAA-test/gone/tcp/http");
        let events = nginx().into_iter().chain(other(&[("10.20.11.1", "n2")]));
        let mut next = Desk::synced(nftables(version), desk.kernel, events);
        next.tell_later(plain("third", "10.96.10.12"));
        next.tell_later(service_gone("third"));
        next.pass(HOUR + SECOND);
        assert_eq!(next.kernel.table(), before, "{version}: {}", next.said());
        let listed = next.kernel.sh("nft list table ip kube-proxy");
        assert!(!listed.contains("test/gone"), "{version}: {listed}");
    }
}

#[test]
fn a_stale_chain_that_cannot_be_deleted_makes_the_sync_full_from_1_33() {
    for (version, mended) in [("1.32", false), ("1.33", true)] {
        let mut desk = synced(version);
        desk.tell_later(slice("nginx", &[("10.20.10.127", "n1")]));
        desk.kernel.sh("nft delete table ip kube-proxy");
        desk.forget();
        change_other(&mut desk, "10.20.11.2");
        let said = desk.said();
        assert!(
            said.contains("\"Unable to delete stale chains; will retry later\" err=<"),
            "{version}: {said}"
        );
        assert_eq!(
            said.contains("nftables sync failed"),
            !mended,
            "{version}: {said}"
        );
        assert_eq!(leads_to_nginx(&mut desk), mended, "{version}: {said}");
    }
}

#[test]
fn without_a_usable_nft_the_process_ends() {
    let mut desk = Desk::new(nftables("1.32"), crate::desk::Invented::default());
    desk.tell(Event::ServicesSynced);
    assert_eq!(
        desk.exited.as_deref(),
        Some("unable to create proxier: could not run nftables command: exit status 1")
    );
}
