//! Nothing that runs in a place of a world gets out of it, whoever has started the world: each attempt is really made, in a
//! node and in a pod. Minutes on a loaded machine, and only as root both users can be had: `make test-escape`.

#![expect(clippy::unwrap_used, reason = "tests may")]

#[path = "../support/mod.rs"]
mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::OpenOptionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use chainbreak_lab::ebpf::{Before, left_by_killed};
use nix::{
    sys::stat::Mode,
    unistd::{geteuid, mkfifo},
};
use serde_json::{Value, json};
use support::{User, World, case, open};
use tempfile::TempDir;

/// What is attempted: what all share, then a line `## WHAT` before each.
const ATTEMPTS: &str = include_str!("attempts.sh");
/// What programs of eBPF a world may load.
const EBPF: &str = include_str!("ebpf.pl");
/// The places in which it is.
const PLACES: [&str; 2] = ["node/n1", "pod/default/a"];
/// An attempt that takes longer has failed.
const SECONDS: &str = "20";

/// What a world could reach on the machine, if it got there.
struct Outside {
    folder: TempDir,
    sleep: Child,
    _sockets: (UnixListener, UnixListener, TcpListener, fs::File),
}

impl Outside {
    fn new() -> Self {
        // Not below /tmp, which a world has of its own.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        open(folder.path());
        let at = |name: &str| folder.path().join(name);
        let by_path = UnixListener::bind(at("socket")).unwrap();
        let name = SocketAddr::from_abstract_name(folder.path().to_str().unwrap()).unwrap();
        let by_name = UnixListener::bind_addr(&name).unwrap();
        let port = TcpListener::bind("0.0.0.0:0").unwrap();
        fs::write(at("port"), port.local_addr().unwrap().port().to_string()).unwrap();
        mkfifo(&at("fifo"), Mode::from_bits_truncate(0o666)).unwrap();
        let mut reader = fs::OpenOptions::new();
        reader.read(true).custom_flags(libc::O_NONBLOCK);
        let fifo = reader.open(at("fifo")).unwrap();
        let sleep = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(at("pid"), sleep.id().to_string()).unwrap();
        for everybody in ["socket", "fifo"] {
            let any = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
            fs::set_permissions(at(everybody), any).unwrap();
        }
        Self {
            folder,
            sleep,
            _sockets: (by_path, by_name, port, fifo),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.sleep.kill().unwrap();
        self.sleep.wait().unwrap();
    }
}

/// What is attempted, each with its script.
fn attempts() -> Vec<(&'static str, String)> {
    let mut parts = ATTEMPTS.split("\n## ");
    let shared = parts.next().unwrap();
    let attempts = parts.map(|part| {
        let (what, script) = part.split_once('\n').unwrap();
        (what, format!("{shared}\n{script}"))
    });
    attempts.collect()
}

/// How an attempt ended; its words are evidence.
async fn attempt(world: &mut World, place: &str, outside: &Path, script: &str) -> Value {
    let outside = format!("OUTSIDE={}", outside.display());
    let limit = ["env", &outside, "timeout", "-k", "1", SECONDS];
    let argv = [&limit[..], &["sh", "-c", script]].concat();
    world.ask(json!({ "exec": [place, argv] })).await
}

/// What a node of a world with `--allow-ebpf` is allowed; its pods are not.
const ALLOWED: [(&str, &str); 2] = [
    ("node/n1", "loads a program into the kernel"),
    ("node/n1", "loads a program for cgroups"),
];

/// Makes every attempt but these, and fails with those that got out.
async fn nothing_gets_out(mut world: World, but: &[(&str, &str)]) {
    let outside = Outside::new();
    world.nginx(&[("a", "n1")]).await;
    let mut escaped = Vec::new();
    for (what, script) in attempts() {
        let places = PLACES.iter().filter(|place| !but.contains(&(place, what)));
        for &place in places {
            let done = attempt(&mut world, place, outside.path(), &script).await;
            let words = done["stderr"].as_str().unwrap();
            for mistake in ["yntax error", "Can't locate", "Unquoted"] {
                assert!(!words.contains(mistake), "{what}: {words}");
            }
            if done["exit"] == 0 {
                escaped.push(format!("{place} {what}: {}{words}", done["stdout"]));
            }
        }
    }
    world.stop().await;
    assert!(escaped.is_empty(), "\n{}", escaped.join("\n"));
}

#[tokio::test]
#[ignore = "`make test-escape` runs it"]
async fn nothing_gets_out_of_a_world_of_root() {
    nothing_gets_out(World::raise(User::Myself, &case(1)).await, &[]).await;
}

#[tokio::test]
#[ignore = "`make test-escape` runs it"]
async fn nothing_gets_out_of_a_world_of_an_ordinary_user() {
    nothing_gets_out(World::raise(User::Ordinary, &case(1)).await, &[]).await;
}

#[tokio::test]
#[ignore = "`make test-escape` runs it"]
async fn nothing_gets_out_of_a_world_that_may_load_ebpf_programs() {
    if geteuid().is_root() {
        nothing_gets_out(World::raise_with_ebpf(&case(1)).await, &ALLOWED).await;
    }
}

/// What a node of such a world may do with eBPF. A map that another one needs is found, though it is another process that makes that one.
const GIVEN: [&str; 6] = [
    "of tc",
    "a map",
    "a map of maps",
    "that uses a map",
    "of cgroups",
    "attached to the cgroup of the node",
];

#[tokio::test]
#[ignore = "`make test-escape` runs it"]
async fn a_node_may_load_programs_of_networks_and_of_its_cgroup_and_they_end_with_the_world() {
    if !geteuid().is_root() {
        return;
    }
    let mut world = World::raise_with_ebpf(&case(2)).await;
    let said = world.exec("node/n1", &["perl", "-e", EBPF, "world"]).await;
    let done: Vec<&str> = said
        .lines()
        .filter_map(|it| it.strip_suffix(": ok"))
        .collect();
    assert_eq!(done, GIVEN, "{said}");
    assert!(left().contains("cb_world"), "it is attached");
    // Each node has its own, and sees nobody else's.
    let groups = world.sh("node/n2", "ls -d /sys/fs/cgroup/*/ || true");
    assert_eq!(groups.await, "");
    world.stop().await;
    let begin = Instant::now();
    // The kernel takes cgroups down in the background.
    while left().contains("cb_world") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", left());
    }
}

