//! The rules of a node, rebuilt from commands.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

use chainbreak_netfilter::{
    Family, Ruleset,
    replay::{Backend, Doubt, OldCopy, Ran, Replay},
    walk::{End, Packet, Path, Walk, walk},
};

const SYNC: &str = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n\
    -A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\n-A KUBE-SVC-A -j KUBE-SEP-A\n\
    -A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.20.1.3:80\nCOMMIT\n";
const RESTORE: &str = "iptables-restore -w 5 -W 100000 --noflush --counters";
const ENSURE: &str = "iptables -w 5 -W 100000 -I PREROUTING -t nat -j KUBE-SERVICES";
const DELETE: &str = "*nat\n-D PREROUTING -j KUBE-SERVICES\nCOMMIT\n";

fn took(replay: &mut Replay, command: &str, input: &str) -> Result<(), Doubt> {
    ended(replay, command, input, 0, "")
}

fn ended(
    replay: &mut Replay,
    command: &str,
    input: &str,
    exit: i32,
    stderr: &str,
) -> Result<(), Doubt> {
    at(replay, 0, (command, input, exit, stderr))
}

fn at(
    replay: &mut Replay,
    ended_us: u64,
    (command, input, exit, stderr): (&str, &str, i32, &str),
) -> Result<(), Doubt> {
    let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
    replay.take(Ran {
        argv: &argv,
        input,
        exit,
        stderr,
        ended_us,
    })
}

/// kube-proxy's rules of one service, and the jump to them.
fn synced() -> Replay {
    let mut replay = Replay::new(Backend::Legacy);
    took(&mut replay, RESTORE, SYNC).unwrap();
    took(&mut replay, ENSURE, "").unwrap();
    replay
}

fn jumps(replay: &Replay, backend: Backend) -> usize {
    replay
        .ruleset(backend, Family::V4)
        .count("nat", "PREROUTING", Some("KUBE-SERVICES"))
}

/// Where a packet to the service goes, by its rules alone.
fn way(replay: &Replay) -> Walk {
    let mut dumps = replay.dumps();
    dumps.set_own(["10.0.1.1".parse().unwrap()]);
    let packet = Packet::syn(
        "10.20.1.2:40000".parse().unwrap(),
        "10.96.0.10:80".parse().unwrap(),
    );
    walk(&dumps.state(Family::V4), &packet.by("cali1"))
}

fn end(replay: &Replay) -> (String, End) {
    let walk = way(replay);
    assert!(walk.decided(), "{walk:#?}");
    let path = &walk.paths[0];
    (path.packet.dst.to_string(), path.end.clone())
}

#[test]
fn a_packet_walks_through_the_rules_that_commands_made_and_misses_what_one_deleted() {
    let mut replay = synced();
    let sent = End::Sent {
        interface: None,
        via: None,
    };
    assert_eq!(end(&replay), ("10.20.1.3".to_owned(), sent.clone()));
    took(&mut replay, "iptables-legacy-restore --noflush", DELETE).unwrap();
    assert_eq!(end(&replay), ("10.96.0.10".to_owned(), sent));
}

#[test]
fn a_program_that_names_its_backend_writes_there_and_nowhere_else() {
    let mut replay = synced();
    let other = took(&mut replay, "iptables-nft-restore --noflush", DELETE);
    assert!(other.unwrap_err().to_string().contains("no such rule"));
    assert_eq!(jumps(&replay, Backend::Legacy), 1);
    took(
        &mut replay,
        "xtables-nft-multi iptables-restore --noflush",
        SYNC,
    )
    .unwrap();
    took(
        &mut replay,
        "iptables-nft -t nat -A PREROUTING -j KUBE-SERVICES",
        "",
    )
    .unwrap();
    assert_eq!(jumps(&replay, Backend::Nft), 1);
    assert_eq!(
        replay.ruleset(Backend::Legacy, Family::V6),
        Ruleset::default()
    );
}

