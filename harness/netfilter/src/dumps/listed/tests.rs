//! What real iptables list, and what is not to be read.

use super::*;
use crate::dumps::Dumps;

/// Rules of real agents, loaded by iptables 1.8.9 (legacy), listed and saved by it. nfacct's is left out: the kernel has none.
const REAL: [(&str, &str); 3] = [
    (
        include_str!("../../../tests/data/listed/kube-proxy.list"),
        include_str!("../../../tests/data/listed/kube-proxy.save"),
    ),
    (
        include_str!("../../../tests/data/listed/felix-3.28.1-with-kube-proxy-1.32.3.list"),
        include_str!("../../../tests/data/listed/felix-3.28.1-with-kube-proxy-1.32.3.save"),
    ),
    (
        include_str!("../../../tests/data/listed/felix-3.28.1-ebpf.list"),
        include_str!("../../../tests/data/listed/felix-3.28.1-ebpf.save"),
    ),
];
/// One rule of each form that these do not have, likewise.
const SAVED: &str = include_str!("../../../tests/data/listed/forms.save");
/// The same for IPv6.
const SAVED6: &str = include_str!("../../../tests/data/listed/forms-ipv6.save");
/// Both, listed by 1.8.7, 1.8.9 and 1.8.11. Each version's two front ends list the same, and 1.8.7 and 1.8.11 the same of IPv4.
const FORMS: [(&str, &str); 5] = [
    (include_str!("../../../tests/data/listed/forms.list"), SAVED),
    (
        include_str!("../../../tests/data/listed/forms-1.8.11.list"),
        SAVED,
    ),
    (
        include_str!("../../../tests/data/listed/forms-ipv6-1.8.7.list"),
        SAVED6,
    ),
    (
        include_str!("../../../tests/data/listed/forms-ipv6.list"),
        SAVED6,
    ),
    (
        include_str!("../../../tests/data/listed/forms-ipv6-1.8.11.list"),
        SAVED6,
    ),
];

fn listing(text: &str) -> Result<(Vec<Listed>, String), NetfilterError> {
    read(text.to_owned())
}

fn rulesets(list: &str, save: &str) -> (Ruleset, Ruleset) {
    let (listed, rest) = listing(list).unwrap();
    assert_eq!(rest.trim(), "", "nothing is left of it");
    let saves = beside(&[], Vec::new(), listed).unwrap();
    let [listed] = saves.try_into().unwrap();
    (listed.ruleset, Ruleset::parse(save).unwrap())
}

#[test]
fn what_is_listed_are_the_rules_that_are_saved() {
    for (list, save) in REAL.into_iter().chain(FORMS) {
        let (listed, saved) = rulesets(list, save);
        for (name, table) in &listed.tables {
            let known = &saved.tables[name];
            assert_eq!(table.chains.len(), known.chains.len(), "{name}");
            for (chain, of) in &table.chains {
                let known = &known.chains[chain];
                assert_eq!(of.policy, known.policy, "{chain}");
                let texts = |rules: &[Rule]| {
                    let normal = rules.iter().map(Rule::normal);
                    normal.collect::<Vec<_>>()
                };
                assert_eq!(texts(&of.rules), texts(&known.rules), "{name} {chain}");
            }
        }
        let has_rules = saved.tables.values();
        let has_rules = has_rules.filter(|it| it.chains.values().any(|it| !it.rules.is_empty()));
        assert_eq!(listed.tables.len(), has_rules.count());
    }
}

#[test]
fn counters_are_numbers_again_and_the_family_is_that_of_addresses() {
    let list = "Chain INPUT (policy DROP 12K packets, 1440K bytes)\n \
        pkts bytes target     prot opt in     out     source               destination         \n \
        3M   1G ACCEPT     6        lo     *       ::/0                 ::/0                 tcp dpt:22\n\n\
        Chain FORWARD (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n\n\
        Chain OUTPUT (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n";
    let (listed, _) = listing(list).unwrap();
    let [listed] = listed.try_into().unwrap();
    assert_eq!((listed.family, listed.table), (Family::V6, "filter"));
    let input = &listed.rules.chains["INPUT"];
    assert_eq!(input.policy.as_deref(), Some("DROP"));
    let counted = |packets, bytes| crate::Counters { packets, bytes };
    assert_eq!(input.counters, counted(12_000, 1_440_000));
    let [rule] = input.rules.as_slice() else {
        panic!("{input:?}")
    };
    assert_eq!(rule.text, "-i lo -p tcp -m tcp --dport 22 -j ACCEPT");
    assert_eq!(rule.counters, Some(counted(3_000_000, 1_000_000_000)));
}

