//! Real clusters as a person has them. They need Docker, kind and a node image: `make test-kind` makes all of that from Debian's packages
//! and Go's modules, and runs these, one after the other. `CHAINBREAK_KIND_IMAGE` names the image; its tag is its Kubernetes.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

#[expect(dead_code, reason = "these tests use a part of it")]
#[path = "../cli/ground/mod.rs"]
mod ground;

mod cluster;
mod kept;
mod long;
mod off_cluster;

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use ground::{Ground, Running, exits, text, validates};
use nix::sys::signal::Signal;

/// A folder with the scenario, and a state of its own. The clusters that a failed test has kept go with it: the next one needs the machine.
struct Own(Ground);

impl Deref for Own {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.0
    }
}

impl Drop for Own {
    #[expect(clippy::print_stderr, reason = "beside why the test failed")]
    fn drop(&mut self) {
        if thread::panicking() {
            match command(self, &["clean"]).output() {
                Ok(cleaned) => eprint!("{}{}", text(&cleaned.stdout), text(&cleaned.stderr)),
                Err(error) => eprintln!("clean: {error}"),
            }
        }
    }
}

fn ground() -> Own {
    let ground = Ground::new();
    ground.write("two-nodes.yaml", include_str!("two-nodes.yaml"));
    ground.write("two-nodes-pods.yaml", include_str!("two-nodes-pods.yaml"));
    Own(ground)
}

fn command(ground: &Ground, args: &[&str]) -> Command {
    let mut command = ground.command(args);
    command.env("XDG_STATE_HOME", ground.path().join("state"));
    command
}

/// The node image.
fn image() -> String {
    std::env::var("CHAINBREAK_KIND_IMAGE").expect("`make test-kind` names the image")
}

/// Its Kubernetes: `1.34.10`.
fn kubernetes() -> String {
    let image = image();
    let (_, version) = image.rsplit_once(":v").expect("its tag is a version");
    version.to_owned()
}

/// Whether it is 1.20, which lacks what came later.
fn is_1_20() -> bool {
    kubernetes().starts_with("1.20.")
}

fn run(ground: &Ground, scenario: &str, more: &[&str]) -> Command {
    let image = image();
    let version = format!("kube-proxy={}", kubernetes());
    let args = [
        "run",
        scenario,
        "--out",
        "out",
        "-v",
        "--backend",
        "kind",
        "--kind-image",
        &image,
        "--matrix",
        &version,
    ];
    command(ground, &[&args, more].concat())
}

fn clean(ground: &Ground) -> String {
    let output = command(ground, &["clean"]).output().unwrap();
    exits(&output, 0);
    text(&output.stdout)
}

/// The run's history, if it ended as expected.
fn history(ground: &Ground, output: &Output) -> String {
    exits(output, 0);
    validates(&ground.newest("junit.xml"));
    ground.history()
}

/// The names of clusters that Docker has and that may be ours.
fn standing() -> Vec<String> {
    let kind = Command::new("kind")
        .args(["get", "clusters"])
        .output()
        .unwrap();
    let names = text(&kind.stdout);
    let ours = names
        .lines()
        .filter(|name| name.starts_with("chainbreak-") && *name != "chainbreak-smoke");
    ours.map(str::to_owned).collect()
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind"]
fn pods_on_two_nodes_are_answered_and_the_next_case_has_the_same_cluster() {
    let ground = ground();
    let more = [
        "--variant",
        "calm",
        "--variant",
        "kube-proxy-restarts",
        "--reuse",
    ];
    let output = run(&ground, "two-nodes.yaml", &more).output().unwrap();
    let history = history(&ground, &output);
    let real = format!("\"value\":\"real v{}, the cluster's own\"", kubernetes());
    for words in [
        real.as_str(),
        "is as it was before its first case",
        "creating the cluster chainbreak-",
        "using the cluster chainbreak-",
        "restart kube-proxy on n2",
        "Using iptables Proxier",
    ] {
        assert!(history.contains(words), "{words}");
    }
    assert_eq!(history.matches("creating the cluster").count(), 1);
    assert_eq!(standing().len(), 1);
    let cleaned = clean(&ground);
    assert!(
        cleaned.contains("deleted the cluster chainbreak-"),
        "{cleaned}"
    );
    assert_eq!(standing(), [""; 0]);
}

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind"]
fn what_a_killed_run_left_is_found_named_and_deleted() {
    let ground = ground();
    let mut running = Running::start(&run(&ground, "two-nodes.yaml", &["--variant", "long"]));
    running.reads("judging");
    // The worker first: as long as it lives, it takes the cluster down.
    for pid in running.family() {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL).unwrap_or(());
    }
    running.signal(Signal::SIGKILL);
    running.ends();
    let left = standing();
    assert_eq!(left.len(), 1);
    let cleaned = clean(&ground);
    let words = format!("deleted the cluster {}, which no run uses", left[0]);
    assert!(cleaned.contains(&words), "{cleaned}");
    assert_eq!(standing(), [""; 0]);
}

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind"]
fn an_interrupted_run_deletes_its_cluster_and_writes_its_reports() {
    let ground = ground();
    let mut running = Running::start(&run(&ground, "two-nodes.yaml", &["--variant", "long"]));
    running.reads("judging");
    running.signal(Signal::SIGINT);
    let (status, _, _) = running.ends();
    assert_eq!(status.code(), Some(11));
    validates(&ground.newest("junit.xml"));
    assert_eq!(standing(), [""; 0]);
}

/// Installed down to its pods, on a real API server.
#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind"]
fn a_calico_that_never_gets_ready_is_an_error_with_its_last_words_and_leaves_nothing() {
    let ground = ground();
    ground.write("calico.yaml", include_str!("crashing-calico.yaml"));
    let more = [
        "--variant",
        "with-calico",
        "--calico-manifest",
        "calico.yaml",
        "--ready-within",
        "3m",
    ];
    let output = run(&ground, "two-nodes.yaml", &more).output().unwrap();
    exits(&output, 11);
    let junit = ground.newest("junit.xml");
    validates(&junit);
    let junit = fs::read_to_string(junit).unwrap();
    for words in [
        "<error",
        "daemonset calico-node is ready on every node: 0 of 2 pods are ready",
        "and there is no bpffs here",
        "exit status 3",
        "event BackOff",
    ] {
        assert!(junit.contains(words), "{words}: {junit}");
    }
    assert_eq!(standing(), [""; 0]);
}