#[test]
fn of_a_restore_that_failed_the_tables_before_its_line_count() {
    let two = format!("{DELETE}*nat\n-A KUBE-SERVICES -j KUBE-SVC-GONE\nCOMMIT\n");
    for (stderr, left) in [
        ("Error occurred at line: 5\n", 0),
        ("Error occurred at line: 2\n", 1),
        ("Another app is currently holding the xtables lock.\n", 1),
    ] {
        let mut replay = synced();
        ended(&mut replay, RESTORE, &two, 1, stderr).unwrap();
        assert_eq!(jumps(&replay, Backend::Legacy), left, "{stderr}");
    }
}

#[test]
fn what_cannot_be_followed_is_a_doubt_and_changes_nothing() {
    for (command, input, exit, why) in [
        (RESTORE, DELETE, 137, "killed"),
        ("nft -f -", "add table ip t\n", 143, "killed"),
        ("nft -f /etc/rules.nft", "", 0, "rules.nft was not seen"),
        (
            "nft -f -",
            "table ip t {\n\tchain c {\n\t\tdrop\n\t}\n}\n",
            0,
            "not known here",
        ),
        ("nft delete chain ip t c", "", 0, "do not allow it"),
        (RESTORE, "*nat\n-F KUBE-SVC-B\nCOMMIT\n", 0, "KUBE-SVC-B"),
        ("ipset add x 10.0.0.1", "", 0, "make the set x"),
        (
            "ipset restore",
            "create x hash:ip\nadd y 10.0.0.1\n",
            1,
            "failed",
        ),
    ] {
        let mut replay = synced();
        let doubt = ended(&mut replay, command, input, exit, "").unwrap_err();
        assert!(doubt.to_string().contains(why), "{command}: {doubt}");
        assert_eq!(replay, synced(), "{command}");
    }
}

#[test]
fn commands_that_look_test_or_fail_change_nothing() {
    for (command, input, exit) in [
        ("iptables-save -t nat", "", 0),
        ("iptables-restore --test", DELETE, 0),
        ("iptables -w 5 -t nat -D PREROUTING -j KUBE-SVC-A", "", 1),
        ("nft --check -f -", "flush ruleset\n", 0),
        ("nft --json list table ip kube-proxy", "", 0),
        ("nft flush ruleset", "", 1),
        ("ipset list", "", 0),
        ("conntrack -D -d 10.96.0.10", "", 0),
        ("netlink nfacct get x", "", 2),
    ] {
        let mut replay = synced();
        ended(&mut replay, command, input, exit, "").unwrap();
        assert_eq!(replay, synced(), "{command}");
    }
}

const TABLE: &str = "add table ip kube-proxy\n\
    add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }\n\
    add chain ip kube-proxy service-A\n\
    add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }\n\
    add rule ip kube-proxy nat-prerouting ip daddr . meta l4proto . th dport vmap @service-ips\n\
    add rule ip kube-proxy service-A dnat to 10.20.1.3:80\n\
    add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 comment \"test/web:http\" : goto service-A }\n";

/// Clients that a Service remembers stand in no command: kube-proxy's rules put them there.
#[test]
fn whether_a_packet_is_in_a_set_that_packets_fill_is_not_known_of_rules_that_were_rebuilt() {
    let mut replay = Replay::new(Backend::Nft);
    took(&mut replay, "nft -f -", TABLE).unwrap();
    let asked = "add set ip kube-proxy clients { type ipv4_addr ; flags timeout ; timeout 10800s ; }\n\
                 insert rule ip kube-proxy nat-prerouting ip saddr @clients dnat to 10.20.1.9:80\n";
    took(&mut replay, "nft -f -", asked).unwrap();
    // What commands alone fill is known.
    assert_eq!(end(&replay).0, "10.20.1.3");
    let filled = "add rule ip kube-proxy service-A update @clients { ip saddr }";
    took(&mut replay, "nft -f -", filled).unwrap();
    let ways = way(&replay);
    assert!(!ways.decided());
    let assumed: Vec<&str> = ways
        .paths
        .iter()
        .flat_map(Path::assumes)
        .map(|it| it.0)
        .collect();
    assert!(
        assumed[0].ends_with("what packets put into @clients"),
        "{assumed:?}"
    );
    let ends: Vec<String> = ways
        .paths
        .iter()
        .map(|it| it.packet.dst.to_string())
        .collect();
    assert_eq!(ends, ["10.20.1.9", "10.20.1.3"]);
}

