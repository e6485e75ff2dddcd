//! The parent's side of a worker.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::error::LabError;

/// A worker, seen from its parent. Dropping it ends the worker and its world.
#[derive(Debug)]
pub struct Worker {
    /// Stage 1; its exit status is the worker's.
    pub child: Child,
    /// What the worker writes on standard output, line by line.
    pub lines: Lines<BufReader<ChildStdout>>,
    stdin: Option<ChildStdin>,
}

impl Worker {
    /// Sends a line.
    pub async fn order(&mut self, line: &str) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        stdin.flush().await
    }

    /// Lets go of the lifeline: the worker ends at once, with its world.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end, with the lifeline held so that the worker ends by itself.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        // `Child::wait` closes only a standard input that the child still owns: ours was taken.
        self.child.wait().await
    }
}

/// Starts `program worker SHOW…`: a worker whose world shows these absolute paths of the machine. It has
/// a process group of its own, so that a terminal's Ctrl-C reaches the parent only, which then ends its
/// workers in order. Standard error is shared.
pub fn spawn_worker(program: &Path, show: &[PathBuf]) -> Result<Worker, LabError> {
    spawn(program, show, Stdio::inherit())
}

/// Starts `program worker ARGUMENTS…`, the same but for what these arguments make of it.
pub fn spawn_other(program: &Path, arguments: &[&str]) -> Result<Worker, LabError> {
    spawn(program, arguments, Stdio::inherit())
}

/// As [`spawn_worker`], with standard error of the caller's choice.
fn spawn(
    program: &Path,
    arguments: &[impl AsRef<OsStr>],
    stderr: Stdio,
) -> Result<Worker, LabError> {
    let spawned = Command::new(program)
        .arg(super::VERB)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|source| LabError::Spawn {
        program: program.to_owned(),
        source,
    })?;
    let stdin = child.stdin.take().expect("standard input is piped");
    let stdout = child.stdout.take().expect("standard output is piped");
    Ok(Worker {
        child,
        lines: BufReader::new(stdout).lines(),
        stdin: Some(stdin),
    })
}

/// The one line with which a worker of the running program answers an order. An error is what the worker
/// said instead, or why there is none.
pub(crate) async fn ask(show: &[PathBuf], order: &str) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let program = std::env::current_exe().map_err(text)?;
    let mut worker = spawn(&program, show, Stdio::piped()).map_err(|error| error.to_string())?;
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
