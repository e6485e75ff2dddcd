//! Runs in somebody's cluster that meet another one, lose a node, or are killed: what becomes of them, and of the cluster.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::{
    ground::{Running, descendants, exits, is_alive, until},
    long::existing::{NAME, Theirs},
};

/// How many moments are tried where `CHAINBREAK_KILLS` names no other number.
const KILLS: u32 = 4;

const DISTURBING: [&str; 2] = ["--allow-disruption", "kind-theirs"];

/// What a case changes on a node, or in the cluster, and what is ours there.
fn state(theirs: &Theirs<'_>) -> String {
    let node = "sysctl net.ipv4.tcp_fin_timeout; ip route; ip -o link show eth0 | grep -o 'mtu [0-9]*'; \
        iptables-legacy-save -t raw | grep -v '^[#:]'; iptables-nft-save -t raw | grep -v '^[#:]'; \
        conntrack -L 2>/dev/null | grep -c 'src=198\\.1[89]\\.'; \
        for it in $(pgrep -x kube-proxy); do grep '^State:.*stopped' /proc/$it/status; done; true";
    theirs.docker(&["exec", "theirs-control-plane", "sh", "-c", node]) + &theirs.ours()
}

fn number(variable: &str, or: u32) -> u32 {
    std::env::var(variable).map_or(or, |it| it.parse().unwrap())
}

/// Ends it with all that it has started, as the kernel does when memory lacks.
fn killed_after(mut command: Command, moment: Duration) {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().unwrap();
    let waited = Command::new("sleep")
        .arg(moment.as_secs_f64().to_string())
        .status();
    assert!(waited.unwrap().success());
    let own = i32::try_from(run.id()).unwrap();
    let family = descendants(own);
    for pid in family.iter().copied().chain([own]) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap_or(());
    }
    run.wait().unwrap();
    let gone = || !family.iter().any(|pid| is_alive(*pid));
    until("every process is gone", gone);
}

/// Steps of one test: a cluster takes a while to be made.
#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind-all"]
fn a_cluster_is_left_as_it_was_by_runs_that_meet_or_lose_a_node() {
    let ground = crate::ground();
    let theirs = Theirs::make(&ground);
    runs_keep_to_themselves_and_wait_where_one_may_disturb(&theirs);
    a_node_that_dies_makes_the_case_inconclusive_and_is_named(&theirs);
}

fn runs_keep_to_themselves_and_wait_where_one_may_disturb(theirs: &Theirs<'_>) {
    let mut long = Running::start(&theirs.run("long", &[]));
    long.reads("judging");
    exits(&theirs.ran("calm", &[]), 0);
    let leave = ["--allow-disruption", "kind-theirs"];
    let mut alone = Running::start(&theirs.run("kube-proxy-restarts", &leave));
    alone.reads("waits: the run chainbreak-");
    long.signal(Signal::SIGINT);
    assert_eq!(long.ends().0.code(), Some(11));
    let (status, said, progress) = alone.ends();
    assert_eq!(status.code(), Some(0), "{said}{progress}");
    assert_eq!(theirs.ours(), "");
}

/// What was to be undone there stays noted until it answers again; its pod of the run has ended by then.
fn a_node_that_dies_makes_the_case_inconclusive_and_is_named(theirs: &Theirs<'_>) {
    let mut running = Running::start(&theirs.run("a-while", &DISTURBING));
    running.reads("route 203.0.113.0/24 dev lo in node/n2");
    let worker = format!("{NAME}-worker");
    theirs.docker(&["kill", &worker]);
    let (status, said, progress) = running.ends();
    assert_eq!(status.code(), Some(11), "{said}{progress}");
    assert!(
        said.contains(&format!("n2, {worker} in Kubernetes")),
        "{said}"
    );
    assert!(
        said.contains("left behind: not undone: the route to 203.0.113.0/24"),
        "{said}"
    );
    theirs.docker(&["start", &worker]);
    let ready = ["wait", "--for=condition=Ready", "nodes", "--all"];
    theirs.kubectl(&[&ready[..], &["--timeout=120s"]].concat());
    let cleaned = theirs.clean();
    assert!(cleaned.contains("which no run uses"), "{cleaned}");
    assert_eq!(theirs.ours(), "");
}

/// At the first moments nothing may be there yet, at the last nothing any more.
#[test]
#[ignore = "needs Docker, kind and a node image: make test-kind-all"]
fn after_a_run_that_was_killed_at_any_moment_the_next_command_leaves_the_cluster_as_it_was() {
    let ground = crate::ground();
    let theirs = &Theirs::make(&ground);
    let name = "disturbing.yaml";
    theirs
        .ground
        .write(name, include_str!("../disturbing.yaml"));
    let pod = include_str!("../disturbing-pod.yaml");
    theirs.ground.write("disturbing-pod.yaml", pod);
    let before = state(theirs);
    let run = || theirs.run_of(name, "kubeconfig", "all", &DISTURBING);
    let begin = Instant::now();
    exits(&run().output().unwrap(), 0);
    let whole = begin.elapsed();
    assert_eq!(state(theirs), before, "an orderly end");
    let seed = number("CHAINBREAK_SEED", 1);
    let mut random = SmallRng::seed_from_u64(seed.into());
    let mut in_the_middle = 0;
    for round in 1..=number("CHAINBREAK_KILLS", KILLS) {
        let moment = whole.mul_f64(random.random());
        killed_after(run(), moment);
        in_the_middle += u32::from(state(theirs) != before);
        let cleaned = if round % 4 == 0 {
            exits(&run().output().unwrap(), 0);
            "another run".to_owned()
        } else {
            theirs.clean()
        };
        let context = format!("kill {round} of seed {seed} after {moment:?}: {cleaned}");
        eprintln!("{}, {in_the_middle} left something", context.trim_end());
        assert_eq!(state(theirs), before, "{context}");
    }
    assert_ne!(in_the_middle, 0, "no kill was in the middle of anything");
}
