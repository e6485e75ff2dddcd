//! Whom these tests put on the nodes, as whom they run, and what a run left to read.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use chainbreak_model::event::{Event, EventKind, Phase};
use chainbreak_probe::wire::Sample;
use nix::unistd::geteuid;

use crate::ground::{Ground, text};

/// `nobody` of every Linux.
const NOBODY: &str = "65534";
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/kube-proxy");

/// The real kube-proxy v1.20.2.
pub(crate) fn kube_proxy() -> PathBuf {
    given("CHAINBREAK_REAL_KUBE_PROXY")
}

/// The same in a root file system whose iptables has that backend.
pub(crate) fn root(backend: &str) -> PathBuf {
    given(&format!("CHAINBREAK_REAL_ROOT_{}", backend.to_uppercase()))
}

fn given(name: &str) -> PathBuf {
    let path = env::var_os(name);
    path.unwrap_or_else(|| panic!("{name} is not set: `make test-real` runs these tests"))
        .into()
}

/// Who runs chainbreak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Whoever runs the tests.
    Myself,
    /// Somebody without rights: `nobody`, when the tests are run by root.
    Ordinary,
}

/// A folder with the scenarios and the program, both as that user can read them.
pub(crate) struct Stage {
    pub(crate) ground: Ground,
    user: User,
}

impl Stage {
    pub(crate) fn new(user: User) -> Self {
        let ground = Ground::new();
        let stage = Self { ground, user };
        stage.copy(Path::new(SCENARIOS), "kube-proxy");
        stage.copy(Path::new(env!("CARGO_BIN_EXE_chainbreak")), "chainbreak");
        fs::set_permissions(stage.ground.path(), fs::Permissions::from_mode(0o777)).unwrap();
        stage
    }

    /// A copy that everybody can read: caches and cargo's folders may be closed to others.
    pub(crate) fn copy(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.ground.path().join(name);
        let status = Command::new("cp")
            .args(["-r", "--preserve=mode,links"])
            .args([from, &to])
            .status();
        assert!(status.unwrap().success(), "{} is copied", from.display());
        to
    }

    /// `chainbreak run` with these arguments, into `out`.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let program = self.ground.path().join("chainbreak");
        let drop_rights = self.user == User::Ordinary && geteuid().is_root();
        let mut command = if drop_rights {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .current_dir(self.ground.path())
            .env_remove("CHAINBREAK_LOG")
            .env_remove("GITHUB_ACTIONS")
            .arg("run")
            .args(args)
            .args(["--out", "out"])
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    /// As [`Stage::run`] with that kube-proxy, a copy of it.
    pub(crate) fn run_with(&self, kube_proxy: &Path, args: &[&str]) -> (Output, PathBuf) {
        let copy = self.copy(kube_proxy, "given");
        let agent = format!("kube-proxy={}", copy.display());
        let output = self.run(&[args, &["--agent", &agent]].concat());
        (output, copy)
    }

    /// What happened in each case that ran last.
    pub(crate) fn cases(&self) -> BTreeMap<String, Seen> {
        let lines = fs::read_to_string(self.ground.newest("run.jsonl")).unwrap();
        let mut cases: BTreeMap<String, Seen> = BTreeMap::new();
        for line in lines.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if let Some(history) = line.get("history") {
                let [case, path] = ["case", "path"].map(|it| history[it].as_str().unwrap());
                let events = fs::read_to_string(self.ground.newest(path)).unwrap();
                let events = events
                    .lines()
                    .map(|event| serde_json::from_str::<Event>(event).unwrap());
                let seen = cases.entry(case.to_owned()).or_default();
                seen.events.extend(events);
            }
        }
        cases
    }
}

/// The history of a case.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    events: Vec<Event>,
}

impl Seen {
    pub(crate) fn fact(&self, of: &str) -> Option<&str> {
        self.whats().find_map(|what| match what {
            EventKind::Fact { name, value } if name == of => Some(value.as_str()),
            _ => None,
        })
    }

    /// kube-proxy's commands on a node, in order, as far as its log is followed: until the end of the
    /// judged time.
    pub(crate) fn commands(&self, on: &str) -> Vec<String> {
        let judged = |what: &&EventKind| **what != EventKind::Phase(Phase::Judged);
        let commands = self
            .whats()
            .take_while(judged)
            .filter_map(|what| match what {
                EventKind::Command(command) if command.who == "kube-proxy" => Some(command),
                _ => None,
            });
        let here = commands.filter(|command| command.node.to_string() == on);
        here.map(|command| command.argv.join(" ")).collect()
    }

    /// The nodes on which kube-proxy has said anything.
    pub(crate) fn nodes(&self) -> BTreeSet<String> {
        let entries = self.whats().filter_map(|what| match what {
            EventKind::Log(entry) if entry.agent.to_string() == "kube-proxy" => Some(entry),
            _ => None,
        });
        entries.map(|entry| entry.node.to_string()).collect()
    }

    /// The entries of kube-proxy's log on a node, in order, until the end of the judged time.
    pub(crate) fn log(&self, on: &str) -> Vec<&str> {
        let judged = |what: &&EventKind| **what != EventKind::Phase(Phase::Judged);
        let entries = self
            .whats()
            .take_while(judged)
            .filter_map(|what| match what {
                EventKind::Log(entry) if entry.agent.to_string() == "kube-proxy" => Some(entry),
                _ => None,
            });
        let here = entries.filter(|entry| entry.node.to_string() == on);
        here.map(|entry| entry.text.as_str()).collect()
    }

    /// All requests of all traffic.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.whats().filter_map(|what| match what {
            EventKind::Sample { sample, .. } => Some(sample),
            _ => None,
        })
    }

    /// Requests that the API did not know.
    pub(crate) fn unknown_requests(&self) -> BTreeSet<&str> {
        let unknown = self.whats().filter_map(|what| match what {
            EventKind::UnknownRequest { text, .. } => Some(text.as_str()),
            _ => None,
        });
        unknown.collect()
    }

    fn whats(&self) -> impl Iterator<Item = &EventKind> {
        self.events.iter().map(|event| &event.what)
    }
}

/// A file's SHA-256 by somebody else than chainbreak.
pub(crate) fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    let said = text(&output.stdout);
    let sum = said.split_whitespace().next();
    sum.expect("sha256sum prints the sum first").to_owned()
}