/// What sos 4.12.0 asked of a node one after the other, `-t filter -nvL` and `-vnxL`.
#[test]
fn a_table_that_is_listed_with_exact_numbers_too_is_the_same_one() {
    let rounded = include_str!("../../../tests/data/listed/sosreport-filter.list");
    let exact = include_str!("../../../tests/data/listed/sosreport-filter-exact.list");
    let mut dumps = Dumps::default();
    for text in [rounded, exact] {
        assert!(!dumps.add(text).unwrap().is_empty());
    }
    let [save] = dumps.saves() else {
        panic!("{:?}", dumps.saves())
    };
    assert!(save.ruleset.tables.keys().eq(["filter"]));
    let counted = exact.replace(
        "      64     3232 KUBE-FIREWALL",
        " 1234567 98765432 KUBE-FIREWALL",
    );
    let (listed, rest) = listing(&counted).unwrap();
    assert_eq!(rest, "");
    let output = &listed[0].rules.chains["OUTPUT"];
    let counters = output.rules[0].counters.unwrap();
    assert_eq!((counters.packets, counters.bytes), (1_234_567, 98_765_432));
}

#[test]
fn what_is_listed_in_unknown_words_is_a_match_that_nobody_knows() {
    let line = "    0     0 DROP       0    --  *      *       0.0.0.0/0            0.0.0.0/0            foo bar \"x\" /* c */";
    let rule = rule::Fields::read(line).unwrap().save();
    assert_eq!(
        rule,
        r#"-m as-listed -m comment --comment "as listed: foo bar \"x\" /* c */" -j DROP"#
    );
}

#[test]
fn tables_of_several_files_are_one_save_and_give_way_to_what_was_saved() {
    let (list, save) = REAL[0];
    let (nat, filter) = split(list);
    let mut dumps = Dumps::default();
    for text in [filter, nat, filter] {
        dumps.add(text).unwrap();
    }
    let tables = |dumps: &Dumps| {
        let saves = dumps.saves().iter();
        let tables = saves.map(|it| it.ruleset.tables.keys().cloned().collect::<Vec<_>>());
        tables.collect::<Vec<_>>()
    };
    assert_eq!(tables(&dumps), [["filter", "nat"]]);
    dumps.add(save).unwrap();
    assert_eq!(dumps.saves().len(), 1);
    assert!(dumps.saves().iter().all(|it| !it.is_listed));
    dumps.add(nat).unwrap();
    assert_eq!(dumps.saves().len(), 1);
}

#[test]
fn other_texts_and_listings_without_counters_are_left_alone() {
    for text in [
        "Chain INPUT (policy ACCEPT)\ntarget     prot opt source               destination         \n",
        "Chain reaction (2 references)\n",
        "10.20.0.0/16 via 10.0.1.1 dev eth0\n",
    ] {
        assert_eq!(listing(text).unwrap(), (Vec::new(), text.to_owned()));
    }
}

/// The tables nat and filter of a listing that ends with them.
fn split(list: &str) -> (&str, &str) {
    let filter = list.find("Chain INPUT (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n    0     0 KUBE-FIREWALL");
    list.split_at(filter.unwrap())
}

/// Why a text is not read.
fn refused(text: &str) -> String {
    listing(text).unwrap_err().to_string()
}

#[test]
fn a_listing_that_is_not_whole_is_refused() {
    let (nat, _) = split(REAL[0].0);
    // Each line less is noticed, but for those of rules that lead nowhere and heads.
    for gone in [
        "-> 10.20.10.127:80 */",
        "KUBE-POSTROUTING  0",
        "Chain KUBE-SVC-",
    ] {
        let kept = nat.lines().filter(|line| !line.contains(gone));
        let cut = kept.collect::<Vec<_>>().join("\n");
        assert!(refused(&cut).contains("the listing"), "{gone}");
    }
    let half = nat.split_at(nat.find("Chain KUBE-SERVICES").unwrap()).0;
    assert!(refused(half).contains("lacks a chain that a rule leads to"));
    // Without `-n`, and with a comment of two lines.
    let names = nat.replace(
        "0.0.0.0/0            0.0.0.0/0  ",
        "anywhere             anywhere   ",
    );
    assert!(refused(&names).contains("`-n` prints numbers"));
    let names = nat.replace("  *      *  ", "  any    any");
    assert!(refused(&names).contains("`-n` prints numbers"));
    let two = nat.replace(
        "/* kubernetes service portals */",
        "/* kubernetes\nservice portals */",
    );
    assert!(refused(&two).contains("the listing"), "{}", refused(&two));
}

