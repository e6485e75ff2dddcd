//! Short commands, run to their end.

use std::{fmt, io, process::ExitStatus, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy, sink},
    process::{ChildStderr, ChildStdin, ChildStdout},
    time::timeout,
};

use crate::{
    cluster::{Cluster, Command, Place, Process},
    infra_error::InfraError,
};

/// How long the output of an ended process may take to be read.
const REST: Duration = Duration::from_millis(500);

/// Runs a command to its end and returns its standard output.
pub(crate) async fn output(
    cluster: &dyn Cluster,
    place: &Place,
    command: &Command,
) -> Result<String, InfraError> {
    let trouble =
        |why: &dyn fmt::Display| InfraError::new(format!("run {command:?} in {place}"), why);
    let process = cluster.exec(place, command).await;
    let process = process.map_err(|error| trouble(&error))?;
    ended(process, "").await.map_err(|why| trouble(&why))
}

/// Feeds a process, follows it to its end and returns its standard output, or how it failed. What it leaves in the
/// background is not waited for, and goes on.
pub(crate) async fn ended(mut process: Process, input: &str) -> Result<String, String> {
    let mut output = Output::of(&mut process)?;
    let stdin = process.stdin.take();
    let talk = async {
        let ((), read) = tokio::join!(feed(stdin, input), output.read());
        read
    };
    let status = tokio::select! {
        status = process.wait() => status,
        read = talk => match read {
            Ok(()) => process.wait().await,
            Err(error) => Err(error),
        },
    };
    let status = status.map_err(|error| error.to_string())?;
    let rest = timeout(REST, output.read()).await;
    let Output {
        stdout,
        stderr,
        out,
        err,
    } = output;
    match rest {
        Ok(read) => read.map_err(|error| error.to_string())?,
        Err(_elapsed) => swallow(stdout, stderr),
    }
    outcome(status, out, &err)
}

/// Follows a process until it and all that write to its output have ended, and returns its standard output, or how it
/// failed. Until then its process id is nobody else's.
pub(crate) async fn all_ended(mut process: Process) -> Result<String, String> {
    let mut output = Output::of(&mut process)?;
    drop(process.stdin.take());
    let read = output.read().await;
    read.map_err(|error| error.to_string())?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    outcome(status, output.out, &output.err)
}

fn outcome(status: ExitStatus, out: Vec<u8>, err: &[u8]) -> Result<String, String> {
    if status.success() {
        String::from_utf8(out).map_err(|error| error.to_string())
    } else {
        let err = String::from_utf8_lossy(err);
        Err(format!("{status}: {}", err.trim()))
    }
}

/// Reads on, that whoever writes to it still does not die of it.
fn swallow(mut stdout: ChildStdout, mut stderr: ChildStderr) {
    tokio::spawn(async move {
        let (mut nowhere, mut neither) = (sink(), sink());
        let out = copy(&mut stdout, &mut nowhere);
        drop(tokio::join!(out, copy(&mut stderr, &mut neither)));
    });
}

async fn feed(stdin: Option<ChildStdin>, input: &str) {
    if let Some(mut stdin) = stdin {
        // A command that does not read to the end says itself what was wrong.
        drop(stdin.write_all(input.as_bytes()).await);
    }
}

/// What a process wrote, as far as it was read.
struct Output {
    stdout: ChildStdout,
    stderr: ChildStderr,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Output {
    fn of(process: &mut Process) -> Result<Self, String> {
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err("its output is not piped".to_owned());
        };
        Ok(Self {
            stdout,
            stderr,
            out: Vec::new(),
            err: Vec::new(),
        })
    }

    /// Reads both to their end. What was read stays when this is broken off.
    async fn read(&mut self) -> io::Result<()> {
        let out = read(&mut self.stdout, &mut self.out);
        tokio::try_join!(out, read(&mut self.stderr, &mut self.err)).map(drop)
    }
}

/// Not `read_to_end`, which does not say what becomes of what it read when it is broken off.
async fn read(from: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) -> io::Result<()> {
    while from.read_buf(into).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing here takes a tenth of it on an idle machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    async fn shell(script: &str) -> Result<String, String> {
        let mut shell = tokio::process::Command::new("sh");
        let process = Process::spawn(shell.args(["-c", script])).unwrap();
        timeout(PATIENCE, ended(process, "fed\n")).await.unwrap()
    }

    #[tokio::test]
    async fn a_command_ends_with_its_output_or_with_what_it_said_of_its_failure() {
        assert_eq!(shell("cat").await, Ok("fed\n".to_owned()));
        let failed = shell("echo out; echo no good >&2; exit 3").await;
        assert_eq!(failed, Err("exit status: 3: no good".to_owned()));
        // More than a pipe holds, of which the last part is read when it has ended.
        let many = shell("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i + 1)); done").await;
        assert_eq!(many.unwrap().lines().count(), 20_000);
    }

    #[tokio::test]
    async fn what_a_command_leaves_in_the_background_is_not_waited_for_and_can_still_write() {
        let leave = r#"
            folder=$(mktemp -d)
            mkfifo "$folder/gate" "$folder/end"
            (read -r go < "$folder/gate"; echo more; echo lives > "$folder/end") &
            echo "$folder"
        "#;
        let folder = shell(leave).await.unwrap();
        let folder = folder.trim();
        let let_go = format!("echo go > {folder}/gate; cat {folder}/end; rm -r {folder}");
        assert_eq!(shell(&let_go).await, Ok("lives\n".to_owned()));
    }
}
