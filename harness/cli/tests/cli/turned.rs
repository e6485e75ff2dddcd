//! What is said of a loss that no deleted chain or jump explains: the command after which packets end, or what the scenario did.

use std::fs::read_to_string;

use crate::ground::{Ground, exits};

const VARIANTS: &str = r"
  raw:
    timeline: [settle: 1s, run: { at: node/n1, as: firewall, command: iptables -t raw -A PREROUTING -p tcp --dport 80 -j DROP }, settle: 1s]
    expect: { broken: [answers] }
  policy:
    timeline: [settle: 1s, run: { at: node/n1, as: firewall, command: iptables -P FORWARD DROP }, settle: 1s]
    expect: { broken: [answers] }
  endpoints:
    timeline: [settle: 1s, delete: { kind: Pod, namespace: test, name: web }, settle: 1500ms]
    expect: { broken: [answers] }
  link:
    timeline: [settle: 1s, link-down: { at: pod/client, interface: eth0, for: 1s }]
    expect: { broken: [answers] }
";

#[test]
fn of_a_loss_that_no_missing_rule_explains_the_command_is_named_or_what_was_done_just_before() {
    let ground = Ground::new();
    ground.write_others(VARIANTS);
    let output = ground.chainbreak(&["run", "others.yaml", "--out", "out"]);
    exits(&output, 0);
    let summary = read_to_string(ground.path().join("out/latest/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let headline = |variant: &str| {
        let mut cases = summary["cases"].as_array().unwrap().iter();
        let case = cases.find(|it| it["case"] == format!("others/{variant}"));
        case.unwrap()["headline"].as_str().unwrap().to_owned()
    };
    let says = |variant: &str, words: &str| {
        let said = headline(variant);
        assert!(said.ends_with(words), "{variant}: {said}");
    };
    says(
        "raw",
        "is dropped by raw PREROUTING 1: DROPPED, since firewall (iptables)",
    );
    says(
        "policy",
        "is dropped by filter FORWARD, policy: DROPPED – no rule of the chain decided, since firewall (iptables)",
    );
    // Whether kube-proxy's rules or the pod went first is a matter of milliseconds; what was done comes before either.
    let said = headline("endpoints");
    assert!(
        said.contains("; just before it: delete Pod test/web"),
        "{said}"
    );
    says(
        "link",
        "no recorded command explains it; just before it: eth0 of pod/default/client goes down",
    );
}
