//! `bundle`: a run in one file, and what becomes of it elsewhere.

use std::{fs, path::Path};

use crate::ground::{Ground, exits, text};

/// Its pod is told a password, and a third party's command has one.
const SECRETIVE: &str = "
name: secretive
about: It has what nobody else is to see.
cluster: { nodes: 1, kube-proxy: { iptables: legacy, version: \"1.32\", min-sync-period: 1s, sync-period: 2s } }
manifests:
  - web.yaml
  - secret.yaml
  - { apiVersion: v1, kind: ConfigMap, metadata: { name: c, namespace: default }, data: { note: it is hunter2222 } }
traffic:
  shop: { from: pod/client, to: service/test/web, port: 80, every: 10ms, connections: new }
timeline:
  - run: { at: node/n1, as: somebody, command: \"echo --password=hunter2222 --mode=open\" }
  - settle: 300ms
promises:
  no-errors: { no-log: { agent: kube-proxy, matches: \"never said\" } }
  answers: { available: { traffic: shop, at-least: 50%, longest-gap: 1s } }
variants:
  calm: { expect: healthy }
";

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: { name: s, namespace: default }
stringData: { key: hunter2222 }
";

/// A folder in which there is nothing but the bundle.
fn elsewhere(bundle: &Path) -> Ground {
    let other = Ground::new();
    for file in ["short.yaml", "web.yaml"] {
        fs::remove_file(other.path().join(file)).unwrap();
    }
    fs::copy(bundle, other.path().join("outage.tgz")).unwrap();
    other
}

#[test]
fn a_run_is_played_again_elsewhere_from_its_bundle_alone_and_compared() {
    let ground = Ground::new();
    let cell = ["--matrix", "mode=iptables", "--matrix", "iptables=legacy"];
    exits(&ground.run("fight-nobody-expects", &cell), 10);
    let packed = ground.chainbreak(&["bundle", "out/latest", "-o", "outage.tgz"]);
    exits(&packed, 0);
    let said = text(&packed.stdout);
    assert!(said.starts_with("outage.tgz: 1 case, "), "{said}");
    assert!(
        said.ends_with("again: chainbreak run outage.tgz\n"),
        "{said}"
    );
    let other = elsewhere(&ground.path().join("outage.tgz"));
    let planned = other.chainbreak(&["plan", "outage.tgz"]);
    exits(&planned, 0);
    let planned = text(&planned.stdout);
    assert!(
        planned.contains("run   short/fight-nobody-expects[mode=iptables,iptables=legacy]"),
        "{planned}"
    );
    let again = other.chainbreak(&["run", "outage.tgz", "--out", "out"]);
    exits(&again, 10);
    let said = text(&again.stdout);
    assert!(said.contains("2 broken    2 broken  ✓ same"), "{said}");
    assert!(said.contains("outage.tgz  this run"), "{said}");
    // It may be told from the plan of the run whether it is the same case, seed and all.
    let plan = |ground: &Ground| {
        let run = fs::read_to_string(ground.newest("run.jsonl")).unwrap();
        run.lines().nth(1).unwrap().to_owned()
    };
    assert_eq!(plan(&ground), plan(&other));
}

#[test]
fn unpacked_it_is_a_run_as_any_other() {
    let ground = Ground::new();
    exits(&ground.run("fight-nobody-expects", &[]), 10);
    exits(
        &ground.chainbreak(&["bundle", "out/latest", "-o", "outage.tgz"]),
        0,
    );
    let untar = std::process::Command::new("tar")
        .args(["-xzf", "outage.tgz"])
        .current_dir(ground.path())
        .status();
    assert!(untar.unwrap().success());
    exits(&ground.chainbreak(&["report", "bundle"]), 10);
    for file in ["junit.xml", "report.txt", "summary.json"] {
        let read =
            |folder: &str| fs::read_to_string(ground.path().join(folder).join(file)).unwrap();
        assert_eq!(read("bundle"), read("out/latest"), "{file}");
    }
    let readme = fs::read_to_string(ground.path().join("bundle/README.txt")).unwrap();
    assert!(
        readme.contains("chainbreak run FILE plays its cases again"),
        "{readme}"
    );
    let scenario = fs::read_to_string(ground.path().join("bundle/scenarios/1-short.yaml"));
    assert_eq!(
        scenario.unwrap(),
        fs::read_to_string(ground.path().join("short.yaml")).unwrap()
    );
}

#[test]
fn a_bundle_has_no_secret_and_says_how_many_were_taken_out() {
    let ground = Ground::new();
    ground.write("secretive.yaml", SECRETIVE);
    ground.write("secret.yaml", SECRET);
    exits(
        &ground.chainbreak(&["run", "secretive.yaml", "--out", "out"]),
        0,
    );
    let packed = ground.chainbreak(&["bundle", "out/latest", "-o", "it.tgz"]);
    exits(&packed, 0);
    let said = text(&packed.stdout);
    assert!(
        said.contains("secrets taken out: look whether these were all"),
        "{said}"
    );
    let untar = std::process::Command::new("tar")
        .args(["-xzOf", "it.tgz"])
        .current_dir(ground.path())
        .output();
    let all = text(&untar.unwrap().stdout);
    assert!(all.contains("--mode=open"), "what is no secret stays");
    assert!(!all.contains("hunter2222"));
    assert!(!all.contains(&ground.path().display().to_string()));
}

#[test]
fn a_scenario_that_was_changed_after_the_run_stays_out_and_that_is_said() {
    let ground = Ground::new();
    exits(&ground.run("calm", &[]), 0);
    let changed = fs::read_to_string(ground.path().join("short.yaml")).unwrap() + "# later\n";
    ground.write("short.yaml", changed);
    let packed = ground.chainbreak(&["bundle", "out/latest", "short/calm", "-o", "it.tgz"]);
    exits(&packed, 0);
    let said = text(&packed.stdout);
    assert!(
        said.contains("left out: short.yaml: it was changed since\n"),
        "{said}"
    );
}

#[test]
fn a_bundle_of_repetitions_is_played_as_often_and_says_so() {
    let ground = Ground::new();
    exits(&ground.run("calm", &["--repeat", "2"]), 0);
    exits(
        &ground.chainbreak(&["bundle", "out/latest", "short/calm", "-o", "it.tgz"]),
        0,
    );
    let again = ground.chainbreak(&["run", "it.tgz", "short/calm", "--out", "again"]);
    exits(&again, 0);
    let said = text(&again.stdout);
    assert!(said.contains("2 cases: 2 same"), "{said}");
    let twice = ground.chainbreak(&["run", "it.tgz", "--repeat", "2"]);
    exits(&twice, 2);
    assert!(text(&twice.stderr).contains("neither --repeat nor --until-fails"));
}

#[test]
fn what_is_no_bundle_and_what_a_bundle_says_itself_are_mistakes_of_the_command_line() {
    let ground = Ground::new();
    exits(&ground.run("calm", &[]), 0);
    exits(
        &ground.chainbreak(&["bundle", "out/latest", "-o", "it.tgz"]),
        0,
    );
    ground.write("noise.tgz", b"\x1f\x8bno archive");
    for (args, why) in [
        (&["run", "noise.tgz"][..], "noise.tgz is no bundle: "),
        (
            &["run", "it.tgz", "short.yaml"],
            "it.tgz is a bundle, and no other path is named beside it",
        ),
        (
            &["run", "it.tgz", "--seed", "7"],
            "it.tgz is a bundle, which says itself what runs: --seed has no place beside it",
        ),
        (
            &["run", "it.tgz", "short/clam"],
            "did you mean \"short/calm\"?",
        ),
        (
            &["bundle", "out/latest", "short/clam"],
            "short/clam: the run has no such case; did you mean \"short/calm\"?",
        ),
        (&["bundle", "nowhere"], "could not open nowhere"),
    ] {
        let refused = ground.chainbreak(args);
        exits(&refused, 2);
        let said = text(&refused.stderr);
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
