//! Where the machine was too slow there is no verdict.

use std::{collections::BTreeSet, process::Command};

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

const FOUR: &str = r#"
name: four
about: starts, that keep a processor busy each
cluster: { nodes: 1, kube-proxy: { version: "1.32" } }
manifests: [web.yaml]
traffic:
  shop: { from: pod/client, to: service/test/web, port: 80, every: 10ms }
timeline:
  - settle: 300ms
promises:
  answers: { available: { traffic: shop } }
variants:
  only: { expect: healthy }
"#;

#[test]
fn on_one_core_one_world_starts_after_the_other_whatever_runs_beside_it() {
    let ground = Ground::new();
    ground.write("four.yaml", FOUR);
    let four = ["--matrix", "kube-proxy=1.28,1.30,1.32,1.34"];
    let run = ["run", "four.yaml", "--jobs", "4", "--format", "jsonl"];
    let run = ground.command(&[&run[..], &four].concat());
    let mut on_one = Command::new("taskset");
    on_one.args(["--cpu-list", "0"]).arg(run.get_program());
    let ran = on_one.args(run.get_args()).current_dir(ground.path());
    let ran = ran.output().unwrap();
    exits(&ran, 0);
    let mut starting = BTreeSet::new();
    let mut ready = BTreeSet::new();
    for line in text(&ran.stdout).lines() {
        let Some(event) = line.strip_prefix(r#"{"event":{"case":""#) else {
            continue;
        };
        let (case, event) = event.split_once('"').unwrap();
        let case = case.to_owned();
        if event.contains(r#"{"phase":"ready"}"#) {
            starting.remove(&case);
            ready.insert(case);
        } else if !ready.contains(&case) {
            starting.insert(case);
        }
        assert!(starting.len() <= 1, "{starting:?} at {line}");
    }
    assert_eq!(ready.len(), 4, "{ready:?}");
}
