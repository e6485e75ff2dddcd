//! To look changes nothing, and to have seen nothing proves nothing.

use crate::ground::{Ground, exits, text};

/// A node with nft's iptables; nobody writes through legacy. Its own command says at the end whether anybody did.
const LOOKED_AT: &str = r"
name: looked-at
about: what is looked at is as it was
cluster: { nodes: 1, iptables: nft }
timeline:
  - settle: 1200ms
  - run: { command: test -z $(cat /proc/net/ip_tables_names) }
  - mark: seen
  - settle: 100ms
promises:
  nothing-in-legacy: { has-rule: { table: nat, chain: KUBE-SERVICES, absent: true, always: true, backend: legacy } }
variants:
  only: { expect: healthy }
";

/// The scenario's last look is root's: an ordinary user may not read which tables there are, and makes them.
#[test]
fn asking_for_a_table_of_legacy_does_not_make_it() {
    let ground = Ground::new();
    ground.write("looked-at.yaml", LOOKED_AT);
    exits(
        &ground.chainbreak(&["run", "looked-at.yaml", "--out", "out"]),
        0,
    );
    let looked = ground.history();
    let none = r#""query":"nothing-in-legacy","count":0"#;
    assert!(looked.contains(none), "{looked}");
}

#[test]
fn a_counter_of_a_rule_that_nobody_has_is_unknown_and_says_what_there_is() {
    let ground = Ground::new();
    let promises = "promises:\n  none-dropped: { counter: { rule: { table: nat, chain: KUBE-SERVCIES, jump: DROP }, at-most: 0 } }";
    let short = include_str!("ground/short.yaml").replacen("promises:", promises, 1);
    ground.write("short.yaml", short);
    let ran = ground.run("calm", &[]);
    exits(&ran, 11);
    let said = text(&ran.stdout);
    // Without its line breaks.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "there is no chain KUBE-SERVCIES: did you mean \"KUBE-SERVICES\"?";
    assert!(said.contains(why), "{said}");
}
