//! `drops`: which rules dropped or rejected how much, from the history alone.

use crate::ground::{Ground, exits, text};

/// A service that loses its only pod: kube-proxy rejects what is sent to it.
const NOBODY_SERVES: &str = r#"
name: nobody-serves
about: A service without endpoints.
cluster: { nodes: 1, kube-proxy: { mode: iptables, iptables: legacy, version: "1.32" } }
manifests:
  - web.yaml
  - apiVersion: apps/v1
    kind: Deployment
    metadata: { namespace: test, name: one }
    spec:
      selector: { matchLabels: { app: one } }
      template:
        metadata: { labels: { app: one } }
        spec:
          containers:
            - { name: nginx, image: "nginx:1.27", ports: [{ name: http, containerPort: 80 }] }
  - apiVersion: v1
    kind: Service
    metadata: { namespace: test, name: one }
    spec: { selector: { app: one }, ports: [{ name: http, port: 80, targetPort: http }] }
traffic:
  shop: { from: pod/client, to: service/test/one, port: 80, every: 20ms, connections: new, timeout: 200ms }
timeline:
  - churn: { deployment: test/one, replicas: [0], every: 3s, for: 3s }
promises:
  answers: { available: { traffic: shop, at-least: 90% } }
variants:
  scaled-away: { expect: { broken: [answers] } }
"#;

#[test]
fn the_rule_in_which_most_packets_end_comes_first_with_its_owner_and_what_it_means() {
    let ground = Ground::new();
    ground.write("nobody-serves.yaml", NOBODY_SERVES);
    let output = ground.chainbreak(&["run", "nobody-serves.yaml", "--out", "out"]);
    exits(&output, 0);
    let output = ground.chainbreak(&["drops", "out/latest", "--top", "1"]);
    exits(&output, 0);
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "nobody-serves/scaled-away", "{said}");
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    let packets: u64 = words[1].parse().unwrap();
    // 50 requests a second for about three seconds, a refusal each.
    assert!((20..=200).contains(&packets), "{said}");
    assert_eq!([words[0], words[3]], ["n1", "kube-proxy"], "{said}");
    assert!(lines[2].contains("filter KUBE-SERVICES") && lines[2].contains("REJECT"));
    assert_eq!(lines[3].trim(), "the service has no ready endpoint");
    let output = ground.chainbreak(&["drops", "out/latest", "--format", "jsonl"]);
    let first = text(&output.stdout).lines().next().unwrap().to_owned();
    let value: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(value["drops"]["packets"], packets);
    exits(
        &ground.chainbreak(&["drops", "out/latest", "--node", "n7"]),
        2,
    );
}
