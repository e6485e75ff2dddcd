//! Hosts outside of a real cluster: what they can be, and that nothing of them stays.

use super::*;

/// In a kept cluster, one case after the other: each has hosts of its own.
const VARIANTS: [&str; 4] = [
    "as-it-should",
    "no-endpoint-on-n2",
    "answers-through-a-transit-node",
    "no-way-back",
];

fn ground() -> Own {
    let ground = super::ground();
    ground.write("off-cluster.yaml", include_str!("off-cluster.yaml"));
    ground.write(
        "off-cluster-pods.yaml",
        include_str!("off-cluster-pods.yaml"),
    );
    ground
}

fn run(ground: &Ground, variants: &[&str], more: &[&str]) -> Command {
    // What serves pods there; the pinned image cannot be had.
    let variants = variants.iter().flat_map(|name| ["--variant", name]);
    let args: Vec<&str> = ["--nginx-image", "nginx:1.27"]
        .into_iter()
        .chain(variants)
        .chain(more.iter().copied())
        .collect();
    super::run(ground, "off-cluster.yaml", &args)
}

/// What `docker` says, a line each.
fn docker(args: &[&str]) -> Vec<String> {
    let output = Command::new("docker").args(args).output().unwrap();
    exits(&output, 0);
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// The containers of hosts, whoever made them.
fn beside() -> Vec<String> {
    let filter = "label=chainbreak.dev/host";
    let mut names = docker(&["ps", "--all", "--filter", filter, "--format", "{{.Names}}"]);
    names.sort();
    names
}

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind"]
fn hosts_ask_node_ports_and_answer_pods_by_the_routes_that_they_have() {
    let ground = ground();
    let output = run(&ground, &VARIANTS, &["--reuse"]).output().unwrap();
    let history = history(&ground, &output);
    assert_eq!(history.matches("creating the cluster").count(), 1);
    assert!(history.contains("a container with nginx:1.27"));
    assert_eq!(beside(), [""; 0], "a host ends with its case");
    for cluster in standing() {
        let node = format!("{cluster}-control-plane");
        let routes = docker(&["exec", &node, "ip", "route", "show", "proto", "217"]);
        assert_eq!(routes, [""; 0], "and so does the way to it");
    }
    clean(&ground);
    assert_eq!(standing(), [""; 0]);
}

#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind"]
fn hosts_that_a_killed_run_left_are_found_named_and_removed() {
    let ground = ground();
    let mut running = Running::start(&run(&ground, &["long"], &[]));
    running.reads("judging");
    for pid in running.family() {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL).unwrap_or(());
    }
    running.signal(Signal::SIGKILL);
    running.ends();
    let left = beside();
    assert_eq!(left.len(), 3, "two hosts, and nginx of one: {left:?}");
    let cleaned = clean(&ground);
    for container in left {
        assert!(
            cleaned.contains(&format!("removed {container},")),
            "{cleaned}"
        );
    }
    assert_eq!(beside(), [""; 0]);
    assert_eq!(standing(), [""; 0]);
}
