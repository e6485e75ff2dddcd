//! What iptables-save prints is read, counted and printed again.

use chainbreak_netfilter::{Chain, Counters, NetfilterError, Rule, Ruleset, Table, join};
use proptest::{collection::vec, option, prelude::*};

const KUBE_PROXY: &str = include_str!("data/kube-proxy.save");

#[test]
fn a_save_is_printed_as_it_was_read() {
    let ruleset = Ruleset::parse(KUBE_PROXY).unwrap();
    assert_eq!(ruleset.to_string(), KUBE_PROXY);
    assert_eq!(ruleset.rules(), 31);
}

#[test]
fn a_rule_that_ends_in_a_carriage_return_is_printed_as_it_was_read() {
    let save = "*nat\n:A - [0:0]\n-A A -j B\r\r\n-A A -j C\r\nCOMMIT\n";
    assert_eq!(Ruleset::parse(save).unwrap().to_string(), save);
}

#[test]
fn rules_are_counted_by_where_they_jump() {
    let ruleset = Ruleset::parse(KUBE_PROXY).unwrap();
    let count = |chain, jump| ruleset.count("nat", chain, jump);
    assert_eq!(count("PREROUTING", Some("KUBE-SERVICES")), 1);
    assert_eq!(count("PREROUTING", Some("KUBE-NODEPORTS")), 0);
    assert_eq!(count("KUBE-SVC-IU46S4VZFN77LK6S", None), 1);
    assert_eq!(count("KUBE-SVC-ELSEWHERE", None), 0);
    assert_eq!(ruleset.count("raw", "PREROUTING", None), 0);
    assert_eq!(ruleset.count("filter", "FORWARD", Some("KUBE-SERVICES")), 1);
}

#[test]
fn drops_are_listed_with_their_counters() {
    let save = "*filter\n:INPUT DROP [5:300]\n:X - [0:0]\n\
        [7:420] -A X -m conntrack --ctstate INVALID -j DROP\n\
        [1:60] -A X -j REJECT --reject-with icmp-port-unreachable\n\
        [0:0] -A X -m comment --comment \"-j DROP\" -j ACCEPT\nCOMMIT\n";
    let ruleset = Ruleset::parse(save).unwrap();
    let drops: Vec<_> = ruleset
        .drops()
        .iter()
        .map(|d| (d.chain, d.number, d.counters.packets))
        .collect();
    assert_eq!(drops, [("INPUT", 0, 5), ("X", 1, 7), ("X", 2, 1)]);
}

#[test]
fn a_broken_save_is_refused_with_its_line() {
    let incompatible = "# Table `nat' is incompatible, use 'nft' tool.\n";
    let table = "nat".to_owned();
    assert_eq!(
        Ruleset::parse(incompatible),
        Err(NetfilterError::Incompatible { table })
    );
    for (save, message) in [
        ("-A X -j Y\n", "line 1 stands before any table"),
        (
            "*nat\n:X - [0:0]\n-A X -m comment --comment \"a\n",
            "line 3 opens a quote",
        ),
        ("*nat\n-A X -j Y\nCOMMIT\n", "line 2 adds a rule to X"),
        ("*nat\n:X - [0:0]\n", "has no COMMIT"),
        ("*nat\n:X\nCOMMIT\n", "line 2 is not understood"),
        (
            "*nat\n:X - [0:0]\n[0:x] -A X -j Y\nCOMMIT\n",
            "line 3 is not understood",
        ),
        ("*nat\nhello\nCOMMIT\n", "line 2 is not understood"),
    ] {
        let error = Ruleset::parse(save).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn counters() -> impl Strategy<Value = Counters> {
    (any::<u64>(), any::<u64>()).prop_map(|(packets, bytes)| Counters { packets, bytes })
}

fn rule() -> impl Strategy<Value = Rule> {
    let words = vec("[!-~]{1,8}|[ -~]{0,12}", 0..6);
    let text = words.prop_map(|words| join(words.iter().map(String::as_str)));
    (text, option::of(counters())).prop_map(|(text, counters)| Rule { text, counters })
}

fn chain() -> impl Strategy<Value = Chain> {
    let policy = option::of(Just("ACCEPT".to_owned()));
    (policy, counters(), vec(rule(), 0..5)).prop_map(|(policy, counters, rules)| Chain {
        policy,
        counters,
        rules,
    })
}

fn ruleset() -> impl Strategy<Value = Ruleset> {
    let chains = vec(("[A-Za-z0-9_-]{1,28}", chain()), 0..5);
    let table = chains.prop_map(|chains| Table {
        chains: chains.into_iter().collect(),
    });
    let tables = vec(("[a-z]{1,6}", table), 0..3);
    tables.prop_map(|tables| Ruleset {
        tables: tables.into_iter().collect(),
    })
}

proptest! {
    #[test]
    fn every_ruleset_survives_printing_and_reading(ruleset in ruleset()) {
        prop_assert_eq!(Ruleset::parse(&ruleset.to_string()), Ok(ruleset));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\*nat\n)?(:X - \\[0:0\\]\n)?\\PC{0,60}(\nCOMMIT)?") {
        drop(Ruleset::parse(&text));
    }
}
