//! What the model of a restore refuses, and what it leaves behind then.

use chainbreak_netfilter::{ChangeKind, Family, Order, Refusal, Ruleset, apply, diff};

const NOFLUSH: [&str; 2] = ["iptables-restore", "--noflush"];

fn after(inputs: &[&str]) -> (Ruleset, Result<(), Refusal>) {
    let mut ruleset = Ruleset::default();
    let mut result = Ok(());
    for input in inputs {
        result = apply(&mut ruleset, &NOFLUSH, input);
    }
    (ruleset, result)
}

#[test]
fn a_failing_table_is_left_alone_and_the_one_before_is_kept() {
    let (ruleset, result) =
        after(&["*filter\n:X - -\nCOMMIT\n*nat\n:Y - -\n-A Y -j KUBE-GONE\nCOMMIT\n"]);
    assert!(
        matches!(result, Err(Refusal::MissingTarget { line: 6, target, .. }) if target == "KUBE-GONE")
    );
    assert_eq!(
        (
            ruleset.count("filter", "X", None),
            ruleset.count("nat", "Y", None)
        ),
        (1, 0)
    );
}

#[test]
fn a_declared_chain_is_empty_and_a_built_in_one_keeps_its_rules() {
    let (ruleset, result) = after(&[
        "*nat\n:X - -\n-A X -j ACCEPT\n-A PREROUTING -j X\nCOMMIT\n",
        "*nat\n:X - -\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n",
    ]);
    assert_eq!(result, Ok(()));
    assert_eq!(
        (
            ruleset.count("nat", "X", Some("ACCEPT")),
            ruleset.count("nat", "PREROUTING", Some("X"))
        ),
        (0, 1)
    );
}

#[test]
fn without_noflush_only_the_named_tables_are_replaced() {
    let (mut ruleset, _) =
        after(&["*nat\n:X - -\nCOMMIT\n*filter\n:X - -\n-A INPUT -j X\nCOMMIT\n"]);
    apply(&mut ruleset, &["iptables-restore"], "*filter\nCOMMIT\n").unwrap();
    assert_eq!(
        (
            ruleset.count("nat", "X", None),
            ruleset.count("filter", "X", None)
        ),
        (1, 0)
    );
    assert_eq!(ruleset.rules(), 0);
}

#[test]
fn a_chain_in_use_stays() {
    for (input, line) in [
        ("*nat\n:X - -\n-A PREROUTING -j X\n-X X\nCOMMIT\n", 4),
        ("*nat\n:X - -\n-A X -j DROP\n-X X\nCOMMIT\n", 4),
        ("*nat\n-X OUTPUT\nCOMMIT\n", 2),
    ] {
        let refused = after(&[input]).1;
        assert!(
            matches!(refused, Err(Refusal::InUse { line: at, .. }) if at == line),
            "{input}"
        );
    }
}

#[test]
fn rules_are_found_by_value_and_by_number() {
    let (ruleset, result) = after(&[
        "*nat\n:X - -\n-A X -s 10.0.0.1 -j ACCEPT\n-A X -j RETURN\n-I X -j MASQUERADE\n-I X 2 -j DROP\nCOMMIT\n",
        "*nat\n-D X --source 10.0.0.1/32 --jump ACCEPT\n-D X 1\n-R X 2 -j LOG\nCOMMIT\n",
    ]);
    assert_eq!(result, Ok(()));
    let rules: Vec<_> = ruleset
        .chain("nat", "X")
        .unwrap()
        .rules
        .iter()
        .map(|r| r.text.as_str())
        .collect();
    assert_eq!(rules, ["-j DROP", "-j LOG"]);
    for input in [
        "*nat\n-D X -j ACCEPT\nCOMMIT\n",
        "*nat\n-D X 3\nCOMMIT\n",
        "*nat\n-R X 0 -j LOG\nCOMMIT\n",
    ] {
        let refusal = apply(&mut ruleset.clone(), &NOFLUSH, input);
        assert!(
            matches!(refusal, Err(Refusal::MissingRule { line: 2, .. })),
            "{input}"
        );
    }
}

#[test]
fn differences_are_named_and_order_matters_only_when_told() {
    let (before, _) = after(&["*nat\n:X - -\n:Y - -\n-A X -j ACCEPT\n-A X -j RETURN\nCOMMIT\n"]);
    let (after_, _) = after(&["*nat\n:X - -\n-A X -j RETURN\n-A X -j ACCEPT\nCOMMIT\n"]);
    let kinds = |order| -> Vec<_> {
        let changes = diff(Family::V4, &before, &after_, order);
        changes
            .into_iter()
            .map(|change| (change.chain, change.kind))
            .collect()
    };
    let deleted = ("Y".to_owned(), ChangeKind::ChainDeleted);
    assert_eq!(kinds(Order::Any), std::slice::from_ref(&deleted));
    assert_eq!(
        kinds(Order::Kept),
        [("X".to_owned(), ChangeKind::RulesReordered), deleted]
    );
}

#[test]
fn a_save_that_is_restored_is_what_it_was() {
    let save = include_str!("data/kube-proxy.save");
    let mut ruleset = Ruleset::default();
    apply(&mut ruleset, &["iptables-restore"], save).unwrap();
    let saved = Ruleset::parse(save).unwrap();
    assert_eq!(diff(Family::V4, &saved, &ruleset, Order::Kept), []);
    assert_eq!(ruleset.rules(), saved.rules());
}
