//! The model of a restore against the real one, in a network namespace of its own: as root, or as an
//! ordinary user in a user namespace.

mod namespace;

use std::process::Output;

use chainbreak_netfilter::{Family, Order, Ruleset, apply, committed, diff, dumps::Dumps, nft};

const FULL: &str = include_str!("data/full-sync.restore");
const PARTIAL: &str = include_str!("data/partial-sync.restore");
/// Removes what a partial sync relies on, as a third party does.
const SABOTAGE: &str = "*nat\n:KUBE-SVC-IU46S4VZFN77LK6S - -\n:KUBE-SERVICES - -\n\
    -D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
    --delete-chain KUBE-SVC-IU46S4VZFN77LK6S\nCOMMIT\n";
const RESTORE: [&str; 2] = ["iptables-restore", "--noflush"];
const JUMP: [&str; 11] = [
    "iptables",
    "-t",
    "nat",
    "-I",
    "PREROUTING",
    "-m",
    "comment",
    "--comment",
    "kubernetes service portals",
    "-j",
    "KUBE-SERVICES",
];

/// Runs a shell script in a fresh network namespace, with `$B` the iptables backend. Saves name their table: an
/// ordinary user may not read the list of legacy tables.
fn in_namespace(backend: &str, script: &str) -> Output {
    let (mut command, _lock) = namespace::unshare();
    command.args(["sh", "-c", script]).env("B", backend);
    command
        .env("FULL", FULL)
        .env("PARTIAL", PARTIAL)
        .env("SABOTAGE", SABOTAGE);
    command.output().expect("unshare (package util-linux) runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_model_makes_of_a_full_sync_what_the_kernel_makes_of_it() {
    for backend in ["legacy", "nft"] {
        let output = in_namespace(
            backend,
            "set -e; printf '%s' \"$FULL\" | iptables-$B-restore --noflush
             iptables-$B -t nat -I PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES
             iptables-$B-save -t filter; iptables-$B-save -t nat",
        );
        assert!(
            output.status.success(),
            "{backend}: {}",
            text(&output.stderr)
        );
        let real = Ruleset::parse(&text(&output.stdout)).unwrap();
        let mut model = Ruleset::default();
        apply(&mut model, &RESTORE, FULL).unwrap();
        apply(&mut model, &JUMP, "").unwrap();
        let difference = diff(Family::V4, &model, &real, Order::Kept);
        assert!(difference.is_empty(), "{backend}: {difference:#?}");
        assert_eq!(real.count("nat", "PREROUTING", Some("KUBE-SERVICES")), 1);
    }
}

#[test]
fn a_partial_sync_after_sabotage_fails_in_the_model_as_in_the_kernel() {
    for backend in ["legacy", "nft"] {
        let output = in_namespace(
            backend,
            "set -e; printf '%s' \"$FULL\" | iptables-$B-restore --noflush
             iptables-$B -t nat -I PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES
             printf '%s' \"$SABOTAGE\" | iptables-$B-restore --noflush
             iptables-$B -t filter -F KUBE-FORWARD
             set +e; printf '%s' \"$PARTIAL\" | iptables-$B-restore --noflush; code=$?
             iptables-$B-save -t filter; iptables-$B-save -t nat; exit $code",
        );
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{backend}: {stderr}");
        let real = Ruleset::parse(&stdout).unwrap();
        let mut model = Ruleset::default();
        apply(&mut model, &RESTORE, FULL).unwrap();
        apply(&mut model, &JUMP, "").unwrap();
        apply(&mut model, &RESTORE, SABOTAGE).unwrap();
        apply(&mut model, &["iptables", "-F", "KUBE-FORWARD"], "").unwrap();
        let refusal = apply(&mut model, &RESTORE, PARTIAL)
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("KUBE-SVC-IU46S4VZFN77LK6S"), "{refusal}");
        let difference = diff(Family::V4, &model, &real, Order::Kept);
        assert!(difference.is_empty(), "{backend}: {difference:#?}");
        // The filter part was committed before nat failed, and the words on stderr say so.
        let kept = committed(&RESTORE, PARTIAL, 2, &stderr).unwrap();
        assert!(!kept.is_empty() && kept.iter().all(|change| change.table == "filter"));
        assert_eq!(
            real.chain("filter", "KUBE-FORWARD")
                .map(|chain| chain.rules.len()),
            Some(3)
        );
    }
}

/// What numbers stand for that agents do not write.
const NUMBERED: &str = "table inet numbered {
    set protocols { type inet_proto; elements = { tcp, 47, icmp, ipv6-icmp } }
    map states { type ipv4_addr . ct_state . inet_proto : verdict; elements = { 10.0.0.6 . new . tcp : drop } }
    set types { type fib_addrtype; elements = { local, broadcast } }
    set bits { type tcp_flag; elements = { syn, ack } }
    set typed { typeof ip daddr . meta l4proto . th dport; elements = { 10.0.0.17 . udp . 6 } }
    chain input {
        type filter hook input priority 0;
        tcp flags & (fin | syn | rst | ack) == syn drop
        tcp flags != syn accept
        ct direction reply ct state { established, new } accept
        ct state vmap { invalid : drop, established : accept }
        ct status & (snat | dnat) == 0 ct state established,related,untracked accept
        fib daddr . iif type != { local, multicast } drop
        fib saddr . mark . iif oif exists ip6 nexthdr udp meta mark 6 accept
        iifname \"lo\" meta l4proto { tcp, 253 } log prefix \"ct state 0x8\" comment \"meta l4proto 6\"
        ip saddr . meta l4proto . th dport vmap { 10.0.0.6 . tcp . 6 : drop, 10.0.0.7 . udp . 17 : accept }
    }
}
";

#[test]
fn what_nft_prints_in_numbers_is_read_as_what_it_prints_by_name() {
    for rules in [
        NUMBERED,
        include_str!("data/kube-proxy-1.35.4.nft"),
        include_str!("data/kube-proxy-1.36.1.nft"),
    ] {
        let script = format!(
            "set -e\nnft -f - <<'END'\n{rules}\nEND\nnft list ruleset\necho =====\nnft -n -a list ruleset\n"
        );
        let output = in_namespace("nft", &script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let listed = text(&output.stdout);
        let (by_name, in_numbers) = listed.split_once("=====").unwrap();
        assert_ne!(by_name.trim(), in_numbers.trim());
        let [by_name, in_numbers] = [by_name, in_numbers].map(|it| {
            let mut dumps = Dumps::default();
            dumps.add(it).unwrap();
            let mut tables = dumps.nft_tables().to_vec();
            // Of a route that is missing or exists a number says enough, and of a priority.
            for table in &mut tables {
                let lines = table.about.values_mut().flatten();
                lines.for_each(|line| *line = nft::normal(line));
                let rules = table.table.chains.values_mut().flat_map(|it| &mut it.rules);
                rules.for_each(|rule| rule.text = rule.text.replace("oif exists", "oif 1"));
            }
            tables
        });
        assert_eq!(by_name, in_numbers);
    }
}
