//! The counters of `nfnetlink_acct`.

use chainbreak_agents::kube_proxy::Config;
use serde_json::json;

use crate::{
    desk::{Desk, Invented, failed},
    objects::{config, nginx, service, slice},
};

const INVALID: &str = "-A KUBE-FORWARD -m conntrack --ctstate INVALID";
const COUNT: &str = " -m nfacct --nfacct-name ct_state_invalid_dropped_pkts";
const NODE_PORT: &str = "-A KUBE-NODEPORTS -m comment --comment test/nginx:http -m tcp -p tcp";

fn node_port() -> [chainbreak_agents::kube_proxy::Event; 2] {
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.10.10", "ports": ports});
    [
        service("nginx", spec),
        slice("nginx", &[("10.20.1.1", "n1")]),
    ]
}

#[test]
fn from_1_31_rules_count_where_the_kernel_can() {
    for (version, kernel, counts) in [
        ("1.30", Invented::counting(), false),
        ("1.31.0", Invented::counting(), true),
        ("1.36", Invented::counting(), true),
        ("1.36", Invented::default(), false),
    ] {
        let desk = Desk::synced(config(version), kernel, node_port());
        let input = desk.last_restore();
        let count = if counts { COUNT } else { "" };
        assert!(
            input.contains(&format!("{INVALID}{count} -j DROP\n")),
            "{version}: {input}"
        );
        let to = "KUBE-EXT-IU46S4VZFN77LK6S";
        let plain = format!("{NODE_PORT} --dport 30080 -j {to}\n");
        let counting = format!(
            "{NODE_PORT} -d 127.0.0.0/8 --dport 30080 -m nfacct --nfacct-name \
             localhost_nps_accepted_pkts -j {to}\n"
        );
        let expected = if counts { counting + &plain } else { plain };
        let found: Vec<&str> = input
            .lines()
            .filter(|line| line.starts_with("-A KUBE-NODEPORTS"))
            .collect();
        assert_eq!(found.join("\n") + "\n", expected, "{version}");
    }
}

#[test]
fn the_kernel_is_asked_once_and_counters_are_made_once_by_full_syncs() {
    let mut desk = Desk::synced(config("1.32"), Invented::counting(), nginx());
    assert_eq!(
        desk.typed("netlink"),
        [
            "netlink nfacct get IMayExist",
            "netlink nfacct get ct_state_invalid_dropped_pkts",
            "netlink nfacct new ct_state_invalid_dropped_pkts",
            "netlink nfacct get localhost_nps_accepted_pkts",
            "netlink nfacct new localhost_nps_accepted_pkts",
        ]
    );
    desk.forget();
    desk.tell_later(slice("nginx", &[("10.20.1.1", "n1")]));
    assert!(desk.typed("netlink").is_empty(), "a partial sync");
    assert!(desk.last_restore().contains(COUNT), "goes on counting");
}

#[test]
fn a_kernel_without_them_is_complained_of_once_and_from_1_31_only() {
    let complaint = "\"Failed to create nfacct runner, nfacct based metrics won't be available\" \
                     err=\"nfacct sub-system not available\" ipFamily=\"IPv4\"";
    for (version, times) in [("1.30", 0), ("1.31", 1)] {
        let mut desk = Desk::synced(config(version), Invented::default(), nginx());
        desk.tell_later(slice("nginx", &[("10.20.1.1", "n1")]));
        assert_eq!(desk.said().matches(complaint).count(), times, "{version}");
    }
}

#[test]
fn a_counter_that_cannot_be_made_is_left_out_of_the_rules() {
    let mut kernel = Invented::counting();
    let no_room = failed(12, "cannot allocate memory");
    kernel
        .outputs
        .insert("nfacct new ct_state_invalid", no_room);
    let desk = Desk::synced(config("1.32"), kernel, node_port());
    assert!(
        desk.last_restore()
            .contains(&format!("{INVALID} -j DROP\n"))
    );
    assert!(desk.last_restore().contains("localhost_nps_accepted_pkts"));
    assert!(
        desk.said().contains(
            "\"Failed to create nfacct counter; the corresponding metric will not be updated\" \
             err=\"unexpected error: cannot allocate memory\" ipFamily=\"IPv4\" \
             counter=\"ct_state_invalid_dropped_pkts\"\n"
        ),
        "{}",
        desk.said()
    );
}

#[test]
fn without_node_ports_on_localhost_nothing_counts_them() {
    let config = Config {
        localhost_node_ports: false,
        ..config("1.32")
    };
    let desk = Desk::synced(config, Invented::counting(), node_port());
    assert!(!desk.last_restore().contains("localhost_nps_accepted_pkts"));
}
