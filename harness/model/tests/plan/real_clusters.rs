//! What a real cluster lacks.

use chainbreak_model::plan::Choice;

use crate::planned::{SCENARIO, choice, scenario, skips};

#[test]
fn a_real_cluster_has_to_have_the_version_that_it_is_upgraded_to() {
    let upgrade = "[upgrade: { kube-proxy: '1.33', calico: v3.29.7 }]";
    let upgrading = scenario(
        &SCENARIO
            .replace("[settle: 1s]", upgrade)
            .replace("  alone: { kube-proxy: none, expect: healthy }\n", ""),
    );
    let choice = Choice {
        real_clusters: true,
        ..choice(&[], &[])
    };
    let skipped = skips(&upgrading, &choice);
    let (_, why) = &skipped[0];
    for need in ["kubernetes-1.32", "kubernetes-1.33", "calico-upgrade"] {
        assert!(why.contains(need), "{why}");
    }
}

const AROUND: &str = "\
name: s
about: what is around a cluster
cluster:
  nodes: 2
  kube-proxy: { version: '1.32' }
  calico: { version: v3.28.1, bpffs: MOUNT }
  hosts:
    db: { nginx: 80, routes: [{ to: 10.20.1.0/24, via: HOP }] }
manifests:
  - { apiVersion: v1, kind: Service, metadata: { name: web }, spec: { type: TYPE, ports: [{ port: 80 }] } }
  - apiVersion: v1
    kind: Pod
    metadata: { name: client, annotations: { k8s.v1.cni.cncf.io/networks: 'NETWORKS' } }
    spec: { nodeName: n1, containers: [{ name: c, image: 'nginx:1.27' }] }
traffic:
  out: { from: pod/client, to: host/db, port: 80, every: 20ms }
  within: { from: host/db, to: pod/default/client, port: 80, every: 20ms }
timeline: [STEP, recreate: { agent: felixWAY }]
promises:
  seen: { source: { traffic: SEEN, is: client } }
variants:
  v: { expect: healthy }
";

/// Hosts are had where their backend has them; what they and pods cannot have on a real cluster is named, each by itself.
#[test]
fn what_a_real_cluster_lacks_around_its_nodes_is_named() {
    let choice = Choice {
        real_clusters: true,
        ..choice(&[], &[])
    };
    let lab = [
        ("HOP", "node/n1", "10.0.3.5", "underlay-addresses"),
        ("TYPE", "ClusterIP", "LoadBalancer", "load-balancers"),
        (
            "NETWORKS",
            "",
            r#"[{"name": "underlay", "ips": ["10.0.3.5/32"]}]"#,
            "further-interfaces",
        ),
        ("SEEN", "out", "within", "telling-servers"),
        ("STEP", "settle: 1s", "api: move", "api-endpoints"),
        ("STEP", "settle: 1s", "reboot: { node: n1 }", "reboots"),
        ("WAY", "", ", api: direct", "api-endpoints"),
        ("MOUNT", "host", "none", "own-bpffs"),
    ];
    let why = |lacking: Option<(&str, &str)>| {
        let text = lab
            .iter()
            .fold(AROUND.to_owned(), |text, (word, has, _, _)| {
                let lacking = lacking.filter(|(lacking, _)| lacking == word);
                let chosen = lacking.map_or(*has, |(_, lacks)| lacks);
                text.replace(word, chosen)
            });
        let text = text.replace(", annotations: { k8s.v1.cni.cncf.io/networks: '' }", "");
        skips(&scenario(&text), &choice)[0].1.clone()
    };
    let had = why(None);
    assert!(had.contains("off-cluster-hosts"), "{had}");
    for (word, _, lacks, need) in lab {
        assert!(!had.contains(need), "{need}: {had}");
        let why = why(Some((word, lacks)));
        assert!(why.contains(need), "{need}: {why}");
    }
}
