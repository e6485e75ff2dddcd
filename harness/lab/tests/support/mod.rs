//! A world driven through its worker's requests.

#![allow(dead_code, reason = "each test file uses its part")]
#![expect(clippy::unwrap_used, reason = "this is a part of tests, which may")]

mod user;

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use chainbreak_lab::worker::{Worker, WorldOptions, spawn_worker};
use chainbreak_model::case::ClusterSpec;
use serde_json::{Value, json};
use tokio::time::timeout;

pub(crate) use self::user::User;

/// The worker of these tests.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_chainbreak-lab-worker");
/// Which packages have which programs: what `make packages` installs.
const PACKAGES: &str = include_str!("../../../../clusters/lab/packages.txt");
/// Where the machine's network programs are; Debian's ordinary users have it not in their `PATH`.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Nothing that a test asks for takes a tenth of this on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where programs are looked for, also an ordinary user's.
fn program_path() -> Vec<PathBuf> {
    let own = env::var_os("PATH").unwrap_or_default();
    let sbin = SBIN.iter().map(PathBuf::from);
    env::split_paths(&own).chain(sbin).collect()
}

/// A program of the machine, to be run outside of all worlds.
pub(crate) fn machine(program: &str) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env("PATH", env::join_paths(program_path()).unwrap());
    command
}

/// What has to be installed before tests can run, in one sentence; `None` when there is nothing.
pub(crate) fn missing_packages(has: impl Fn(&str) -> bool) -> Option<String> {
    let lines = PACKAGES.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let packages: BTreeSet<&str> = lines
        .filter(|words| !has(words[1]))
        .map(|words| words[0])
        .collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let what = packages.join(", ");
    (!what.is_empty())
        .then(|| format!("this machine lacks {what}: `make packages` installs what tests need"))
}

/// Fails with all that is missing, before a test fails with something stranger.
pub(crate) fn require_packages() {
    let path = program_path();
    let has = |program: &str| path.iter().any(|folder| folder.join(program).exists());
    if let Some(what) = missing_packages(has) {
        panic!("{what}");
    }
}

/// A running world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) worker: Worker,
    _program: Option<tempfile::TempDir>,
}

impl World {
    /// Raises a cluster and waits for it.
    pub(crate) async fn raise(user: User, case: &Value) -> Self {
        let (world, raised) = Self::try_raise(user, case).await;
        assert_eq!(raised, json!({ "raised": true }));
        world
    }

    /// The same in a world that may load eBPF programs, as whoever runs the tests.
    pub(crate) async fn raise_with_ebpf(case: &Value) -> Self {
        let (world, raised) = Self::start(User::Myself, case, true).await;
        assert_eq!(raised, json!({ "raised": true }));
        world
    }

    /// Raises a cluster, and what came of it: `{"raised": true}` or `{"error": …}`.
    pub(crate) async fn try_raise(user: User, case: &Value) -> (Self, Value) {
        Self::start(user, case, false).await
    }

    async fn start(user: User, case: &Value, ebpf: bool) -> (Self, Value) {
        require_packages();
        let (program, folder) = user.program(PROGRAM, &[]);
        let spec: ClusterSpec = serde_json::from_value(case["cluster"].clone()).unwrap();
        let show = spec.agent_paths();
        let worker = spawn_worker(&program, &WorldOptions { show, ebpf }).unwrap();
        let mut world = Self {
            worker,
            _program: folder,
        };
        let raised = world.send(case).await;
        (world, raised)
    }

    /// Waits for the end of a world that could not be raised.
    pub(crate) async fn failed(mut self) {
        let status = timeout(PATIENCE, self.worker.wait()).await;
        assert!(!status.expect("it ends").unwrap().success());
    }

    /// Asks and gets an answer that is no error.
    pub(crate) async fn ask(&mut self, what: Value) -> Value {
        let answer = self.send(&what).await;
        assert!(answer.get("error").is_none(), "{what}: {answer}");
        answer
    }

    /// Runs a command that has to succeed and returns what it wrote.
    pub(crate) async fn exec(&mut self, place: &str, argv: &[&str]) -> String {
        let done = self.ask(json!({ "exec": [place, argv] })).await;
        assert_eq!(done["exit"], 0, "{argv:?} in {place}: {done}");
        done["stdout"].as_str().unwrap().to_owned()
    }

    /// As [`World::exec`] with a shell's script.
    pub(crate) async fn sh(&mut self, place: &str, script: &str) -> String {
        self.exec(place, &["sh", "-c", script]).await
    }

    /// Creates pods with one nginx each and waits until all pods are ready.
    pub(crate) async fn nginx(&mut self, pods: &[(&str, &str)]) -> Vec<Value> {
        for (name, node) in pods {
            self.ask(json!({ "create": pod(name, node, &json!({ "image": "nginx:1.25" })) }))
                .await;
        }
        let ready = self.ask(json!({ "ready": pods.len() })).await;
        ready.as_array().unwrap().clone()
    }

    /// Destroys the world, which has to succeed.
    pub(crate) async fn stop(mut self) {
        self.worker.order("\"stop\"").await.unwrap();
        let status = timeout(PATIENCE, self.worker.wait())
            .await
            .expect("it ends")
            .unwrap();
        assert!(status.success(), "{status}");
    }

    async fn send(&mut self, what: &Value) -> Value {
        self.worker.order(&what.to_string()).await.unwrap();
        let answer = timeout(PATIENCE, self.worker.lines.next_line())
            .await
            .expect("it answers");
        let line = answer.unwrap().expect("the worker lives");
        serde_json::from_str(&line).unwrap()
    }
}

/// Lets everybody look into a folder, or run a program.
pub(crate) fn open(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A case for so many nodes with both agents.
pub(crate) fn case(nodes: u16) -> Value {
    json!({
        "scenario": "s", "variant": "v", "cell": {}, "about": "", "incident": [], "file": "s.yaml",
        "manifests": [], "traffic": {}, "timeline": [], "promises": {}, "expect": "healthy", "seed": 1,
        "cluster": {
            "nodes": nodes,
            "iptables": "legacy",
            "kube-proxy": {
                "iptables": "legacy", "version": "1.32",
                "min-sync-period": { "secs": 0, "nanos": 100_000_000 },
                "sync-period": { "secs": 5, "nanos": 0 },
            },
            "calico": { "version": "v3.28.1", "pods": "calico" },
            "felix": {},
            "hosts": { "outside": {} },
        },
    })
}

/// A pod in `default` with one container.
pub(crate) fn pod(name: &str, node: &str, container: &Value) -> Value {
    let mut container = container.clone();
    container["name"] = json!("main");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1 },
    })
}

/// The address of the named pod.
pub(crate) fn address(pods: &[Value], name: &str) -> String {
    let pod = pods
        .iter()
        .find(|pod| pod["metadata"]["name"] == name)
        .expect("the pod is there");
    pod["status"]["podIP"].as_str().unwrap().to_owned()
}