#[test]
fn a_table_of_nfts_own_is_rebuilt_with_its_maps() {
    let mut replay = Replay::new(Backend::Nft);
    took(&mut replay, "nft -f -", TABLE).unwrap();
    assert_eq!(end(&replay).0, "10.20.1.3");
    let gone = "delete element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 }";
    took(&mut replay, &format!("nft {gone}"), "").unwrap();
    assert_eq!(end(&replay).0, "10.96.0.10");
}

#[test]
fn a_block_that_declares_chains_and_sets_makes_them() {
    let mut replay = Replay::new(Backend::Nft);
    let block = "table ip felix {\n\tset s { type ipv4_addr; }\n\tchain to { }\n\
                 \tchain at { type nat hook prerouting priority -105; }\n}\n\
                 add rule ip felix at ip daddr @s jump to\nadd rule ip felix to dnat to 10.20.1.3:80\n\
                 add element ip felix s { 10.96.0.10 }\n";
    took(&mut replay, "nft -f -", block).unwrap();
    assert_eq!(end(&replay).0, "10.20.1.3");
    // As it is taken away whether it is there or not.
    let gone = "table ip felix\ndelete table ip felix\n";
    for _ in 0..2 {
        took(&mut replay, "nft -f -", gone).unwrap();
        assert_eq!(replay.nft_table("ip", "felix"), None);
    }
}

#[test]
fn flushing_nfts_ruleset_takes_the_tables_of_iptables_nft_along_and_not_those_of_legacy() {
    for (own, left) in [(Backend::Nft, 0), (Backend::Legacy, 1)] {
        let mut replay = Replay::new(own);
        took(&mut replay, RESTORE, SYNC).unwrap();
        took(&mut replay, ENSURE, "").unwrap();
        took(&mut replay, "nft -f -", TABLE).unwrap();
        took(&mut replay, "nft flush ruleset", "").unwrap();
        assert_eq!(jumps(&replay, own), left);
        assert_eq!(end(&replay).0 == "10.20.1.3", left == 1);
    }
}

#[test]
fn a_table_of_iptables_nft_that_nft_writes_is_not_followed() {
    let mut replay = Replay::new(Backend::Nft);
    took(&mut replay, RESTORE, SYNC).unwrap();
    let doubt = took(&mut replay, "nft add chain ip nat mine", "").unwrap_err();
    assert!(doubt.to_string().contains("a table of iptables"), "{doubt}");
    took(&mut replay, "nft delete table ip nat", "").unwrap();
    assert_eq!(replay.ruleset(Backend::Nft, Family::V4), Ruleset::default());
}

#[test]
fn sets_are_rebuilt_as_felix_swaps_them() {
    let mut replay = Replay::new(Backend::Legacy);
    let drop = "iptables -A FORWARD -m set --match-set cali40s:x src -j DROP";
    took(&mut replay, drop, "").unwrap();
    for (members, end_is) in [("add t 10.20.1.0/24\n", End::Dropped), ("", sent())] {
        let input = format!(
            "create t hash:net family inet\n{members}create cali40s:x hash:net family inet -exist\n\
             swap t cali40s:x\ndestroy t\n"
        );
        took(&mut replay, "ipset restore", &input).unwrap();
        assert_eq!(end(&replay).1, end_is);
    }
}

fn sent() -> End {
    End::Sent {
        interface: None,
        via: None,
    }
}

#[test]
fn what_was_kept_of_a_node_differs_only_in_what_the_kernel_would_do_otherwise() {
    let kept = |rules: &str| {
        Ruleset::parse(&format!(
            "*filter\n:INPUT ACCEPT [5:6]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n*nat\n\
             :PREROUTING ACCEPT [1:2]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
             :KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n{rules}\
             -A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\n-A KUBE-SVC-A -j KUBE-SEP-A\n\
             [3:180] -A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.20.1.3:80\nCOMMIT\n"
        ))
        .unwrap()
    };
    let same = kept("[7:420] -A PREROUTING -j KUBE-SERVICES\n");
    assert_eq!(synced().differs_from(Family::V4, &same), []);
    let other = synced().differs_from(Family::V4, &kept(""));
    assert_eq!(other.len(), 1, "{other:?}");
    assert_eq!((&*other[0].table, &*other[0].chain), ("nat", "PREROUTING"));
    let policy = kept("-A PREROUTING -j KUBE-SERVICES\n")
        .to_string()
        .replace(":INPUT ACCEPT [5:6]", ":INPUT DROP [5:6]");
    let policy = Ruleset::parse(&policy).unwrap();
    assert_eq!(synced().differs_from(Family::V4, &policy).len(), 2);
}

