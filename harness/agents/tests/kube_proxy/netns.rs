//! A network namespace of one's own, and the real iptables in it.
//!
//! The namespace lives as long as a process that waits on its standard input does. As an ordinary
//! user there is a user namespace around it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    process::{Child, Command as Process, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use chainbreak_agents::step::{Command, Output};

use crate::desk::{Kernel, failed};

/// What a kernel says that does not know a subsystem of netfilter.
const EINVAL: i32 = 22;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Legacy,
    Nft,
}

pub(crate) const BACKENDS: [Backend; 2] = [Backend::Legacy, Backend::Nft];

#[derive(Debug)]
pub(crate) struct Netns {
    holder: Child,
    as_root: bool,
    pub(crate) backend: Backend,
    /// Neither the machine's lock nor another test's.
    lock: PathBuf,
}

impl Netns {
    pub(crate) fn new(backend: Backend) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let as_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let flags = if as_root { "-n" } else { "-rn" };
        let mut holder = Process::new("unshare")
            .args([flags, "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`unshare` of the package util-linux is needed");
        let mut line = String::new();
        let stdout = holder.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "no network namespace could be made");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let lock = format!("chainbreak-{}-{number}.lock", std::process::id());
        Self {
            holder,
            as_root,
            backend,
            lock: std::env::temp_dir().join(lock),
        }
    }

    /// Runs a command line; it must succeed.
    pub(crate) fn sh(&mut self, line: &str) -> String {
        let output = self.try_sh(line);
        assert_eq!(output.exit, 0, "{line}: {}", output.stderr);
        output.stdout
    }

    /// Runs a command line of words without spaces.
    pub(crate) fn try_sh(&mut self, line: &str) -> Output {
        self.run(&Command {
            argv: line.split(' ').map(str::to_owned).collect(),
            input: String::new(),
        })
    }

    /// Gives `iptables-restore` an input without flushing; it must take it.
    pub(crate) fn restore(&mut self, input: &str) {
        let output = self.run(&Command {
            argv: vec!["iptables-restore".to_owned(), "--noflush".to_owned()],
            input: input.to_owned(),
        });
        assert_eq!(output.exit, 0, "{input}: {}", output.stderr);
    }

    /// All rules of a table, without comments and packet counts.
    pub(crate) fn save(&mut self, table: &str) -> String {
        let saved = self.sh(&format!("iptables-save -t {table}"));
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.map(|line| match line.split_once(" [") {
            Some((chain, _)) if line.starts_with(':') => format!("{chain} [0:0]\n"),
            _ => format!("{line}\n"),
        });
        lines.collect()
    }

    /// The rules of one chain.
    pub(crate) fn chain(&mut self, table: &str, chain: &str) -> Vec<String> {
        let start = format!("-A {chain} ");
        let saved = self.save(table);
        let rules = saved.lines().filter(|line| line.starts_with(&start));
        rules.map(str::to_owned).collect()
    }

    fn program(&self, name: &str) -> String {
        let variant = match self.backend {
            Backend::Legacy => "legacy",
            Backend::Nft => "nft",
        };
        for family in ["iptables", "ip6tables"] {
            if let Some(rest) = name.strip_prefix(family) {
                return format!("{family}-{variant}{rest}");
            }
        }
        name.to_owned()
    }
}

impl Kernel for Netns {
    /// Requests over netlink are answered as by a kernel without `nfnetlink_acct`, and with no flows: a thread of this
    /// process cannot be in an ordinary user's namespace. The lab's tests have both.
    fn run(&mut self, command: &Command) -> Output {
        match command.argv.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["netlink", "nfacct", ..] => return failed(EINVAL, "invalid argument"),
            ["netlink", ..] => return Output::default(),
            _ => {}
        }
        let program = self.program(&command.argv[0]);
        let user: &[&str] = if self.as_root {
            &[]
        } else {
            &["-U", "--preserve-credentials"]
        };
        let mut child = Process::new("nsenter")
            .args(["-t", &self.holder.id().to_string(), "-n"])
            .args(user)
            .arg(&program)
            .args(&command.argv[1..])
            .env("XTABLES_LOCKFILE", &self.lock)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`nsenter` of the package util-linux is needed");
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads nothing may be gone before it is written to.
        drop(stdin.write_all(command.input.as_bytes()));
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let exit = output.status.code().expect("it was not killed");
        assert_ne!(
            exit, 127,
            "{program} is missing: install the package iptables"
        );
        Output {
            exit,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            ..Output::default()
        }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        drop(self.holder.wait());
        drop(std::fs::remove_file(&self.lock));
    }
}
