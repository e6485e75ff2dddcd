//! A command of an agent, from its start to its end.

use std::{io, os::unix::process::ExitStatusExt, process::Stdio, time::Instant};

use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command as Process},
};

use crate::step::{Command, Output};

/// What a shell answers for a command that cannot be started.
const NOT_STARTED: i32 = 127;

/// Starts a program where the calling thread is, all three standard streams piped. It is killed when the child is dropped.
pub fn spawn(argv: &[String]) -> io::Result<Child> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Process::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Feeds a command that was started, or not, and follows it to its end; its time counts from `begin`.
pub async fn follow(child: io::Result<Child>, command: &Command, begin: Instant) -> Output {
    let ended = match child {
        Ok(child) => end_of(child, &command.input).await,
        Err(error) => Err(error),
    };
    let took = begin.elapsed();
    let output = ended.unwrap_or_else(|error| {
        let program = command.argv.first().map_or("", String::as_str);
        Output {
            exit: NOT_STARTED,
            stderr: format!("{program}: {error}"),
            ..Output::default()
        }
    });
    Output { took, ..output }
}

async fn end_of(mut child: Child, input: &str) -> io::Result<Output> {
    let stdin = child.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin
            && let Err(error) = stdin.write_all(input.as_bytes()).await
        {
            // A command that does not read to the end says itself what was wrong.
            tracing::debug!(%error, "feed a command");
        }
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let killed = || 128 + output.status.signal().unwrap_or(0);
    Ok(Output {
        exit: output.status.code().unwrap_or_else(killed),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        ..Output::default()
    })
}
