//! Whoever of a world's processes is killed, at whatever moment, nothing of the world is left.
//!
//! Other runs may go on beside this one. So root's worlds start from a network and from mounts that nobody else
//! has, and the namespaces of a world are held until they were looked for: the kernel gives the number of a
//! namespace that is gone to the next one, whoever makes it.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use support::{PROGRAM, case, machine, pod};
use tokio::{
    process::{Child, Command},
    time::{Instant, interval, sleep_until, timeout},
};

/// How many deaths are died.
const DEATHS: u64 = 50;
/// The kernel takes namespaces down in the background, one after the other.
const DEADLINE: Duration = Duration::from_secs(10);
/// By this variable in its environment every process of a world is known.
const MARK: &str = "CHAINBREAK_TEST_MARK";

/// Gives this thread, and what it starts, a network and mounts of its own.
fn be_alone() {
    // Only root's worlds could change the machine's network, its rules or its mounts.
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
}

/// What a world could leave on a machine, beside namespaces. A namespace with a name is a mount.
#[derive(Debug, PartialEq, Eq)]
struct Fingerprint {
    mounts: String,
    links: String,
    rules: Vec<String>,
    processes: BTreeSet<i32>,
}

impl Fingerprint {
    fn take() -> Self {
        let root = nix::unistd::geteuid().is_root();
        let saves = ["iptables-legacy-save", "iptables-nft-save"];
        let rules = saves.iter().filter(|_| root).map(|save| said(save, &[]));
        Self {
            mounts: fs::read_to_string("/proc/thread-self/mountinfo").unwrap(),
            links: said("ip", &["-o", "link"]),
            rules: rules.map(|save| without_change(&save)).collect(),
            processes: marked(&format!("{}-", std::process::id())),
        }
    }
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = machine(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A save without what changes by itself: comments, which carry the time, and counters.
fn without_change(save: &str) -> String {
    let lines = save.lines().filter(|line| !line.starts_with('#'));
    let uncounted = lines.map(|line| line.split(" [").next().unwrap_or(line));
    uncounted.collect::<Vec<_>>().join("\n")
}

/// Processes whose environment carries a mark that begins so.
fn marked(mark: &str) -> BTreeSet<i32> {
    let wanted = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable.starts_with(wanted.as_bytes()))
    })
    .collect()
}

/// The namespaces of all threads of these processes, or of every process, by their names, each with a path.
fn namespaces(of: Option<&BTreeSet<i32>>) -> BTreeMap<PathBuf, PathBuf> {
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
        .filter_map(|link| Some((fs::read_link(link.path()).ok()?, link.path())))
        .collect()
}

/// Namespaces that are held: nobody else gets their numbers.
struct Made(BTreeMap<PathBuf, File>);

impl Made {
    /// The namespaces of these processes that are not this thread's own.
    fn by(processes: &BTreeSet<i32>) -> Self {
        let own = fs::read_dir("/proc/thread-self/ns").unwrap().flatten();
        let mut made = namespaces(Some(processes));
        for link in own {
            made.remove(&fs::read_link(link.path()).unwrap());
        }
        let open = |path: PathBuf| File::open(path).ok();
        let held = made.into_values().filter_map(open).map(|file| {
            // What was opened, if its thread went elsewhere meanwhile.
            let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
            (name.unwrap(), file)
        });
        Self(held.collect())
    }

    /// Whether no process is in any of them.
    fn are_empty(&self) -> bool {
        namespaces(None)
            .keys()
            .all(|name| !self.0.contains_key(name))
    }
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

/// A whole life: raised, pods made, answering and destroyed, one after the other.
fn begin(mark: &str) -> Child {
    let web = |name, node| json!({ "create": pod(name, node, &json!({ "image": "nginx:1.25" })) });
    let synced = "until iptables-save -t nat | grep -q KUBE-MARK-MASQ; do :; done";
    let requests = [
        web("a", "n1"),
        web("b", "n2"),
        json!({ "ready": 2 }),
        json!({ "exec": ["pod/default/a", ["curl", "-sf", "http://127.0.0.1/"]] }),
        json!({ "exec": ["node/n1", ["sh", "-c", synced]] }),
        json!("stop"),
    ];
    Command::new(PROGRAM)
        .args(["parent", &case(2).to_string()])
        .args(requests.map(|request| request.to_string()))
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills one process of a new world after that time and waits until nothing is left. Whether an nginx
/// of the world lived then.
async fn die(mark: &str, after: Duration, generation: usize) -> bool {
    let mut parent = begin(mark);
    let id = parent.id().unwrap().cast_signed();
    sleep_until(Instant::now() + after).await;
    let alive = marked(mark);
    let nginx = alive.iter().any(|&id| is_nginx(id));
    let made = Made::by(&alive);
    kill(Pid::from_raw(victim(id, generation)), Signal::SIGKILL).unwrap();
    let gone = async {
        parent.wait().await.unwrap();
        let mut looks = interval(Duration::from_millis(2));
        while !marked(mark).is_empty() || !made.are_empty() {
            looks.tick().await;
        }
    };
    let nothing_left = timeout(DEADLINE, gone).await.is_ok();
    let left = marked(mark);
    assert!(
        nothing_left,
        "generation {generation} killed after {after:?} left {left:?}"
    );
    nginx
}

fn is_nginx(id: i32) -> bool {
    fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name == "nginx\n")
}

/// How long a life takes that nobody ends.
async fn lifetime(mark: &str) -> Duration {
    let begun = Instant::now();
    let status = timeout(DEADLINE, begin(mark).wait()).await;
    assert!(status.expect("it ends").unwrap().success());
    begun.elapsed()
}

#[tokio::test]
async fn a_kill_at_any_moment_of_a_run_leaves_no_process_namespace_mount_link_or_rule() {
    support::require_packages();
    be_alone();
    let before = Fingerprint::take();
    let own = std::process::id();
    let life = lifetime(&format!("{own}-life.")).await;
    let mut random = ChaCha8Rng::seed_from_u64(0xdead);
    let mut with_nginx = 0;
    for death in 0..DEATHS {
        let after = life.mul_f64(random.random_range(0.0..1.0));
        let generation = random.random_range(0..4);
        let mark = format!("{own}-{death}.");
        with_nginx += u64::from(die(&mark, after, generation).await);
    }
    assert_eq!(Fingerprint::take(), before);
    assert!(!Path::new("/run/chainbreak").exists());
    // Half of the moments, seen on two cores; that there are many is what the test is about.
    assert!(with_nginx > DEATHS / 10, "{with_nginx} met a pod's nginx");
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
