//! What a run owes a cluster that outlives it: how an act of a fault is undone, for who finds that the run was killed.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Cluster, Command, Place, exec_as};
use crate::output::ended;

/// How one act is undone. To do so where nothing was done does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Debt {
    /// What it does, as the history says it.
    pub text: String,
    /// Where the command runs.
    pub at: Place,
    /// What is run.
    pub command: Command,
    /// Its standard input.
    pub input: String,
}

impl Debt {
    /// Undoes the act, on behalf of that one. An error is what the command says.
    pub(crate) async fn settle(&self, cluster: &dyn Cluster, who: &str) -> Result<(), String> {
        let process = exec_as(cluster, who, &self.at, &self.command).await;
        let process = process.map_err(|error| error.to_string())?;
        ended(process, &self.input).await.map(drop)
    }
}

/// Where debts are noted, so that they outlive the run.
#[async_trait]
pub trait Debts: Send + Sync {
    /// Notes a debt before the act. What [`Self::paid`] knows it by.
    async fn owe(&self, debt: &Debt) -> Result<u64, String>;

    /// It is undone.
    async fn paid(&self, number: u64) -> Result<(), String>;
}