/// What Felix attaches to a node's cgroup at connect time translates for the node and its pods, and for nobody else.
#[tokio::test]
#[ignore = "`make test-escape` runs it"]
async fn what_asks_from_a_node_and_from_its_pods_is_of_the_nodes_cgroup() {
    if !geteuid().is_root() {
        return;
    }
    let mut world = World::raise_with_ebpf(&case(2)).await;
    world.nginx(&[("near", "n1"), ("far", "n2")]).await;
    for (place, node) in [
        ("node/n1", "n1"),
        ("pod/default/near", "n1"),
        ("node/n2", "n2"),
        ("pod/default/far", "n2"),
        ("host/outside", ""),
    ] {
        let said = world.ask(json!({ "probe": place })).await;
        let groups: String = serde_json::from_str(said["stdout"].as_str().unwrap()).unwrap();
        let own = format!("0::/{node}");
        assert!(groups.lines().any(|it| it == own), "{place}: {groups}");
        // A command of the scenario's, too, when it has begun.
        let until = format!("until grep -qx {own} /proc/self/cgroup; do :; done");
        world.sh(place, &until).await;
    }
    world.stop().await;
}

#[tokio::test]
#[ignore = "`make test-escape` runs it"]
async fn what_is_loaded_after_a_run_and_was_not_before_is_named_also_of_one_that_was_killed() {
    if !geteuid().is_root() {
        return;
    }
    let [before, killed] = [(); 2].map(|()| Before::look().unwrap());
    let mut held = Command::new("perl")
        .args(["-e", EBPF, "hold", "cb_held"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(held.stdout.take().unwrap());
    lines.read_line(&mut said).unwrap();
    assert_eq!(said, "held: ok\n");
    let left = before.left(Duration::ZERO).await.unwrap().unwrap();
    assert!(left.contains("cb_held"), "{left}");
    // A run that is killed leaves what it wrote down, and no lock.
    drop(killed);
    let before = Before::look().unwrap();
    let left = left_by_killed().unwrap().join("\n");
    assert!(left.contains("cb_held"), "{left}");
    assert!(left_by_killed().unwrap().is_empty(), "told once");
    drop(held.stdin.take());
    held.wait().unwrap();
    let left = before.left(Duration::from_secs(60)).await.unwrap();
    assert_eq!(left, None);
}

#[test]
#[ignore = "`make test-escape` runs it"]
fn the_program_that_a_world_may_not_load_is_one_that_the_machine_takes() {
    if geteuid().is_root() {
        let said = here("kernel");
        assert_eq!(said, "that reads the kernel's memory: ok\n");
    }
}

/// The names of the programs in the machine's kernel.
fn left() -> String {
    here("left")
}

/// Outside of any world.
fn here(what: &str) -> String {
    let said = Command::new("perl").args(["-e", EBPF, what]).output();
    String::from_utf8(said.unwrap().stdout).unwrap()
}

#[test]
fn there_is_an_attempt_for_each_way_out_that_is_known() {
    let attempts = attempts();
    assert!(attempts.len() >= 25, "{}", attempts.len());
}
