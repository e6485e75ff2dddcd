//! Short commands, run to their end.

use std::fmt;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    cluster::{Cluster, Command, Place, Process},
    trouble::Trouble,
};

/// Runs a command to its end and returns its standard output.
pub(crate) async fn output(
    cluster: &dyn Cluster,
    place: &Place,
    command: &Command,
) -> Result<String, Trouble> {
    let trouble = |why: &dyn fmt::Display| Trouble::new(format!("run {command:?} in {place}"), why);
    let process = cluster.exec(place, command).await;
    let process = process.map_err(|error| trouble(&error))?;
    ended(process, "").await.map_err(|why| trouble(&why))
}

/// Feeds a process, follows it to its end and returns its standard output, or how it failed.
pub(crate) async fn ended(mut process: Process, input: &str) -> Result<String, String> {
    let (mut out, mut err) = (String::new(), String::new());
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let (Some(mut stdout), Some(mut stderr)) = (stdout, stderr) else {
        return Err("its output is not piped".to_owned());
    };
    let stdin = process.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read to the end says itself what was wrong.
            drop(stdin.write_all(input.as_bytes()).await);
        }
        Ok(())
    };
    let read = tokio::try_join!(
        feed,
        stdout.read_to_string(&mut out),
        stderr.read_to_string(&mut err)
    );
    read.map_err(|error| error.to_string())?;
    let status = process.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        Ok(out)
    } else {
        Err(format!("{status}: {}", err.trim()))
    }
}
