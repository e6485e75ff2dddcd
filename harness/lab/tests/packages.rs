//! Installing what the lab needs starts no service and leaves nothing behind, however it ends. The
//! script is run as it is, but for the policy's path, a list of its own and programs that only pretend.

#![expect(clippy::unwrap_used, reason = "tests may")]

#[path = "support/waits.rs"]
mod waits;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use waits::{fifo, within};

const SCRIPT: &str = include_str!("../../../clusters/lab/install-packages");
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// A machine that lacks one package.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// `apt` is what apt-get does, as a shell's script; the policy is `$policy` there.
    fn new(apt: &str) -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        assert!(SCRIPT.contains(POLICY));
        let policy = machine.policy().display().to_string();
        let script = SCRIPT.replace(POLICY, &policy);
        machine.program("install-packages", &script);
        machine.program("id", "#!/bin/sh\necho 0\n");
        machine.program("apt-get", &format!("#!/bin/sh\npolicy={policy}\n{apt}\n"));
        fs::write(
            machine.path("packages.txt"),
            "# a list\na-package no-such-program lab\ncoreutils ls lab\n",
        )
        .unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn policy(&self) -> PathBuf {
        self.path("policy-rc.d")
    }

    fn program(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn begin(&self) -> Child {
        let path = std::env::var("PATH").unwrap();
        // Not run itself: another test's child may hold what was just written open for writing (ETXTBSY).
        Command::new("sh")
            .arg(self.path("install-packages"))
            .env("PATH", format!("{}:{path}", self.folder.path().display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn install(&self) -> Output {
        self.begin().wait_with_output().unwrap()
    }

    /// Starts an installation that waits in apt-get for a line from `gate`, and waits until it is there.
    fn until_apt(&self) -> Child {
        let [there, gate] = ["in-apt", "gate"].map(|name| self.path(name));
        fifo(&there);
        fifo(&gate);
        let child = self.begin();
        within(|| fs::read(there).unwrap()).expect("apt-get runs");
        child
    }
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn services_are_refused_while_it_installs_and_only_then() {
    let machine = Machine::new("\"$policy\"; echo \"$1: policy says $?\"");
    let before = names(machine.folder.path());
    let done = machine.install();
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    assert!(text.contains("install: policy says 101"), "{text}");
    assert!(text.contains("apt-get: a-package \n"), "{text}");
    assert!(text.contains("no service is started"), "{text}");
    assert_eq!(names(machine.folder.path()), before);
}

#[test]
fn a_policy_of_somebody_else_stays_and_no_promise_is_made() {
    let machine = Machine::new("true");
    fs::write(machine.policy(), "#!/bin/sh\nexit 0\n").unwrap();
    let text = said(&machine.install());
    assert!(!text.contains("no service is started"), "{text}");
    let policy = fs::read_to_string(machine.policy()).unwrap();
    assert_eq!(policy, "#!/bin/sh\nexit 0\n");
}

#[test]
fn a_failing_or_interrupted_installation_takes_its_policy_away() {
    let failing = Machine::new("exit 100");
    assert_eq!(failing.install().status.code(), Some(100));
    assert!(!failing.policy().exists());

    let machine = Machine::new("kill -TERM $PPID");
    assert!(!machine.install().status.success());
    assert!(!machine.policy().exists());
}

#[test]
fn what_a_killed_installation_left_the_next_one_takes_away() {
    let wait = "folder=${policy%/*}; echo there > \"$folder/in-apt\"; read -r _ < \"$folder/gate\"";
    let machine = Machine::new(wait);
    let mut child = machine.until_apt();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert!(machine.policy().exists(), "nobody could take it away");
    let gate = machine.path("gate");
    within(|| fs::write(gate, "go\n").unwrap()).expect("apt-get waits");
    // Also when there is nothing to install any more.
    fs::write(machine.path("packages.txt"), "coreutils ls lab\n").unwrap();
    let done = machine.install();
    assert!(done.status.success(), "{}", said(&done));
    assert!(!machine.policy().exists());
}

#[test]
fn a_second_installation_waits_for_the_first() {
    // Each apt-get leaves a line when it begins and one when it ends.
    let machine = Machine::new(
        "echo begin >> \"$policy.log\"; ls / > /dev/null; echo end >> \"$policy.log\"",
    );
    let both = [machine.begin(), machine.begin()];
    for child in both {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", said(&done));
    }
    let log = fs::read_to_string(machine.path("policy-rc.d.log")).unwrap();
    assert_eq!(log, "begin\nend\n".repeat(4), "update and install of both");
    assert!(!machine.policy().exists());
}
