//! A node's place in a worker, in which commands run with shims before them or without.

#![expect(clippy::unwrap_used, reason = "this is a part of tests, which may")]

#[path = "../support/user.rs"]
mod user;

use std::time::Duration;

use chainbreak_lab::worker::{Worker, WorldOptions, spawn_worker};
use chainbreak_model::event::Command;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

pub(crate) use self::user::User;

const PROGRAM: &str = env!("CARGO_BIN_EXE_chainbreak-lab-shims");
/// Where the machine's own programs are.
pub(crate) const MACHINE: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where tests put programs of their own, before the machine's.
pub(crate) const OWN: &str = "/tmp/own";
/// Nothing that a test asks for takes a tenth of this on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker with one place and shims in it.
pub(crate) struct Bench {
    worker: Worker,
    _program: Option<tempfile::TempDir>,
    /// The agent's `PATH` without shims.
    pub(crate) bare: String,
    /// And with them.
    pub(crate) path: String,
    /// Which programs have a shim.
    pub(crate) names: Vec<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Ended {
    /// From its start to its end, in microseconds.
    pub(crate) took_us: u64,
    /// Whether it took all input.
    pub(crate) fed: bool,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// For comparing all else.
    pub(crate) fn without_time(&self) -> Self {
        Self {
            took_us: 0,
            ..self.clone()
        }
    }
}

/// What a shim adds to a command: medians of commands that took turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// The command alone.
    pub(crate) alone: Duration,
    /// How much later it ends with a shim.
    pub(crate) added: Duration,
    /// `true` in its place, the least that a process can take.
    pub(crate) process: Duration,
}

/// An event.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) at_us: u64,
    pub(crate) command: Command,
}

impl Bench {
    /// With the machine's programs.
    pub(crate) async fn new() -> Self {
        Self::with(User::Myself, &[]).await
    }

    /// With these shell scripts besides, by name.
    pub(crate) async fn with(user: User, scripts: &[(&str, &str)]) -> Self {
        let (program, folder) = user.program(PROGRAM, &[]);
        let mut bench = Self {
            worker: spawn_worker(&program, &WorldOptions::default()).unwrap(),
            _program: folder,
            bare: format!("{OWN}:{MACHINE}"),
            path: String::new(),
            names: Vec::new(),
        };
        bench.sh_bare(&format!("mkdir {OWN}"), "").await;
        for (name, script) in scripts {
            let write = format!("cat > {OWN}/{name}; chmod +x {OWN}/{name}");
            bench
                .sh_bare(&write, &format!("#!/bin/sh\n{script}\n"))
                .await;
        }
        bench.install("/").await;
        bench
    }

    /// Installs the shims (again), with that root.
    pub(crate) async fn install(&mut self, root: &str) {
        let installed = self.ask(json!({ "install": [root, self.bare] })).await;
        self.names = serde_json::from_value(installed["names"].clone()).unwrap();
        self.path = format!("{}:{}", installed["folder"].as_str().unwrap(), self.bare);
    }

    /// Runs a command as the agent does.
    pub(crate) async fn run(&mut self, argv: &[&str], input: &str) -> Ended {
        let path = self.path.clone();
        self.ended(json!({ "run": { "argv": argv, "path": path, "input": input } }))
            .await
    }

    /// Runs it without shims.
    pub(crate) async fn run_bare(&mut self, argv: &[&str], input: &str) -> Ended {
        let path = self.bare.clone();
        self.ended(json!({ "run": { "argv": argv, "path": path, "input": input } }))
            .await
    }

    /// Runs a shell's script as the agent does.
    pub(crate) async fn sh(&mut self, script: &str) -> Ended {
        self.run(&["sh", "-c", script], "").await
    }

    async fn sh_bare(&mut self, script: &str, input: &str) {
        let done = self.run_bare(&["sh", "-c", script], input).await;
        assert_eq!(done.exit, Some(0), "{script}: {done:?}");
    }

    /// Starts a command as the agent does; [`Bench::end`] is how it ended.
    pub(crate) async fn start(&mut self, argv: &[&str]) {
        let path = self.path.clone();
        self.ask(json!({ "start": { "argv": argv, "path": path, "input": "" } }))
            .await;
    }

    pub(crate) async fn end(&mut self) -> Ended {
        self.ended(json!("ended")).await
    }

    /// The next events.
    pub(crate) async fn recorded(&mut self, count: usize) -> Vec<Recorded> {
        let commands = self.ask(json!({ "commands": count })).await;
        serde_json::from_value(commands).unwrap()
    }

    /// The next event.
    pub(crate) async fn command(&mut self) -> Command {
        self.recorded(1).await.remove(0).command
    }

    /// Runs a command so many times with its shim, without, and beside them nothing at all.
    pub(crate) async fn cost(&mut self, argv: &[&str], input: &str, times: usize) -> Cost {
        let mut took = [const { Vec::new() }; 3];
        for _ in 0..times {
            took[0].push(self.run(argv, input).await.took_us);
            took[1].push(self.run_bare(argv, input).await.took_us);
            took[2].push(self.run_bare(&["true"], "").await.took_us);
        }
        self.recorded(times).await;
        let [with, alone, process] = took.map(|mut times| {
            times.sort_unstable();
            Duration::from_micros(times[times.len() / 2])
        });
        Cost {
            alone,
            added: with.saturating_sub(alone),
            process,
        }
    }

    async fn ended(&mut self, what: Value) -> Ended {
        serde_json::from_value(self.ask(what).await).unwrap()
    }

    /// Asks and gets an answer that is no error.
    pub(crate) async fn ask(&mut self, what: Value) -> Value {
        self.worker.order(&what.to_string()).await.unwrap();
        let answer = timeout(PATIENCE, self.worker.lines.next_line())
            .await
            .unwrap_or_else(|_| panic!("no answer to {what}"));
        let answer: Value =
            serde_json::from_str(&answer.unwrap().expect("the worker lives")).unwrap();
        assert!(answer.get("error").is_none(), "{what}: {answer}");
        answer
    }
}
