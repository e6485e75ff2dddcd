//! Who took away a rule that a promise asks for, or made one that was not to be there, in words of a run on the real kernel.

use std::fs::read_to_string;

use crate::ground::{Ground, exits};

const RULES: &str = r#"
name: rules
about: Somebody else writes to kube-proxy's table, and to one of his own.
cluster: { nodes: 1, kube-proxy: { mode: nftables, version: "1.33" } }
manifests: [web.yaml]
timeline: [settle: 1s, run: { at: node/n1, as: firewall, command: nft delete table ip kube-proxy }, run: { at: node/n1, as: firewall, command: iptables -t nat -N MINE }, settle: 1s]
promises:
  rule: { has-rule: { backend: nftables, table: kube-proxy, chain: services, matches: 'vmap @service-ips', always: true } }
  element: { has-element: { table: kube-proxy, set: service-ips, element: 10.96.0.1 . tcp . 443, always: true } }
  mine: { has-rule: { table: nat, chain: MINE, absent: true, always: true } }
variants:
  all: { expect: { broken: [rule, element, mine] } }
"#;

#[test]
fn who_took_away_a_rule_by_its_text_or_an_element_and_who_made_a_chain_is_named() {
    let ground = Ground::new();
    ground.write("rules.yaml", RULES);
    let output = ground.chainbreak(&["run", "rules.yaml", "--out", "out"]);
    exits(&output, 0);
    let report = read_to_string(ground.path().join("out/latest/report.txt")).unwrap();
    let says = |what: &str, words: &str| {
        let mut lines = report.lines();
        assert!(
            lines.any(|line| line.contains(what) && line.ends_with(words)),
            "{what}: {report}"
        );
    };
    says("/vmap @service-ips/", ": deleted by firewall (nft)");
    says("10.96.0.1 . tcp . 443", ": deleted by firewall (nft)");
    says("nat MINE present", ": added by firewall (iptables)");
}
