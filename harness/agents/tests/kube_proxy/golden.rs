//! The text of restore inputs and the commands around them, letter by letter.

use chainbreak_agents::kube_proxy::{Config, Event};

use crate::{
    desk::{Desk, Invented, SECOND},
    objects::{config, nginx, node, other, plain, service, service_gone, slice},
};
use serde_json::json;

fn synced(config: Config, events: impl IntoIterator<Item = Event>) -> Desk<Invented> {
    Desk::synced(config, Invented::default(), events)
}

#[test]
fn a_full_sync_writes_every_chain() {
    for version in ["1.27", "1.32.2", "1.33", "1.34"] {
        let desk = synced(config(version), nginx());
        assert_eq!(
            desk.restores(),
            [include_str!("golden/full-1.32.txt")],
            "{version}"
        );
    }
}

#[test]
fn a_partial_sync_jumps_to_chains_that_it_does_not_declare() {
    for version in ["1.27", "1.32", "1.33", "1.34"] {
        let mut desk = synced(config(version), nginx());
        // A slice of no known service changes nothing but makes a sync.
        desk.tell_later(slice("nobody", &[("10.20.1.1", "n1")]));
        assert_eq!(
            desk.last_restore(),
            include_str!("golden/partial-1.32.txt"),
            "{version}"
        );
    }
}

#[test]
fn until_1_26_every_sync_is_full() {
    for version in ["1.20", "1.26"] {
        let mut desk = synced(config(version), nginx());
        let first = desk.last_restore().to_owned();
        desk.forget();
        desk.tell_later(slice("nobody", &[("10.20.1.1", "n1")]));
        assert_eq!(desk.restores(), [first], "{version}");
        assert!(desk.ensured() >= 8, "{version}");
    }
}

#[test]
fn a_partial_sync_writes_the_chains_of_changed_services_only() {
    let mut desk = synced(
        config("1.32"),
        nginx().into_iter().chain(other(&[("10.20.1.1", "n1")])),
    );
    desk.forget();
    desk.tell_later(slice("other", &[("10.20.1.2", "n1")]));
    let input = desk.last_restore();
    assert!(!input.contains(":KUBE-SVC-IU46S4VZFN77LK6S"), "{input}");
    assert!(input.contains("-j KUBE-SVC-IU46S4VZFN77LK6S\n"), "{input}");
    assert!(input.contains("--to-destination 10.20.1.2:80\n"), "{input}");
    assert_eq!(desk.ensured(), 0);
}

#[test]
fn nothing_is_written_before_services_and_slices_are_both_known() {
    let mut desk = Desk::new(config("1.32"), Invented::default());
    for event in nginx() {
        desk.tell(event);
    }
    desk.tell(Event::ServicesSynced);
    desk.pass(10 * SECOND);
    assert!(desk.restores().is_empty());
    let text = "Not syncing iptables until Services and Endpoints have been received from master";
    assert!(desk.said().contains(text), "{}", desk.said());
    desk.tell(Event::SlicesSynced);
    assert_eq!(desk.restores().len(), 1);
}

#[test]
fn a_missing_jump_is_prepended_and_one_that_is_there_only_checked() {
    let mut desk = synced(config("1.32"), []);
    let typed = desk.typed("iptables");
    let jump = "INPUT -t filter -m conntrack --ctstate NEW -m comment --comment kubernetes \
                externally-visible service portals -j KUBE-EXTERNAL-SERVICES";
    let first = typed.iter().position(|it| it.contains("EXTERNAL")).unwrap();
    assert_eq!(
        typed[first..first + 3],
        [
            "iptables -w 5 -W 100000 -N KUBE-EXTERNAL-SERVICES -t filter".to_owned(),
            format!("iptables -w 5 -W 100000 -C {jump}"),
            format!("iptables -w 5 -W 100000 -I {jump}"),
        ]
    );
    assert_eq!(desk.typed("iptables-save"), ["iptables-save -t nat"]);
    assert_eq!(
        desk.typed("iptables-restore"),
        ["iptables-restore -w 5 -W 100000 --noflush --counters"]
    );
    desk.forget();
    desk.tell_later(node(json!({"a": "b"})));
    // 14 jumps, a chain and a rule each, all there; the canary's watch comes on top elsewhere.
    assert_eq!(desk.typed("iptables").len(), 28);
    assert_eq!(desk.ensured(), 14);
}

#[test]
fn filter_is_saved_as_well_until_1_24() {
    let saves = |version| synced(config(version), []).typed("iptables-save");
    let (filter, nat) = ("iptables-save -t filter", "iptables-save -t nat");
    for version in ["1.20", "1.24"] {
        assert_eq!(saves(version), [filter, nat], "{version}");
    }
    for version in ["1.25", "1.32", "1.34"] {
        assert_eq!(saves(version), [nat], "{version}");
    }
}

#[test]
fn chains_of_a_service_that_is_gone_are_emptied_and_deleted_in_the_same_input() {
    for version in ["1.20", "1.26", "1.32", "1.34"] {
        let mut desk = synced(config(version), nginx());
        desk.tell_later(service_gone("nginx"));
        let input = desk.last_restore();
        for chain in [
            "KUBE-SVC-IU46S4VZFN77LK6S",
            "KUBE-SEP-XAAQ4E3V5J6GEKUJ",
            "KUBE-SEP-S7XCV467AW272WRX",
        ] {
            assert!(input.contains(&format!("\n:{chain} - [0:0]\n")), "{input}");
            assert!(input.contains(&format!("\n-X {chain}\n")), "{input}");
        }
        assert!(!input.contains("-j KUBE-SVC"), "{input}");
        let tail =
            "\"kubernetes service nodeports; NOTE: this must be the last rule in this chain\"";
        let tail = input.find(tail).unwrap();
        assert!(
            input.rfind("-X ").unwrap() < tail,
            "deletions come before the tail"
        );
    }
}

