//! What raises clusters, and what a program has to know of it to offer it. A backend is added by its crate, and by one line of the
//! program's registry.

mod options;

use std::{
    error::Error,
    process::{Command, Stdio},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_model::case::{Capabilities, Case};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::{cluster::Cluster, log::EventLog};

pub use options::{BackendOption, EBPF, Given, HOST_CHANGES, Takes, Wanted};

/// A backend before a person has chosen anything of it.
#[async_trait]
pub trait BackendFactory: Send + Sync {
    /// `lab`, `kind`.
    fn name(&self) -> &'static str;

    /// Its clusters, in a line of the help.
    fn about(&self) -> &'static str;

    /// What a person can choose beside its name, below its heading in the help.
    fn options(&self) -> (&'static str, &'static [BackendOption]);

    /// Where its clusters are.
    fn ground(&self) -> Ground;

    /// How many cases run side by side.
    fn jobs(&self) -> usize;

    /// How many clusters start side by side at most, up to [`Semaphore::MAX_PERMITS`]. Where a start keeps a processor busy,
    /// cases that are judged meanwhile would lack it.
    fn starts(&self) -> usize {
        Semaphore::MAX_PERMITS
    }

    /// How long a cluster may take until it is ready.
    fn ready_within(&self) -> Duration;

    /// What a worker may take to end a run that it was told to end, its cluster included.
    fn grace(&self) -> Duration;

    /// What was given, with what is the same for all processes of a run and different for each run.
    fn settle(&self, given: Given) -> Given;

    /// With what a person chose, and the run settled.
    fn open(&self, given: &Given) -> Box<dyn Backend>;

    /// Cases of which this is the same had better follow each other, since they can have the same cluster. `None` where that
    /// does not matter.
    fn kin(&self, _case: &Case) -> Option<String> {
        None
    }

    /// What this machine has of what it needs.
    async fn doctor(&self) -> Vec<Finding>;

    /// `None` where nothing of a cluster outlives its worker.
    fn cleaning(&self) -> Option<&dyn Cleaning> {
        None
    }
}

/// Where clusters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// In a world of the worker's own.
    World,
    /// Elsewhere: they are real, and their worker is an ordinary process.
    Real,
}

/// What raises clusters.
#[async_trait]
pub trait Backend: Send + Sync {
    /// What can run here, and for what cannot, the reason a person acts on.
    async fn survey(&self) -> Capabilities;

    /// Raises what the case asks for: nodes up, API answering, FelixConfiguration applied, agents
    /// started. Manifests and waiting are the engine's, as is that all of it is ready within that time.
    async fn raise(
        &self,
        case: &Case,
        log: &EventLog,
        within: Duration,
    ) -> Result<Box<dyn Cluster>, RaiseError>;

    /// Takes down what was begun and never handed over: a cluster whose raising failed, was too slow, or was interrupted.
    /// To be called when a case is over, whatever became of it.
    async fn finish(&self) -> Result<(), BackendError>;

    /// `None` where a case has its cluster for itself.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }
}

/// The clusters are others', too.
#[async_trait]
pub trait Shared: Send + Sync {
    /// The cluster's name, where it is not to be disturbed. An error is that it cannot be known, or a leave for another cluster.
    fn undisturbed(&self) -> Result<Option<String>, BackendError>;

    /// The cases as they are there: in namespaces of their own.
    async fn rewrite_namespaces(&self, cases: Vec<Case>) -> Vec<Case>;

    /// What each of the cases, as they are there, would do to the clusters, in the order in which it begins with it.
    async fn rehearse(&self, cases: &[&Case]) -> Result<Vec<Vec<Doing>>, BackendError>;
}

/// One thing that a case does to a cluster, or runs there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Doing {
    /// `makes`, `changes`, `deletes`, `runs`.
    pub does: &'static str,
    /// An object, as `Pod test/client`, or a command.
    pub what: String,
    /// What is to be known of it: how it is changed, where it runs, what for.
    pub how: String,
}

/// What runs that were killed have left can be found and removed.
#[async_trait]
pub trait Cleaning: Send + Sync {
    /// What a person can say of where to look.
    fn options(&self) -> &'static [BackendOption];

    /// Removes what no run uses, and says a line of each thing when it is gone. Whether there was anything.
    async fn clean(
        &self,
        given: &Given,
        say: &mut (dyn FnMut(String) + Send),
    ) -> Result<bool, BackendError>;
}

/// Something that a backend needs, and whether it is here; if not, a reason that a person acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub name: String,
    /// Whether it is here.
    pub found: Result<(), String>,
}

/// Whether a command can be run here and succeeds.
fn succeeds(argv: &[&str]) -> Result<(), String> {
    let mut command = Command::new(argv[0]);
    command
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{}` failed: {status}", argv.join(" "))),
        Err(error) => Err(format!("`{}` could not be started: {error}", argv[0])),
    }
}

/// What this machine has of what the backend `kind` needs. It is asked for also where the program was built without that backend.
pub fn kind_findings() -> [Finding; 2] {
    let docker = succeeds(&["docker", "info"])
        .map_err(|why| format!("no Docker engine answers ({why})\nsudo apt-get install docker.io"));
    let kind = succeeds(&["kind", "version"])
        .map_err(|why| format!("{why}\nsee https://kind.sigs.k8s.io/docs/user/quick-start"));
    [("docker", docker), ("kind", kind)].map(|(name, found)| Finding {
        name: name.to_owned(),
        found,
    })
}

/// The cluster could not be raised.
#[derive(Debug, thiserror::Error)]
#[error("could not raise the cluster: {what}: {source}")]
pub struct RaiseError {
    /// What was being done.
    pub what: String,
    /// Why it failed.
    pub source: Box<dyn Error + Send + Sync>,
}

/// A backend's own error, in its words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BackendError(pub Box<dyn Error + Send + Sync>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let why = succeeds(&["a-program-that-nobody-has", "info"]).unwrap_err();
        assert!(why.contains("`a-program-that-nobody-has`"), "{why}");
    }
}
