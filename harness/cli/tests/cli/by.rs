//! Because of whom an incident is expected, held against who is found behind it.

use std::fs::read_to_string;

use crate::ground::{Ground, exits};

const VARIANTS: &str = r"
  right:
    timeline: [settle: 1s, run: { at: node/n1, as: firewall, command: iptables -P FORWARD DROP }, settle: 1s]
    expect: { broken: [answers], by: firewall }
  wrong:
    timeline: [settle: 900ms, run: { at: node/n1, as: firewall, command: iptables -P FORWARD DROP }, settle: 1s]
    expect: { broken: [answers], by: kube-proxy }
  link:
    timeline: [settle: 1s, link-down: { at: pod/client, interface: eth0, for: 1s }]
    expect: { broken: [answers], by: link-down }
";

#[test]
fn an_incident_because_of_another_than_the_scenario_says_is_not_as_expected_wherever_one_reads_it()
{
    let ground = Ground::new();
    ground.write_others(VARIANTS);
    let output = ground.chainbreak(&["run", "others.yaml", "--out", "out"]);
    exits(&output, 10);
    let read = |file: &str| read_to_string(ground.path().join("out/latest").join(file)).unwrap();
    let live = String::from_utf8(output.stderr).unwrap();
    for line in [
        "✓ others/right: as expected",
        "✗ others/wrong: not as expected",
        "✓ others/link: as expected",
    ] {
        assert!(live.contains(line), "{line}\n{live}");
    }
    let said = "since firewall (iptables); the scenario expects kube-proxy behind it";
    for file in ["report.txt", "junit.xml", "summary.json"] {
        assert!(read(file).contains(said), "{file}\n{}", read(file));
    }
    let judged = read("run.jsonl");
    let judged = judged
        .lines()
        .filter(|it| it.contains("\"judged\"") && it.contains("not-as-expected"));
    assert_eq!(judged.count(), 1);
    let again = ground.chainbreak(&["report", "out/latest/run.jsonl"]);
    exits(&again, 10);
    let again = String::from_utf8(again.stdout).unwrap();
    assert!(
        again.contains(said) && !again.contains("it was judged"),
        "{again}"
    );
}
