//! Short commands, run to their end.

use std::fmt;

use tokio::io::AsyncReadExt;

use crate::{
    cluster::{Cluster, Command, Place},
    trouble::Trouble,
};

/// Runs a command to its end and returns its standard output.
pub(crate) async fn output(
    cluster: &dyn Cluster,
    place: &Place,
    command: &Command,
) -> Result<String, Trouble> {
    let trouble = |why: &dyn fmt::Display| Trouble::new(format!("run {command:?} in {place}"), why);
    let mut process = cluster
        .exec(place, command)
        .await
        .map_err(|error| trouble(&error))?;
    drop(process.stdin.take());
    let (mut out, mut err) = (String::new(), String::new());
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let (Some(mut stdout), Some(mut stderr)) = (stdout, stderr) else {
        return Err(trouble(&"its output is not piped"));
    };
    let read = tokio::try_join!(
        stdout.read_to_string(&mut out),
        stderr.read_to_string(&mut err)
    );
    read.map_err(|error| trouble(&error))?;
    let status = process.wait().await.map_err(|error| trouble(&error))?;
    if status.success() {
        Ok(out)
    } else {
        Err(trouble(&format!("{status}: {}", err.trim())))
    }
}
