//! Promises that prove nothing, of what is not there, or about a time that never is.

use crate::good::{GOOD, OBJECTS, reads, said, said_of};

/// What is said of a promise about the good scenario, whose timeline marks `broken` and then `healed`.
fn said_of_promise(promise: &str) -> String {
    let marked = GOOD.replace(
        "  - settle: 1s\n",
        "  - settle: 1s\n  - mark: broken\n  - settle: 1s\n  - mark: healed\n",
    );
    let (known, _) = marked
        .split_once("  quiet:")
        .expect("the good scenario has it");
    let (_, variants) = marked.split_once("variants:").expect("it has variants");
    said(format!("{known}  quiet: {promise}\nvariants:{variants}"))
}

#[test]
fn promises_that_nothing_can_break_prove_nothing() {
    let promises = [
        (
            "percent_nothing",
            "{ available: { traffic: shop, at-least: 0% } }",
        ),
        (
            "log_everything",
            "{ no-log: { agent: felix, matches: 'x*' } }",
        ),
        (
            "rule_everything",
            "{ has-rule: { table: nat, chain: X, matches: '' , backend: nft } }",
        ),
        (
            "at_least_0",
            "{ counter: { conntrack: drop, at-least: 0 } }",
        ),
        ("resets_0", "{ resets: { traffic: shop, at-least: 0 } }"),
        (
            "every_address",
            "{ source: { traffic: shop, is: 0.0.0.0/0 } }",
        ),
        (
            "every_port",
            "{ source-ports: { traffic: shop, within: 1-65535 } }",
        ),
        ("one_endpoint", "{ balance: { traffic: shop, over: 1 } }"),
        (
            "empty_window",
            "{ available: { traffic: shop, from: healed, until: broken } }",
        ),
        (
            "no_recovery",
            "{ recovers: { traffic: shop, after: healed, within: 1s, until: healed } }",
        ),
        (
            "late_recovery",
            "{ recovers: { traffic: shop, after: healed, within: 4s } }",
        ),
        (
            "long_gap",
            "{ available: { traffic: shop, at-least: 0%, longest-gap: 1m, from: broken } }",
        ),
    ];
    for (name, promise) in promises {
        insta::assert_snapshot!(name, said_of_promise(promise));
    }
    let kept = GOOD
        .replace("every: 5ms", "every: 5ms, connections: kept")
        .replace(
            "{ no-log: { agent: kube-proxy, matches: 'Failed' } }",
            "{ balance: { traffic: shop, over: 2 } }",
        );
    insta::assert_snapshot!("balance_of_one", said(kept));
}

#[test]
fn promises_of_what_is_not_there() {
    let promises = [
        (
            "unknown_mark",
            "{ has-log: { agent: felix, matches: x, from: brokn } }",
        ),
        ("unknown_kind", "{ sources: { traffic: shop } }"),
        (
            "rule_of_nowhere",
            "{ has-rule: { table: kube-proxy, chain: a b, node: n3, family: v4, backend: ebtables } }",
        ),
        (
            "no_set",
            "{ has-element: { table: kube-proxy, element: x, always: maybe } }",
        ),
        ("no_counter", "{ counter: { at: node/n1, at-most: 0 } }"),
        (
            "two_counters",
            "{ counter: { conntrack: drop, snmp: Tcp.OutRsts, at-least: 1 } }",
        ),
        ("no_bound", "{ counter: { conntrack: drops } }"),
        (
            "odd_snmp",
            "{ counter: { snmp: OutRsts, at-least: 3, at-most: 2 } }",
        ),
        ("nobodys_address", "{ source: { traffic: shop, is: n1 } }"),
        (
            "no_ports",
            "{ source-ports: { traffic: shop, within: 60999-32768 } }",
        ),
        (
            "no_probability",
            "{ balance: { traffic: shop, over: 2, p-at-least: 1 } }",
        ),
        ("no_end", "{ recovers: { traffic: shop, after: broken } }"),
    ];
    for (name, promise) in promises {
        insta::assert_snapshot!(name, said_of_promise(promise));
    }
}

#[test]
fn promises_about_steps_that_have_no_name_or_no_end_are_said() {
    let steps = "- settle: 1s\n  - name: new\n    upgrade: { calico: v3.29.7 }\n  - mark: later";
    let promise = |window: &str| {
        let answers = "longest-gap: 500ms }";
        let windowed = format!("longest-gap: 500ms, {window} }}");
        let good = GOOD.replace("- settle: 1s", steps);
        assert!(good.contains(answers));
        good.replace(answers, &windowed)
    };
    for good in [
        "during: new",
        "after: new",
        "after: later",
        "after: new, until: later",
        "until: new",
    ] {
        let read = reads(promise(good).as_bytes(), OBJECTS);
        read.unwrap_or_else(|error| panic!("{}", error.plain()));
    }
    let said = [
        said(promise("during: later")),
        said(promise("during: neww")),
        said(promise("after: neww")),
        said(promise("after: later, until: new")),
        said(promise("during: new, from: later, until: later")),
        said(promise("after: new, from: later")),
        said_of(
            "- settle: 1s",
            "- name: frozen\n    pause: { agent: felix, for: 1s }",
        ),
        said_of("- settle: 1s", "- name: one\n    mark: two"),
        said_of("- settle: 1s", "- name: one\n    settle: 1s\n  - mark: one"),
        said_of("- settle: 1s", "- name: Über\n    settle: 1s"),
        said_of("- settle: 1s", "- name: alone"),
        said_of("- settle: 1s", "- name: one\n    settle: 1s\n    felix: {}"),
    ];
    insta::assert_snapshot!(said.join("\n"));
}
