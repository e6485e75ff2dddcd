//! Commands of faults.

use super::Injection;
use crate::{
    cluster::{Command, ExecError, Place, Process, exec_as},
    infra_error::InfraError,
    output::{ended, output},
};

impl Injection<'_> {
    /// Runs a command that changes no rules and returns its standard output.
    pub(super) async fn run(
        &self,
        at: &Place,
        argv: &[impl AsRef<str>],
    ) -> Result<String, InfraError> {
        output(self.cluster, at, &command(argv)).await
    }

    /// The same with a standard input.
    pub(super) async fn feed(
        &self,
        at: &Place,
        argv: &[impl AsRef<str>],
        input: &str,
    ) -> Result<String, InfraError> {
        let started = self.cluster.exec(at, &command(argv)).await;
        finish(at, &joined(argv), started, input).await
    }

    /// Runs somebody's command, recorded as theirs.
    pub(super) async fn run_as(
        &self,
        who: &str,
        at: &Place,
        argv: &[impl AsRef<str>],
        input: &str,
    ) -> Result<String, InfraError> {
        let started = exec_as(self.cluster, who, at, &command(argv)).await;
        finish(at, &joined(argv), started, input).await
    }
}

/// Feeds a command that was started and waits for its end.
async fn finish(
    at: &Place,
    words: &str,
    started: Result<Process, ExecError>,
    input: &str,
) -> Result<String, InfraError> {
    let doing = || format!("run {words} in {at}");
    let process = started.map_err(|error| InfraError::new(doing(), error))?;
    let output = ended(process, input).await;
    output.map_err(|why| InfraError::new(doing(), why))
}

pub(super) fn command(argv: &[impl AsRef<str>]) -> Command {
    Command::Argv(argv.iter().map(|word| word.as_ref().to_owned()).collect())
}

fn joined(argv: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
    words.join(" ")
}