#[test]
fn a_listing_differs_from_the_tables_that_were_rebuilt_place_by_place() {
    let mut replay = Replay::new(Backend::Nft);
    took(&mut replay, RESTORE, SYNC).unwrap();
    took(&mut replay, "nft -f -", TABLE).unwrap();
    let listing = "table ip nat {\n\tchain PREROUTING {\n\t}\n}\ntable ip kube-proxy {\n\
        \tmap service-ips {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n\
        \t\telements = { 10.96.0.10 . tcp . 80 comment \"test/web:http\" : goto service-A }\n\t}\n\
        \tchain nat-prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
        \t\tip daddr . meta l4proto . th dport vmap @service-ips\n\t}\n\
        \tchain service-A {\n\t\tdnat to 10.20.1.3:80\n\t}\n}\n";
    let same = replay.differs_from_listing(listing).unwrap();
    assert_eq!(same, Vec::<String>::new());
    let other = listing.replace("10.20.1.3", "10.20.1.4");
    let other = replay.differs_from_listing(&other).unwrap();
    assert_eq!(other, ["ip kube-proxy chain service-A"]);
}

#[test]
fn what_is_written_while_a_command_of_legacy_iptables_has_the_table_is_lost_when_it_puts_it_back() {
    let other = "*nat\n-A OUTPUT -d 192.0.2.1 -j RETURN\nCOMMIT\n";
    let left = |restore: &str, ended_us: u64, exit: i32| {
        let copy = OldCopy {
            read_us: 10,
            ended_us: 40,
            family: Family::V4,
            table: "nat".to_owned(),
        };
        let mut replay = synced().with([copy]);
        at(
            &mut replay,
            30,
            ("iptables-legacy-restore --noflush", DELETE, 0, ""),
        )
        .unwrap();
        assert_eq!(jumps(&replay, Backend::Legacy), 0);
        let stderr = "iptables-restore: line 3 failed";
        at(&mut replay, ended_us, (restore, other, exit, stderr)).unwrap();
        let rules = replay.ruleset(Backend::Legacy, Family::V4);
        let returns = rules.count("nat", "OUTPUT", Some("RETURN"));
        (jumps(&replay, Backend::Legacy), returns)
    };
    assert_eq!(left("iptables-restore --noflush", 40, 0), (1, 1));
    // Another one, and one that the kernel refused because it saw that the copy was old.
    assert_eq!(left("iptables-restore --noflush", 41, 0), (0, 1));
    assert_eq!(left("iptables-restore --noflush", 40, 1), (0, 0));
}

/// A set of clients that packets fill, as kube-proxy makes it, and as nft prints it (1.0.6 and 1.1.3).
#[test]
fn what_packets_put_into_a_set_is_no_difference_and_nor_is_that_they_put_nothing() {
    let mut replay = Replay::new(Backend::Nft);
    let made = "add table ip kube-proxy\n\
                add set ip kube-proxy clients { type ipv4_addr ; flags dynamic,timeout ; timeout 10800s ; }\n";
    took(&mut replay, "nft -f -", made).unwrap();
    for elements in ["", "\t\telements = { 10.20.1.4 expires 2h59m59s976ms }\n"] {
        for size in ["", "\t\tsize 65535\n"] {
            let listing = format!(
                "table ip kube-proxy {{\n\tset clients {{\n\t\ttype ipv4_addr\n{size}\t\tflags dynamic,timeout\n\
                 \t\ttimeout 3h\n{elements}\t}}\n}}\n"
            );
            let differs = replay.differs_from_listing(&listing).unwrap();
            assert_eq!(differs, Vec::<String>::new(), "{listing}");
            let other = listing.replace("3h", "1h");
            assert_eq!(
                replay.differs_from_listing(&other).unwrap().len(),
                1,
                "{other}"
            );
        }
    }
}
