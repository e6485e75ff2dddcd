//! Where the machine was too slow there is no verdict.

use crate::ground::{Ground, exits, text};

/// A second without a network, in which the probe stands still: what was due in it is sent after it.
const HOLE: &str = r#"
name: hole
about: an outage that a probe has slept through
cluster: { nodes: 1, kube-proxy: { version: "1.32" } }
manifests: [web.yaml]
traffic:
  shop: { from: pod/client, to: service/test/web, port: 80, every: 10ms, connections: new }
timeline:
  - settle: 300ms
  - run:
      at: node/n1
      command: |
        for process in /proc/[0-9]*; do
          if tr '\0' ' ' < $process/cmdline | grep -q 'exe [p]robe'; then
            kill -STOP ${process#/proc/} && stopped=yes
          fi
        done
        test -n "$stopped"
  - link-down: { at: pod/client, for: 1s }
  - settle: 1500ms
  - run:
      at: node/n1
      command: |
        for process in /proc/[0-9]*; do
          if tr '\0' ' ' < $process/cmdline | grep -q 'exe [p]robe'; then kill -CONT ${process#/proc/}; fi
        done
  - settle: 500ms
promises:
  answers: { available: { traffic: shop, at-least: 50% } }
variants:
  only: { expect: healthy }
"#;

#[test]
fn an_outage_that_the_probe_has_slept_through_is_unknown_with_the_figure() {
    let ground = Ground::new();
    ground.write("hole.yaml", HOLE);
    let ran = ground.chainbreak(&["run", "hole.yaml", "--out", "out"]);
    exits(&ran, 11);
    let said = text(&ran.stdout);
    // Without its line breaks.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "too little machine: the request of shop due at";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("s late (at most 0.25 s)"), "{said}");
}
