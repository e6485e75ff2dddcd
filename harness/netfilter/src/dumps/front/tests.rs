//! What real nft printed of what real iptables wrote.

use std::collections::BTreeSet;

use super::*;
use crate::words::quote;

/// Rules of real agents and one of each form that these do not have, loaded by iptables and printed by nft: 1.8.9 and 1.0.6, and 1.8.11 and 1.1.3.
const PRINTED: [(&str, &str); 8] = [
    (
        include_str!("../../../tests/data/printed/kube-proxy.nft"),
        include_str!("../../../tests/data/listed/kube-proxy.save"),
    ),
    (
        include_str!("../../../tests/data/printed/kube-proxy-1.1.3.nft"),
        include_str!("../../../tests/data/listed/kube-proxy.save"),
    ),
    (
        include_str!("../../../tests/data/printed/felix-3.28.1-with-kube-proxy-1.32.3.nft"),
        include_str!("../../../tests/data/listed/felix-3.28.1-with-kube-proxy-1.32.3.save"),
    ),
    (
        include_str!("../../../tests/data/printed/felix-3.28.1-with-kube-proxy-1.32.3-1.1.3.nft"),
        include_str!("../../../tests/data/listed/felix-3.28.1-with-kube-proxy-1.32.3.save"),
    ),
    (
        include_str!("../../../tests/data/printed/felix-3.28.1-ebpf.nft"),
        include_str!("../../../tests/data/listed/felix-3.28.1-ebpf.save"),
    ),
    (
        include_str!("../../../tests/data/printed/felix-3.28.1-ebpf-1.1.3.nft"),
        include_str!("../../../tests/data/listed/felix-3.28.1-ebpf.save"),
    ),
    (
        include_str!("../../../tests/data/printed/forms.nft"),
        include_str!("../../../tests/data/listed/forms.save"),
    ),
    (
        include_str!("../../../tests/data/printed/forms-1.1.3.nft"),
        include_str!("../../../tests/data/listed/forms.save"),
    ),
];

fn printed(listing: &str) -> Ruleset {
    let mut dumps = Dumps::default();
    dumps.add(listing).unwrap();
    let [save] = dumps.printed() else {
        panic!("{:?}", dumps.printed());
    };
    assert_eq!(save.backend, Some(Backend::Nft));
    save.ruleset.clone()
}

/// Each chain's rules in one form, without comments.
fn forms(ruleset: &Ruleset) -> Vec<(String, Vec<String>)> {
    let tables = ruleset.tables.iter();
    let chains = tables.flat_map(|(table, it)| {
        let chains = it.chains.iter();
        chains.map(move |(name, chain)| (format!("{table} {name}"), chain))
    });
    let forms = chains.map(|(place, chain)| {
        let rules = chain.rules.iter().map(|rule| {
            let words: Vec<_> = rule.words().collect();
            let is_comment = |at: usize| {
                let [option, text] = [at.checked_sub(1), Some(at)].map(|at| words.get(at?));
                option.is_some_and(|it| it == "--comment")
                    && !text.is_some_and(|it| it.starts_with("as listed: "))
            };
            let left = words.iter().enumerate().filter(|(at, word)| {
                !(is_comment(*at) || *word == "--comment" && is_comment(at + 1))
            });
            let left: Vec<String> = left.map(|(_, word)| quote(word).to_string()).collect();
            Rule::new(left.join(" ").replace("-m comment ", "")).normal()
        });
        (place, rules.collect())
    });
    let mut forms: Vec<_> = forms.collect();
    forms.sort();
    forms
}

#[test]
fn what_nft_prints_of_iptables_rules_are_these_rules_or_unknown() {
    // One thing that iptables writes in two ways.
    let alike = [
        ("-j NOTRACK", "--notrack -j CT"),
        ("--state ", "--ctstate "),
        ("--dports 4789 ", "--dport 4789 "),
    ];
    let mut unknown = BTreeSet::new();
    for (listing, save) in PRINTED {
        let read = forms(&printed(listing));
        let saved = forms(&Ruleset::parse(save).unwrap());
        for ((place, read), (of, saved)) in read.iter().zip(&saved) {
            assert_eq!((place, read.len()), (of, saved.len()));
            for (read, saved) in read.iter().zip(saved) {
                let is_alike =
                    |(written, printed): (&str, &str)| saved.replace(written, printed) == *read;
                let [read_rule, saved_rule] = [read, saved].map(|it| Rule::new(it.as_str()));
                let Some(words) = read_rule.comment() else {
                    assert!(
                        read == saved || alike.into_iter().any(is_alike),
                        "{place}: {saved}\n{read}"
                    );
                    continue;
                };
                // What else is read of it is as it was saved.
                let left = read.replace(&quote(&words).to_string(), "");
                let left = left.replace("--comment ", "");
                let mut left = left.split_whitespace();
                let has = |word: &str| saved.split_whitespace().any(|it| it == word);
                assert!(left.all(has), "{place}: {saved}\n{read}");
                assert_eq!(read_rule.target(), saved_rule.target(), "{place}");
                unknown.insert(words.replace('"', ""));
            }
        }
        assert_eq!(read.len(), saved.len());
    }
    let words = [
        "as listed: ct status dnat",
        "as listed: fib saddr . mark . iif oif 0",
        "as listed: fib saddr . mark oif 0",
        "as listed: xt match recent",
        "as listed: xt match set xt match set",
    ];
    assert_eq!(unknown, words.map(str::to_owned).into());
}

fn read(rules: &str) -> Option<Table> {
    let listing = format!("table ip nat {{\n{rules}}}\n");
    let tables = crate::nft::listing(&listing).unwrap();
    saved(&tables[0], Family::V4)
}

