//! One life of a real agent: its process from start to end, and what it says meanwhile.

use std::{
    collections::BTreeMap,
    io::{self, PipeReader},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{ExitStatus, Stdio},
};

use chainbreak_engine::{cluster as engine, entries::Entries, supervisor::LifeControl};
use chainbreak_model::agent::LogFormat;
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::{net::unix::pipe::Receiver, process::Command};

use crate::{error::tolerate, worker::delegation};

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// And how often in a row.
const CHUNKS: usize = 16;
/// A line that has more bytes is told in pieces.
const LONGEST: usize = 4 << 20;

/// What is to be run.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) argv: Vec<String>,
    /// The whole environment.
    pub(super) env: BTreeMap<String, String>,
    pub(super) format: LogFormat,
    /// Written on the node before: its path and content.
    pub(super) file: Option<(&'static str, String)>,
}

/// Runs the program in the place of the calling thread, until it exits, or is killed: `None` where it was told to end.
/// Dropping this kills it, too. In each case what it started dies with it, as far as it stayed in its process group. To pause
/// it stops the process alone: commands that it has started go on.
pub(super) async fn live(
    start: &Start,
    mut control: LifeControl,
    mut say: impl FnMut(String),
) -> io::Result<Option<ExitStatus>> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(&start.argv[0]);
    command
        .args(&start.argv[1..])
        .env_clear()
        .envs(&start.env)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    // What Felix attaches to it translates what Felix asks, too.
    delegation::adopt(child.id());
    // The command still holds the pipe's other end.
    drop(command);
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let pid = pid.map(Pid::from_raw);
    let group = pid.map(Group);
    let mut words = Words::new(reader, start.format)?;
    let ended = loop {
        tokio::select! {
            said = words.next() => said.into_iter().for_each(&mut say),
            ended = child.wait() => break ended,
            wish = control.next() => {
                let signal = match wish {
                    engine::Signal::Stop => return Ok(None),
                    engine::Signal::Pause => Signal::SIGSTOP,
                    engine::Signal::Run => Signal::SIGCONT,
                };
                if let Some(pid) = pid {
                    tolerate("pause an agent or let it go on", kill(pid, signal));
                }
                control.is_so(wish);
            }
        }
    };
    drop(group);
    words.rest().into_iter().for_each(say);
    ended.map(Some)
}

/// How a process ended, in words: `exit status 1`, `killed by signal 9`.
pub(super) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A process group that ends when this is dropped.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        tolerate("end an agent's group", killpg(self.0, Signal::SIGKILL));
    }
}

/// What a process says on standard output and error, which are one pipe so that the order is kept.
struct Words {
    pipe: Receiver,
    entries: Entries,
    /// The beginning of a line.
    line: Vec<u8>,
    over: bool,
}

impl Words {
    fn new(pipe: PipeReader, format: LogFormat) -> io::Result<Self> {
        Ok(Self {
            pipe: Receiver::from_owned_fd(OwnedFd::from(pipe))?,
            entries: Entries::new(format),
            line: Vec::new(),
            over: false,
        })
    }

    /// Waits for words and returns the entries that they complete. Never returns again after the end of
    /// the words.
    async fn next(&mut self) -> Vec<String> {
        if self.over || self.pipe.readable().await.is_err() {
            return std::future::pending().await;
        }
        self.present()
    }

    /// What is there at the moment, and of a flood a part: others are to have their turn.
    fn present(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut chunk = vec![0; CHUNK];
        for _ in 0..CHUNKS {
            match self.pipe.try_read(&mut chunk) {
                Ok(0) => self.over = true,
                Ok(read) => {
                    self.take(&chunk[..read], &mut found);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.over = true,
            }
            if self.line.is_empty() {
                found.extend(self.entries.pause());
            }
            return found;
        }
        found
    }

    fn take(&mut self, bytes: &[u8], found: &mut Vec<String>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend(piece);
            if piece.ends_with(b"\n") || self.line.len() > LONGEST {
                self.end_line(found);
            }
        }
    }

    fn end_line(&mut self, found: &mut Vec<String>) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        found.extend(self.entries.line(line.trim_end_matches('\n')));
    }

    /// What is left when the process is gone.
    fn rest(mut self) -> Vec<String> {
        let mut found = self.present();
        if !self.line.is_empty() {
            self.end_line(&mut found);
        }
        found.extend(self.entries.end());
        found
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_engine::supervisor::agent_handle;

    use super::*;

    fn shell(script: &str) -> Start {
        Start {
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: [("NAME".to_owned(), "value".to_owned())].into(),
            format: LogFormat::Lines,
            file: None,
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn both_streams_are_heard_in_order_and_the_environment_is_what_was_given() {
        let mut said = Vec::new();
        let script = "echo $NAME; echo two >&2; echo ${HOME-none}; printf half; exit 3";
        let ended = live(&shell(script), agent_handle().1, |entry| said.push(entry)).await;
        assert_eq!(said, ["value", "two", "none", "half"]);
        assert_eq!(how(ended.unwrap().unwrap()), "exit status 3");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_line_without_end_is_told_in_pieces() {
        let mut pieces = Vec::new();
        let script = "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo next";
        let start = shell(script);
        let ended = live(&start, agent_handle().1, |entry| pieces.push(entry.len()));
        assert!(ended.await.unwrap().unwrap().success());
        assert_eq!(pieces.iter().sum::<usize>(), 10_000_004);
        assert!(
            pieces.iter().all(|&bytes| bytes <= LONGEST + CHUNK),
            "{pieces:?}"
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_an_agent_left_in_the_background_ends_with_it() {
        let mut said = Vec::new();
        let script = "sleep 1000 & echo $!; kill -9 $$";
        let ended = live(&shell(script), agent_handle().1, |entry| said.push(entry)).await;
        assert_eq!(how(ended.unwrap().unwrap()), "killed by signal 9");
        let left = Pid::from_raw(said[0].parse().unwrap());
        let begin = std::time::Instant::now();
        // The orphan is somebody else's to reap: a zombie is as good as gone.
        while runs(left) {
            assert!(begin.elapsed().as_secs() < 10, "{left} still runs");
            tokio::task::yield_now().await;
        }
    }

    fn runs(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_paused_process_says_nothing_until_it_may_go_on_and_then_the_rest() {
        let (handle, control) = agent_handle();
        let (told, mut said) = tokio::sync::mpsc::unbounded_channel();
        let script = "while :; do echo tick; sleep 0.01; done";
        let start = shell(script);
        let living = live(&start, control, |entry| drop(told.send(entry)));
        let pausing = async {
            said.recv().await.unwrap();
            handle.signal(engine::Signal::Pause).await.unwrap();
            let pause = std::time::Duration::from_millis(200);
            // What was said before the pause is still heard.
            while tokio::time::timeout(pause, said.recv()).await.is_ok() {}
            assert!(said.try_recv().is_err());
            handle.signal(engine::Signal::Run).await.unwrap();
            assert_eq!(said.recv().await.unwrap(), "tick");
        };
        tokio::select! {
            ended = living => panic!("{ended:?}"),
            () = pausing => {}
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_program_that_cannot_be_started_is_an_error() {
        let mut start = shell("");
        start.argv[0] = "/no/such/agent".to_owned();
        let error = live(&start, agent_handle().1, |_| ()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
