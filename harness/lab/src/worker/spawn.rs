//! The parent's side of a worker.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use chainbreak_model::is_hidden;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};

use super::WorldOptions;
use crate::error::LabError;

/// What a worker says last is there as soon as it has ended; somebody else may hold its standard error for longer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How many lines of what it wrote on standard error tell why it ended.
const TOLD: usize = 10;

/// A worker, seen from its parent. Dropping it ends the worker and its world.
#[derive(Debug)]
pub struct Worker {
    /// Stage 1; its exit status is the worker's.
    pub child: Child,
    /// What the worker writes on standard output, line by line.
    pub lines: Lines<BufReader<ChildStdout>>,
    stdin: Option<ChildStdin>,
    /// Passes on what it writes on standard error, and returns the end of it.
    words: Option<JoinHandle<String>>,
}

impl Worker {
    /// Sends a line.
    pub async fn order(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        stdin.flush().await
    }

    /// Lets go of the lifeline: the worker ends at once, with its world.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end, with the lifeline held so that the worker ends by itself.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        // `Child::wait` closes only a standard input that the child still owns: ours was taken.
        self.child.wait().await
    }

    /// The last lines that it wrote on standard error. For when it has ended; there is nothing a second time.
    pub async fn last_words(&mut self) -> String {
        let Some(words) = self.words.take() else {
            return String::new();
        };
        let words = timeout(LAST_WORDS, words).await;
        words.ok().and_then(Result::ok).unwrap_or_default()
    }
}

/// Starts `program worker OPTION…`: a worker with a world. It has
/// a process group of its own, so that a terminal's Ctrl-C reaches the parent only, which then ends its
/// workers in order. What it writes on standard error is passed on.
pub fn spawn_worker(program: &Path, options: &WorldOptions) -> Result<Worker, LabError> {
    spawn(program, &options.arguments()).map(passing_on)
}

/// Starts `program worker ARGUMENTS…`, the same but for what these arguments make of it.
pub fn spawn_other(program: &Path, arguments: &[&str]) -> Result<Worker, LabError> {
    spawn(program, arguments).map(passing_on)
}

/// The worker never has our standard error itself: that may be a person's terminal, or the log of a CI.
fn passing_on(mut worker: Worker) -> Worker {
    worker.words = worker
        .child
        .stderr
        .take()
        .map(|words| tokio::spawn(pass_on(words)));
    worker
}

/// Whose words they are stands before each line, so that a CI's runner obeys none.
async fn pass_on(words: ChildStderr) -> String {
    let mut lines = BufReader::new(words).split(b'\n');
    let mut last = VecDeque::new();
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = plain(&String::from_utf8_lossy(&line));
        drop(writeln!(io::stderr().lock(), "world: {line}"));
        if last.len() == TOLD {
            last.pop_front();
        }
        last.push_back(line);
    }
    Vec::from(last).join("\n")
}

/// A line without what a terminal would obey, and no longer than a person reads.
fn plain(line: &str) -> String {
    let shown = |c: &char| *c == '\t' || !is_hidden(*c);
    line.chars().filter(shown).take(1000).collect()
}

/// As [`spawn_worker`], with standard error for the caller to read.
fn spawn(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Worker, LabError> {
    let failed = |source| LabError::Spawn {
        program: program.to_owned(),
        source,
    };
    let spawned = Command::new(program)
        .arg(super::VERB)
        .args(arguments)
        .env(super::TOKEN, token().map_err(&failed)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(failed)?;
    let stdin = child.stdin.take().expect("standard input is piped");
    let stdout = child.stdout.take().expect("standard output is piped");
    Ok(Worker {
        child,
        lines: BufReader::new(stdout).lines(),
        stdin: Some(stdin),
        words: None,
    })
}

/// Who starts it, and what nobody guesses.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let secret = data_encoding::HEXLOWER.encode(&bytes);
    Ok(format!("{}-{secret}", std::process::id()))
}

/// The one line with which a worker of the running program answers an order. An error is what the worker
/// said instead, or why there is none.
pub(crate) async fn ask(options: &WorldOptions, order: &str) -> Result<String, String> {
    let text = |error: io::Error| error.to_string();
    let program = std::env::current_exe().map_err(text)?;
    let mut worker = spawn(&program, &options.arguments()).map_err(|error| error.to_string())?;
    // A worker that could not make its world says why and does not read.
    let ordered = worker.order(order).await;
    let answer = worker.lines.next_line().await.map_err(text)?;
    if let Some(answer) = answer.filter(|_| ordered.is_ok()) {
        return Ok(answer);
    }
    let mut words = String::new();
    if let Some(stderr) = &mut worker.child.stderr {
        stderr.read_to_string(&mut words).await.map_err(text)?;
    }
    if words.trim().is_empty() {
        let ended = worker.child.wait().await.map_err(text)?;
        words = format!("the world to try it in ended with {ended}");
    }
    Err(words.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_last_lines_of_a_worker_that_died_are_there_without_what_a_terminal_obeys() {
        let script = "seq 9 >&2; printf '\\033[2Jlast\\n::error::but one\\n' >&2";
        let mut sh = Command::new("sh");
        let mut child = sh
            .args(["-c", script])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let words = pass_on(child.stderr.take().unwrap()).await;
        assert_eq!(words, "2\n3\n4\n5\n6\n7\n8\n9\n[2Jlast\n::error::but one");
    }
}