#[test]
fn counters_and_policies_are_as_printed() {
    let table = read(
        "chain PREROUTING {\ntype nat hook prerouting priority dstnat; policy drop;\n\
         meta l4proto tcp  counter packets 3 bytes 180 dnat to 10.20.0.5:53\n}\nchain X {\n}\n",
    )
    .unwrap();
    let chain = &table.chains["PREROUTING"];
    assert_eq!(chain.policy.as_deref(), Some("DROP"));
    let rule = &chain.rules[0];
    assert_eq!(rule.text, "-p tcp -j DNAT --to-destination 10.20.0.5:53");
    assert_eq!(rule.counters.map(|it| it.packets), Some(3));
    assert_eq!(table.chains["X"], Chain::default());
}

#[test]
fn tables_that_are_none_of_iptables_or_not_translated_are_left() {
    let base = "type nat hook prerouting priority dstnat; policy accept;\n";
    for rules in [
        // Somebody's own, of that name.
        format!("chain in {{\n{base}}}\n"),
        "chain PREROUTING {\ncounter accept\n}\n".to_owned(),
        // Rules that iptables did not write: they do not count, have comments, or sets.
        format!("chain PREROUTING {{\n{base}tcp dport 22 accept\n}}\n"),
        format!("chain PREROUTING {{\n{base}tcp dport 23 counter accept comment \"ssh\"\n}}\n"),
        format!("set s {{\ntype ipv4_addr\n}}\nchain PREROUTING {{\n{base}counter accept\n}}\n"),
        // nft without iptables' libraries, before 1.0.6 and since.
        format!("chain PREROUTING {{\n{base}# xt_comment tcp dport 80 counter # xt_DNAT\n}}\n"),
        format!("chain PREROUTING {{\n{base}xt match \"comment\" counter jump X\n}}\n"),
    ] {
        assert_eq!(read(&rules), None, "{rules}");
    }
    let ours = format!("chain PREROUTING {{\n{base}counter jump X\n}}\nchain X {{\n}}\n");
    assert!(read(&ours).is_some());
    let tables = crate::nft::listing(&format!("table ip6 nat {{\n{ours}}}\n")).unwrap();
    assert_eq!(
        saved(&tables[0], Family::V6),
        None,
        "the target DNAT is not printed there"
    );
}

#[test]
fn what_has_other_words_than_iptables_is_read() {
    for (printed, saved) in [
        (
            "tcp dport 80 tcp sport { 1, 2 }  counter log prefix \"ab \"",
            "-p tcp -m tcp --dport 80 -m multiport --sports 1,2 -j LOG",
        ),
        (
            "fib saddr type != local meta mark != 0x00000004 counter accept",
            "-m addrtype ! --src-type LOCAL -m mark ! --mark 0x4 -j ACCEPT",
        ),
        (
            "udp dport 4789 limit rate 10/minute counter log group 1",
            "-p udp -m udp --dport 4789 -m limit --limit 10/min --limit-burst 5 -j NFLOG",
        ),
        (
            "ct state ! new counter drop",
            "-m conntrack ! --ctstate NEW -j DROP",
        ),
        (
            "counter meta mark set ct mark",
            "-j CONNMARK --restore-mark",
        ),
        ("counter ct mark set mark", "-j CONNMARK --save-mark"),
        (
            "counter ct mark set 0x5",
            "-j CONNMARK --set-xmark 0x5/0xffffffff",
        ),
        ("counter redirect", "-j REDIRECT"),
        ("counter log prefix \"x\" group 1", "-j NFLOG"),
        (
            "tcp flags & (fin | syn) == fin | syn counter drop",
            "-p tcp -m tcp --tcp-flags FIN,SYN FIN,SYN -j DROP",
        ),
        (
            "tcp flags != syn,ack / syn,ack counter drop",
            "-p tcp -m tcp ! --tcp-flags SYN,ACK SYN,ACK -j DROP",
        ),
        (
            "meta l4proto icmp icmp type echo-request counter reject with icmp type host-prohibited",
            "-p icmp -m icmp --icmp-type 8 -j REJECT --reject-with icmp-host-prohibited",
        ),
        (
            "xt match nfacct ct state invalid counter drop",
            "-m nfacct --nfacct-name as-listed -m conntrack --ctstate INVALID -j DROP",
        ),
    ] {
        assert_eq!(text(printed, Family::V4), saved);
    }
}

#[test]
fn a_rule_that_is_not_known_is_read_as_far_as_it_is() {
    for (printed, saved) in [
        (
            "ip daddr { 10.0.0.1, 10.0.0.2 } tcp dport 80 counter drop",
            "-m as-listed -m comment --comment \"as listed: ip daddr { 10.0.0.1 , 10.0.0.2 } tcp dport 80\" -j DROP",
        ),
        (
            "ip saddr 10.0.0.1 counter queue num 0",
            "-s 10.0.0.1/32 -m comment --comment \"as listed: queue num 0\" -j as-listed",
        ),
        (
            "counter log prefix \"x\" drop",
            "-m comment --comment \"as listed: log prefix \\\"x\\\" drop\" -j as-listed",
        ),
        (
            "tcp flags & (fin | ecn) == fin counter drop",
            "-m as-listed -m comment --comment \"as listed: tcp flags & (fin | ecn) == fin\" -j DROP",
        ),
        (
            "limit rate over 5/second counter drop",
            "-m as-listed -m comment --comment \"as listed: limit rate over 5/second\" -j DROP",
        ),
        (
            "tcp sport . tcp dport { 1 . 2 } counter drop",
            "-m as-listed -m comment --comment \"as listed: tcp sport . tcp dport { 1 . 2 }\" -j DROP",
        ),
    ] {
        assert_eq!(text(printed, Family::V4), saved);
    }
}
