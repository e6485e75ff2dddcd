//! A network namespace with nginx in it, for tests and benches: made as root, or as an ordinary user in a
//! user namespace. Everything in it ends with it.

#![allow(
    clippy::expect_used,
    clippy::allow_attributes,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "part of several test programs, each of which uses some of it"
)]

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    os::unix::fs::MetadataExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use chainbreak_probe::wire::{Connections, Errand, Order, Protocol, Report, Sample};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

/// Ports of the nginx in a world, and what is served there.
pub const ANSWERS: u16 = 8080;
pub const CLOSES_SILENTLY: u16 = 8081;
pub const FAILS: u16 = 8082;
pub const CLOSES_AFTER_TEN: u16 = 8083;
pub const NOBODY: u16 = 8099;

/// A child that does not outlive its owner.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("a child can be killed");
        self.0.wait().expect("a child can be waited for");
    }
}

pub struct World {
    dir: TempDir,
    root: bool,
    holder: Running,
}

impl World {
    pub fn new() -> Self {
        let root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
        let namespaces = if root { "-n" } else { "-Urn" };
        let mut holder = Command::new("unshare")
            .args([
                namespaces,
                "sh",
                "-c",
                "ip link set lo up && echo up && exec cat",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare (package util-linux) runs");
        let mut up = String::new();
        let out = holder.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut up).expect("readable");
        assert_eq!(
            up, "up\n",
            "a network namespace can be made (ip: package iproute2)"
        );
        let dir = tempfile::tempdir().expect("a temporary directory");
        let holder = Running(holder);
        Self { dir, root, holder }
    }

    /// A command inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.holder.0.id().to_string();
        let user: &[&str] = if self.root {
            &[]
        } else {
            &["-U", "--preserve-credentials"]
        };
        command.args(user).args(["-t", &pid, "-n", "--", program]);
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(OsString::from(":/usr/sbin:/sbin"));
        command
            .env("PATH", path)
            .env("XTABLES_LOCKFILE", self.dir.path().join("lock"));
        command
    }

    /// Runs a shell script inside; it must succeed.
    pub fn sh(&self, script: &str) {
        let done = self
            .command("sh")
            .args(["-ec", script])
            .output()
            .expect("nsenter runs");
        assert!(
            done.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// Starts nginx, and waits until it answers.
    pub fn nginx(&self) -> Running {
        self.nginx_after(self.command("nginx"))
    }

    /// As [`World::nginx`], with a command that ends in `nginx`, such as `taskset -c 1 nginx`.
    pub fn nginx_after(&self, mut command: Command) -> Running {
        let dir = self.dir.path();
        let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}; ", dir.display()))
            .concat();
        let head = "add_header x-chainbreak-backend web-1; \
            add_header x-chainbreak-client $remote_addr:$remote_port;";
        let config = format!(
            // `user root`: the only user that is sure to exist in a user namespace.
            "user root; daemon off; master_process off; worker_processes 1; pid {}/pid; error_log stderr crit;
             worker_rlimit_nofile 32768; events {{ worker_connections 16384; }}
             http {{ access_log off; {temp} keepalive_requests 1000000;
               server {{ listen 127.0.0.1:{ANSWERS} backlog=4096; {head} return 200 ok; }}
               server {{ listen 127.0.0.1:{CLOSES_SILENTLY}; return 444; }}
               server {{ listen 127.0.0.1:{FAILS}; return 503; }}
               server {{ listen 127.0.0.1:{CLOSES_AFTER_TEN}; keepalive_requests 10; {head} location / {{ return 200 ok; }} }}
             }}",
            dir.display()
        );
        let file = dir.join("nginx.conf");
        std::fs::write(&file, config).expect("the temporary directory is writable");
        let nginx = command.arg("-c").arg(file).stderr(Stdio::null()).spawn();
        let nginx = Running(nginx.expect("nginx runs"));
        let once = order(ANSWERS, 1_000, Some(1));
        // Each try is a process of its own, some milliseconds; nginx starts within a few of them.
        let answered = (0..1_000).any(|_| {
            self.probe(&once)
                .end()
                .samples
                .iter()
                .any(|sample| sample.outcome.is_answered())
        });
        assert!(answered, "nginx (package nginx) answers");
        nginx
    }

    /// Starts a probe.
    pub fn probe(&self, order: &Order) -> Probe {
        Self::probe_after(self.command(env!("CARGO_BIN_EXE_chainbreak-probe")), order)
    }

    /// As [`World::probe`], with a command that ends in the probe.
    pub fn probe_after(mut command: Command, order: &Order) -> Probe {
        let errand = Errand::Requests(order.clone());
        let (child, stdin, reports) = send(&mut command, &errand);
        Probe {
            child,
            stdin: Some(stdin),
            reports,
            heard: Vec::new(),
        }
    }
}

/// Starts a command that ends in the probe, with an errand: its reports as they come.
pub fn send<R: DeserializeOwned + Send + 'static>(
    command: &mut Command,
    errand: &Errand,
) -> (Running, ChildStdin, mpsc::Receiver<R>) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the probe runs");
    let mut stdin = child.stdin.take().expect("piped");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let errand = serde_json::to_string(errand).expect("errands are plain JSON");
    writeln!(stdin, "{errand}").expect("the probe reads its errand");
    let (sender, reports) = mpsc::channel();
    std::thread::spawn(move || {
        for line in out.lines().map(|line| line.expect("text")) {
            let report = serde_json::from_str(&line).expect("a report");
            // Whoever gave the probe up hears no more.
            if sender.send(report).is_err() {
                return;
            }
        }
    });
    (Running(child), stdin, reports)
}