/// Left by 1.23 or older, and by nobody's leave (issue 132516).
#[test]
fn xlb_chains_are_swept_by_1_20_only() {
    for (version, swept) in [("1.20", true), ("1.32", false)] {
        let mut desk = synced(config(version), []);
        let input = "*nat\n:KUBE-XLB-AAAAAAAAAAAAAAAA - [0:0]\nCOMMIT\n";
        desk.kernel.plant(input);
        desk.tell_later(plain("nginx", "10.96.10.10"));
        assert_eq!(
            desk.last_restore().contains("-X KUBE-XLB-"),
            swept,
            "{version}"
        );
    }
}

#[test]
fn the_invalid_rule_is_left_out_for_a_liberal_conntrack_from_1_29() {
    let rule = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n";
    for (version, liberal, there) in [
        ("1.28", true, true),
        ("1.29", true, false),
        ("1.32", true, false),
        ("1.32", false, true),
        ("1.20", true, true),
    ] {
        let config = Config {
            tcp_be_liberal: liberal,
            ..config(version)
        };
        let desk = synced(config, []);
        assert_eq!(
            desk.last_restore().contains(rule),
            there,
            "{version} {liberal}"
        );
        let said = desk
            .said()
            .contains("nf_conntrack_tcp_be_liberal set, not installing DROP rules");
        assert_eq!(said, !there, "{version} {liberal}");
    }
}

#[test]
fn without_localhost_node_ports_nothing_opens_or_closes_the_loopback() {
    let closed = Config {
        localhost_node_ports: false,
        ..config("1.32")
    };
    let desk = synced(closed, nginx());
    let input = desk.last_restore();
    assert!(!input.contains("KUBE-FIREWALL"), "{input}");
    assert!(
        input.contains("--dst-type LOCAL ! -d 127.0.0.0/8 -j KUBE-NODEPORTS\n"),
        "{input}"
    );
}

#[test]
fn masquerade_all_and_no_cluster_cidr_change_whom_the_cluster_ip_masquerades() {
    let masquerade = |config| {
        let desk = synced(config, nginx());
        let rules = desk.last_restore().lines();
        let rules = rules.filter(|it| it.contains("cluster IP") && it.ends_with("KUBE-MARK-MASQ"));
        let sources = rules.map(|it| it.split_once("--dport 80 ").unwrap().1.to_owned());
        sources.collect::<Vec<_>>()
    };
    assert_eq!(
        masquerade(config("1.32")),
        ["! -s 10.20.0.0/16 -j KUBE-MARK-MASQ"]
    );
    let all = Config {
        masquerade_all: true,
        ..config("1.32")
    };
    assert_eq!(masquerade(all), ["-j KUBE-MARK-MASQ"]);
    let none = Config {
        cluster_cidr: None,
        ..config("1.32")
    };
    assert!(masquerade(none).is_empty());
}

#[test]
fn external_ips_lead_to_the_external_chain() {
    let spec = json!({
        "clusterIP": "10.96.10.30",
        "externalIPs": ["192.0.2.30"],
        "ports": [{"name": "http", "port": 80}],
    });
    let events = [
        service("ext", spec.clone()),
        slice("ext", &[("10.20.1.1", "n2")]),
    ];
    let desk = synced(config("1.32"), events);
    let input = desk.last_restore();
    assert!(input.contains(
        "-A KUBE-SERVICES -m comment --comment \"test/ext:http external IP\" -m tcp -p tcp \
         -d 192.0.2.30 --dport 80 -j KUBE-EXT-"
    ));
    assert!(input.contains(
        "\"masquerade traffic for test/ext:http external destinations\" -j KUBE-MARK-MASQ"
    ));
    let desk = synced(config("1.32"), [service("ext", spec)]);
    assert!(desk.last_restore().contains(
        "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"test/ext:http has no endpoints\" -m tcp \
         -p tcp -d 192.0.2.30 --dport 80 -j REJECT\n"
    ));
}

#[test]
fn the_order_of_services_is_chance_and_the_seed_decides_it() {
    let services = || (0..20).map(|i| plain(&format!("s{i}"), &format!("10.96.1.{i}")));
    let inputs = |seed| {
        let config = Config {
            seed,
            ..config("1.32")
        };
        let mut desk = synced(config, services());
        desk.tell_later(plain("more", "10.96.2.1"));
        desk.restores()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let order = |input: &str| -> Vec<String> {
        let rules = input.lines().filter(|it| it.contains("has no endpoints"));
        rules
            .filter(|it| !it.contains("test/more"))
            .map(str::to_owned)
            .collect()
    };
    let [first, second] = inputs(1).try_into().unwrap();
    assert_ne!(order(&first), order(&second), "each sync has its own order");
    assert_eq!(inputs(1), [first.clone(), second]);
    assert_ne!(inputs(2)[0], first);
}

#[test]
fn a_change_that_changes_nothing_makes_no_sync() {
    let mut desk = synced(config("1.32"), nginx());
    desk.forget();
    for event in nginx() {
        desk.tell_later(event);
    }
    desk.pass(60 * SECOND);
    assert!(desk.restores().is_empty(), "{:?}", desk.restores());
}

#[test]
fn headless_and_external_names_and_other_families_have_no_rules() {
    let desk = synced(
        config("1.32"),
        [
            plain("headless", "None"),
            plain("six", "fd00::1"),
            service(
                "name",
                json!({"type": "ExternalName", "externalName": "x.example"}),
            ),
        ],
    );
    assert!(
        !desk.last_restore().contains("test/"),
        "{}",
        desk.last_restore()
    );
}
