//! One of the two places.

use std::{
    collections::BTreeMap,
    io,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chainbreak_lab::place::PlaceThread;
use chainbreak_model::case::{IpFamily, ProxyMode};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    time::interval,
};

/// The distance of two looks at a ruleset that is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// The words of a sync's begin and end, at `-v=2`.
const BEGUN: [&str; 2] = ["Syncing iptables rules", "Syncing nftables rules"];
const ENDED: [&str; 2] = ["syncProxyRules took", "SyncProxyRules complete"];

/// A place and what is known of its kube-proxy.
pub(crate) struct Side {
    pub(crate) place: Arc<PlaceThread>,
    pub(crate) log: Log,
    mode: ProxyMode,
    families: Vec<IpFamily>,
    /// The process of a real kube-proxy.
    process: Mutex<Option<Pid>>,
}

/// A process that stands still until this is dropped.
pub(crate) struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Err(error) = kill(self.0, Signal::SIGCONT) {
            tracing::debug!(%error, "it has ended meanwhile");
        }
    }
}

/// The rules of each family.
pub(crate) type Rules = BTreeMap<IpFamily, String>;

/// What rules have to show.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Mark {
    family: IpFamily,
    /// One of iptables' tables; none in nftables mode, where there is only one.
    table: Option<String>,
    /// One of these texts.
    any: Vec<String>,
}

impl Mark {
    fn is_in(&self, rules: &Rules) -> bool {
        let rules = rules.get(&self.family).map_or("", String::as_str);
        let content = match &self.table {
            None => Some(rules),
            Some(table) => rules
                .split_once(&format!("*{table}\n"))
                .and_then(|(_, rest)| rest.split("\nCOMMIT\n").next()),
        };
        let content = content.map(|content| format!("{content}\n"));
        content.is_some_and(|content| self.any.iter().any(|text| content.contains(text)))
    }
}

/// Whether the rules have all these marks.
pub(crate) fn has(rules: &Rules, marks: &[Mark]) -> bool {
    marks.iter().all(|mark| mark.is_in(rules))
}

/// How a script ended.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    exit: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Side {
    /// Nobody plays there yet.
    pub(crate) fn new(place: &Arc<PlaceThread>, mode: ProxyMode, families: &[IpFamily]) -> Self {
        Self {
            place: Arc::clone(place),
            log: Log::default(),
            mode,
            families: families.to_vec(),
            process: Mutex::default(),
        }
    }

    /// Notes who plays here.
    pub(crate) fn plays(&self, process: Option<u32>) {
        let process = process.and_then(|it| it.try_into().ok()).map(Pid::from_raw);
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process;
    }

    /// Stops the real kube-proxy that plays here, and nobody else: what it has started ends by itself.
    pub(crate) fn stop(&self) -> Result<Stopped, String> {
        let process = *self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let process = process.ok_or("no real kube-proxy plays here")?;
        kill(process, Signal::SIGSTOP).map_err(|error| error.to_string())?;
        Ok(Stopped(process))
    }

    /// Runs a shell's script there.
    pub(crate) async fn sh(&self, script: &str) -> io::Result<Done> {
        self.run(&["sh", "-c", script]).await
    }

    async fn run(&self, argv: &[&str]) -> io::Result<Done> {
        let child = self.place.spawn(argv, |command| {
            command.stdin(Stdio::null());
        });
        let output = child.await?.wait_with_output().await?;
        Ok(Done {
            exit: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// All rules of kube-proxy's mode.
    pub(crate) async fn save(&self) -> io::Result<Rules> {
        let mut rules = Rules::new();
        for &family in &self.families {
            rules.insert(family, self.save_family(family).await?);
        }
        Ok(rules)
    }

    async fn save_family(&self, family: IpFamily) -> io::Result<String> {
        let (done, may_lack) = match self.mode {
            ProxyMode::Iptables => {
                let save = format!("{}-save", family.iptables());
                (self.run(&[&save]).await?, false)
            }
            ProxyMode::Nftables => {
                let list = ["nft", "list", "table", ip(family), "kube-proxy"];
                (self.run(&list).await?, true)
            }
            ProxyMode::Ipvs => unreachable!("no model plays it"),
        };
        match done.exit {
            Some(0) => Ok(done.stdout),
            _ if may_lack && done.stderr.contains("No such file or directory") => Ok(String::new()),
            _ => Err(io::Error::other(done.stderr)),
        }
    }

    /// When all these marks were first seen; none before the deadline.
    pub(crate) async fn first_look(
        &self,
        marks: &[Mark],
        deadline: Instant,
    ) -> io::Result<Option<Instant>> {
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            let seen = has(&self.save().await?, marks);
            let now = Instant::now();
            if seen || now > deadline {
                return Ok(seen.then_some(now));
            }
        }
    }

    /// Everything said so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.with(|log| log.lines.clone())
    }

    /// How many lines with that text were said so far.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.log
            .with(|log| log.lines.iter().filter(|line| line.contains(text)).count())
    }

    /// How many syncs were begun and ended.
    pub(crate) fn syncs(&self) -> (usize, usize) {
        let count = |texts: &[&str]| texts.iter().map(|text| self.said(text)).sum();
        (count(&BEGUN), count(&ENDED))
    }

    /// The reason for which the kube-proxy exited, if it did, and its last words.
    pub(crate) fn death(&self) -> Option<String> {
        self.log.with(|log| {
            let reason = log.death.as_ref()?;
            let last = log.lines.len().saturating_sub(5);
            Some(format!("{reason}\n{}", log.lines[last..].join("\n")))
        })
    }
}

/// How nft calls a family.
fn ip(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "ip",
        IpFamily::V6 => "ip6",
    }
}

/// What a kube-proxy says, line by line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    lines: Vec<String>,
    death: Option<String>,
}

impl Log {
    /// Notes a line.
    pub(crate) fn line(&self, line: String) {
        self.with(|log| log.lines.push(line));
    }

    /// Notes the end.
    pub(crate) fn died(&self, reason: String) {
        self.with(|log| log.death = Some(reason));
    }

    /// Notes all lines until the end.
    pub(crate) async fn follow(self, stream: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(stream).lines();
        // Whatever ends a log, there is no more of it.
        while let Ok(Some(line)) = lines.next_line().await {
            self.line(line);
        }
    }

    fn with<T>(&self, run: impl FnOnce(&mut Said) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
