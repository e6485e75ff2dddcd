//! Commands of faults.

use super::Injection;
use crate::{
    cluster::{Command, ExecError, Place, Process, exec_as},
    infra_error::InfraError,
    output::{ended, output},
};

impl Injection<'_> {
    /// Runs a command that changes no rules and returns its standard output.
    pub(super) async fn run(&self, at: &Place, argv: &[&str]) -> Result<String, InfraError> {
        output(self.cluster, at, &command(argv)).await
    }

    /// The same with a standard input.
    pub(super) async fn feed(
        &self,
        at: &Place,
        argv: &[&str],
        input: &str,
    ) -> Result<String, InfraError> {
        let started = self.cluster.exec(at, &command(argv)).await;
        finish(at, argv, started, input).await
    }

    /// Runs somebody's command, recorded as theirs.
    pub(super) async fn run_as(
        &self,
        who: &str,
        at: &Place,
        argv: &[&str],
        input: &str,
    ) -> Result<String, InfraError> {
        let started = exec_as(self.cluster, who, at, &command(argv)).await;
        finish(at, argv, started, input).await
    }
}

/// Feeds a command that was started and waits for its end.
async fn finish(
    at: &Place,
    argv: &[&str],
    started: Result<Process, ExecError>,
    input: &str,
) -> Result<String, InfraError> {
    let doing = || format!("run {} in {at}", argv.join(" "));
    let process = started.map_err(|error| InfraError::new(doing(), error))?;
    let output = ended(process, input).await;
    output.map_err(|why| InfraError::new(doing(), why))
}

pub(super) fn command(argv: &[&str]) -> Command {
    Command::Argv(argv.iter().map(|&word| word.to_owned()).collect())
}