#[test]
fn chains_of_several_commands_are_no_table() {
    let chain = |name: &str| {
        format!(
            "Chain {name} (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n    \
             1     2 ACCEPT     0    --  *      *       0.0.0.0/0            0.0.0.0/0           \n"
        )
    };
    let two = [
        chain("PREROUTING"),
        "$ iptables -t nat -nvL OUTPUT\n".to_owned(),
        chain("OUTPUT"),
    ]
    .concat();
    assert!(refused(&two).contains("has not the chains of one table"));
    let filter = ["INPUT", "FORWARD", "OUTPUT"].map(chain).concat();
    let (listed, _) =
        listing(&[filter.as_str(), &chain("PREROUTING"), &chain("OUTPUT")].concat()).unwrap();
    let tables: Vec<&str> = listed.iter().map(|it| it.table).collect();
    assert_eq!(tables, ["filter", "raw"]);
    let nat = ["PREROUTING", "INPUT", "POSTROUTING", "OUTPUT"]
        .map(chain)
        .concat();
    let (listed, _) = listing(&nat).unwrap();
    assert_eq!(listed[0].table, "nat", "as iptables-nft 1.8.4 lists it");
    // A comment of two lines in the last chain, and a rule below it.
    let raw = [chain("PREROUTING"), chain("OUTPUT")].concat();
    let commented = format!("{}/* a\nb */\n", raw.trim_end_matches('\n'));
    assert_eq!(listing(&commented).unwrap().0[0].table, "raw");
    let below = "    3     4 DROP       0    --  *      *       0.0.0.0/0            0.0.0.0/0           \n";
    assert!(refused(&[&commented, below].concat()).contains("has a rule that is not read"));
    // security has filter's chains.
    let other = filter.replace("ACCEPT     0", "DROP       0");
    let mut dumps = Dumps::default();
    dumps.add(&filter).unwrap();
    dumps
        .add(&filter.replace("    1     2", "    7     9"))
        .unwrap();
    let twice = dumps.add(&other).unwrap_err().to_string();
    assert!(twice.contains("listed with other rules"), "{twice}");
}

#[test]
fn a_policy_that_drops_is_not_lost_where_no_rule_tells_the_family() {
    let chain = |name: &str, policy: &str| {
        format!(
            "Chain {name} (policy {policy} 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n\n"
        )
    };
    let accepts = ["INPUT", "FORWARD", "OUTPUT"]
        .map(|it| chain(it, "ACCEPT"))
        .concat();
    assert_eq!(listing(&accepts).unwrap().0, []);
    let drops = accepts.replacen("ACCEPT", "DROP", 1);
    assert!(refused(&drops).contains("drops by a policy"));
}

#[test]
fn a_walk_is_undecided_at_what_was_listed_in_unknown_words() {
    let rule = rule::Fields::read("    0     0 DROP       0    --  *      *       0.0.0.0/0            0.0.0.0/0            ! recent: SET name: X side: source mask: 255.255.255.255").unwrap();
    assert!(rule.save().starts_with("-m as-listed "), "{}", rule.save());
    for (listed, saved) in [
        ("icmptype 255", "-m icmp --icmp-type any"),
        (
            "nfacct-name  ct_state_invalid_dropped_pkts",
            "-m nfacct --nfacct-name ct_state_invalid_dropped_pkts",
        ),
        ("! state NEW", "-m state ! --state NEW"),
        (
            "tcp flags:0xff/0x02",
            "-m as-listed -m comment --comment \"as listed: tcp flags:0xff/0x02\"",
        ),
        (
            "! tcp dpt:80",
            "-m as-listed -m comment --comment \"as listed: ! tcp dpt:80\"",
        ),
        (
            "limit: rate tcp dpt:80",
            "-m as-listed -m comment --comment \"as listed: limit: rate tcp dpt:80\"",
        ),
    ] {
        let line = format!(
            "    0     0 RETURN     0    --  *      *       0.0.0.0/0            0.0.0.0/0            {listed}"
        );
        assert_eq!(
            rule::Fields::read(&line).unwrap().save(),
            format!("{saved} -j RETURN")
        );
    }
    let counts = "    0     0 LOG        0    --  *      *       0.0.0.0/0            0.0.0.0/0            ctstate INVALID LOG flags 0 level 4 prefix \"calico-packet: \"";
    assert_eq!(
        rule::Fields::read(counts).unwrap().save(),
        "-m conntrack --ctstate INVALID -j LOG"
    );
}
