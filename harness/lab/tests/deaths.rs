//! Whoever of a world's processes is killed, at whatever moment, nothing of the world is left.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use support::{PROGRAM, case};
use tokio::{
    process::{Child, Command},
    time::{Instant, interval, sleep_until, timeout},
};

/// How many deaths are died.
const DEATHS: u64 = 50;
/// Up to when: a world of two nodes with agents is up after a third of this.
const LATEST: u64 = 400;
/// The kernel takes namespaces down in the background, one after the other.
const DEADLINE: Duration = Duration::from_secs(10);
/// By this variable in its environment every process of a world is known.
const MARK: &str = "CHAINBREAK_TEST_MARK";

/// What a world could leave on a machine, beside processes and namespaces.
#[derive(Debug, PartialEq, Eq)]
struct Fingerprint {
    mounts: String,
    links: String,
    rules: String,
    names: BTreeSet<PathBuf>,
}

impl Fingerprint {
    fn take() -> Self {
        let said = |program: &str, arguments: &[&str]| {
            let output = std::process::Command::new(program)
                .args(arguments)
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let rules: Vec<String> = ["iptables-legacy-save", "iptables-nft-save"]
            .iter()
            .flat_map(|save| said(save, &[]).lines().map(str::to_owned).collect::<Vec<_>>())
            // Comments carry the time.
            .filter(|line| line.starts_with("-A"))
            .collect();
        let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        Self {
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap(),
            links: said("ip", &["-o", "link"]),
            rules: rules.join("\n"),
            names: names.map(|entry| entry.path()).collect(),
        }
    }
}

/// Processes whose environment carries the mark.
fn marked(mark: &str) -> BTreeSet<i32> {
    let wanted = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    })
    .collect()
}

/// The namespaces of all threads of these processes, or of every process.
fn namespaces(of: Option<&BTreeSet<i32>>) -> BTreeSet<PathBuf> {
    let processes: Vec<PathBuf> = match of {
        Some(ids) => ids.iter().map(|id| format!("/proc/{id}").into()).collect(),
        None => fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .collect(),
    };
    let threads = processes
        .iter()
        .filter_map(|process| fs::read_dir(process.join("task")).ok());
    let links = threads
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_dir(task.path().join("ns")).ok());
    links
        .flatten()
        .flatten()
        .filter_map(|link| fs::read_link(link.path()).ok())
        .collect()
}

fn children(of: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect()
}

/// The process so many generations below the parent, or the last one that is there already.
fn victim(parent: i32, generation: usize) -> i32 {
    (0..generation).fold(parent, |id, _| children(id).first().copied().unwrap_or(id))
}

fn begin(mark: &str) -> Child {
    Command::new(PROGRAM)
        .args(["parent", &case(2).to_string()])
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills one process of a new world after that time and waits until nothing is left.
async fn die(mark: &str, after: Duration, generation: usize) {
    let own = namespaces(Some(&BTreeSet::from([std::process::id().cast_signed()])));
    let mut parent = begin(mark);
    let id = parent.id().unwrap().cast_signed();
    sleep_until(Instant::now() + after).await;
    let mut made = namespaces(Some(&marked(mark)));
    made.retain(|namespace| !own.contains(namespace));
    kill(Pid::from_raw(victim(id, generation)), Signal::SIGKILL).unwrap();
    let gone = async {
        parent.wait().await.unwrap();
        let mut looks = interval(Duration::from_millis(2));
        while !marked(mark).is_empty() || !namespaces(None).is_disjoint(&made) {
            looks.tick().await;
        }
    };
    let nothing_left = timeout(DEADLINE, gone).await.is_ok();
    let left = marked(mark);
    assert!(
        nothing_left,
        "generation {generation} killed after {after:?} left {left:?}"
    );
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_no_process_namespace_mount_link_or_rule() {
    let before = Fingerprint::take();
    let mut random = ChaCha8Rng::seed_from_u64(0xdead);
    for death in 0..DEATHS {
        let after = Duration::from_millis(random.random_range(0..LATEST));
        let generation = random.random_range(0..4);
        die(
            &format!("{}-{death}", std::process::id()),
            after,
            generation,
        )
        .await;
    }
    assert_eq!(Fingerprint::take(), before);
    assert!(!Path::new("/run/chainbreak").exists());
}

#[tokio::test]
async fn a_parent_that_closes_the_lifeline_ends_the_world() {
    let mut world = support::World::raise(support::User::Myself, &case(1)).await;
    let stage_one = world.worker.child.id().unwrap().cast_signed();
    assert_eq!(children(stage_one).len(), 1, "the world lives");
    world.worker.hang_up();
    let ended = timeout(DEADLINE, world.worker.wait())
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(
        ended.code(),
        Some(9),
        "the worker's own status for a lost parent"
    );
}