/// A running probe.
pub struct Probe {
    child: Running,
    stdin: Option<ChildStdin>,
    reports: mpsc::Receiver<Report>,
    heard: Vec<Report>,
}

/// What a probe said.
pub struct Said {
    pub started_us: u64,
    pub samples: Vec<Sample>,
    pub done: Report,
}

impl Probe {
    /// Waits until a request ends as told.
    pub fn until(&mut self, word: &str) {
        let is_it = |report: &Report| matches!(report, Report::Sample(sample) if sample.outcome.word() == word);
        let heard = self.heard.len();
        while !self.heard.last().is_some_and(is_it) {
            assert!(self.heard.len() < heard + 1_000, "no request was {word}");
            // Reports come within 20 ms of a sample, and a sample within 300 ms of its request.
            let report = self.reports.recv_timeout(Duration::from_secs(10));
            self.heard
                .push(report.unwrap_or_else(|_| panic!("no request was {word}")));
        }
    }

    /// Sends its process a signal, as `STOP`.
    pub fn signal(&self, world: &World, signal: &str) {
        world.sh(&format!("kill -{signal} {}", self.child.0.id()));
    }

    /// Closes its standard input, and waits for its end.
    pub fn stop(mut self) -> Said {
        self.stdin = None;
        self.end()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Said {
        let mut reports = self.heard;
        reports.extend(self.reports.iter());
        assert!(self.child.0.wait().expect("a child").success());
        let done = reports.pop().expect("reports");
        let mut reports = reports.into_iter();
        let Some(Report::Started { monotonic_us, .. }) = reports.next() else {
            panic!("no start was reported");
        };
        let samples = reports.map(|report| match report {
            Report::Sample(sample) => sample,
            other => panic!("not a sample: {other:?}"),
        });
        Said {
            started_us: monotonic_us,
            samples: samples.collect(),
            done,
        }
    }
}

/// An order for new connections to a port of the world's loopback, with a timeout of 300 ms: shorter than
/// TCP's first retransmission of a SYN (1 s), longer than any answer here.
pub fn order(port: u16, every_us: u64, count: Option<u64>) -> Order {
    Order {
        target: ([127, 0, 0, 1], port).into(),
        every_us,
        timeout_us: 300_000,
        protocol: Protocol::Tcp,
        connections: Connections::New,
        count,
        source: None,
        number: 0,
    }
}
