//! A network namespace of a test's own, with the real iptables. Nothing outside of it is touched.

use std::{
    cell::RefCell,
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
};

use chainbreak_agents::step::{self, Output};

use crate::node::Exec;

/// Which iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Legacy,
    Nft,
}

impl Backend {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Nft => "nft",
        }
    }
}

/// A namespace; it ends when this is dropped, because its one process reads end of file.
#[derive(Debug)]
pub(crate) struct Netns {
    holder: Child,
    /// Legacy iptables of other namespaces must not wait for ours.
    lock: PathBuf,
}

impl Netns {
    pub(crate) fn new() -> Rc<Self> {
        require("/usr/bin/unshare", "util-linux");
        for program in [
            "iptables-legacy-save",
            "iptables-nft-save",
            "ip6tables-legacy-save",
        ] {
            require(&format!("/usr/sbin/{program}"), "iptables");
        }
        // An ordinary user is root in a user namespace of its own.
        let mut holder = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--net",
                "sh",
                "-c",
                "echo ready; exec cat",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let stdout = holder.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "unshare made no namespace");
        let lock = env::temp_dir().join(format!("felix-test-{}.lock", holder.id()));
        Rc::new(Self { holder, lock })
    }

    /// Runs a command in the namespace.
    pub(crate) fn run(&self, argv: &[&str], input: &str) -> Output {
        let mut child = Command::new("nsenter")
            .args([
                "--target",
                &self.holder.id().to_string(),
                "--user",
                "--net",
                "--preserve-credentials",
                "--",
            ])
            .args(argv)
            .env("XTABLES_LOCKFILE", &self.lock)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input closes the pipe early, which is no concern of ours.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        Output {
            exit: output.status.code().unwrap_or(137),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            took: std::time::Duration::ZERO,
        }
    }

    /// Runs a command that must succeed.
    pub(crate) fn must(&self, argv: &[&str], input: &str) -> String {
        let output = self.run(argv, input);
        assert_eq!(output.exit, 0, "{argv:?}: {}\n{input}", output.stderr);
        output.stdout
    }

    /// The rules and user chains of a table, without counters and comments.
    pub(crate) fn save(&self, backend: Backend, table: &str) -> Vec<String> {
        let text = self.must(
            &[&format!("iptables-{}-save", backend.word()), "-t", table],
            "",
        );
        let lines = text.lines().filter(|line| line.starts_with([':', '-']));
        lines
            .map(|line| match line.strip_prefix(':') {
                Some(chain) => format!(":{}", chain.split(' ').next().unwrap()),
                None => line.to_owned(),
            })
            .collect()
    }

    /// Where the commands of a core run that does not name its backend, as on a node that has one.
    pub(crate) fn exec_on(self: &Rc<Self>, backend: Backend) -> Exec {
        let exec = self.exec();
        Rc::new(RefCell::new(move |command: &step::Command| {
            let mut command = command.clone();
            if let Some(verb) = command.argv[0].strip_prefix("iptables") {
                command.argv[0] = format!("iptables-{}{verb}", backend.word());
            }
            (exec.borrow_mut())(&command)
        }))
    }

    /// Where a core's commands run.
    pub(crate) fn exec(self: &Rc<Self>) -> Exec {
        let netns = Rc::clone(self);
        Rc::new(RefCell::new(move |command: &step::Command| {
            let argv: Vec<&str> = command.argv.iter().map(String::as_str).collect();
            netns.run(&argv, &command.input)
        }))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().unwrap();
        // Only legacy iptables makes it.
        drop(fs::remove_file(&self.lock));
    }
}

fn require(path: &str, package: &str) {
    assert!(
        Path::new(path).exists(),
        "{path} is missing: apt-get install {package}"
    );
}
