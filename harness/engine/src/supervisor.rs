//! The agents that a backend runs itself, whatever it runs them as: how one is stopped, paused and started, what a restart is, and
//! when one life follows the other. What a backend does differently is how it begins a life, and how a life obeys
//! ([`Supervised`]). Agents that the cluster itself restarts, as pods of DaemonSets, are not ours to supervise.

mod control;
mod lives;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use chainbreak_model::names::{AgentName, NodeName};
use tokio::time::timeout;

use crate::{
    cluster::{Signal, SignalError},
    first_sync::FirstSync,
    logbook::Logbook,
};

pub use control::{AgentHandle, LifeControl, agent_handle};
pub use lives::{Death, Kind, LogWriter, Supervised, Supervision};

/// The handles of all agents that it runs, and their logs. A clone signals those that were there when it was made.
#[derive(Debug, Clone)]
pub struct Supervisor {
    handles: BTreeMap<(AgentName, NodeName), AgentHandle>,
    logbook: Logbook,
    /// What an agent may take to obey, where it could fail to.
    patience: Option<Duration>,
}

impl Supervisor {
    /// Of no agent yet.
    pub fn new(logbook: Logbook, patience: Option<Duration>) -> Self {
        Self {
            handles: BTreeMap::new(),
            logbook,
            patience,
        }
    }

    /// An agent that is to run: it does when its lives are lived.
    pub fn add(&mut self, agent: AgentName, node: &NodeName) -> Supervision {
        let (handle, control) = agent_handle();
        self.handles.insert((agent, node.clone()), handle);
        let writer = self.logbook.writer(agent, node);
        Supervision::new(agent, node.clone(), writer, control)
    }

    /// The logs of all agents.
    pub fn logbook(&self) -> &Logbook {
        &self.logbook
    }

    /// Tells an agent what to be, and returns when it is so.
    pub async fn signal(
        &self,
        agent: AgentName,
        node: &NodeName,
        signal: Signal,
    ) -> Result<(), SignalError> {
        let handle = self.handles.get(&(agent, node.clone()));
        let absent = || SignalError(format!("there is no {agent} on {node}"));
        let obeyed = handle.ok_or_else(absent)?.signal(signal);
        let Some(patience) = self.patience else {
            return obeyed.await;
        };
        let late = |_elapsed| {
            let what = format!("{agent} on {node} does not obey {signal:?} within {patience:?}");
            SignalError(what)
        };
        timeout(patience, obeyed).await.map_err(late)?
    }

    /// Ends an agent, has it changed as told while it does not live, and starts it. Its new life has begun its work when this
    /// returns, by what its log has after the old one's end: kube-proxy says the same of each sync.
    pub async fn restart(
        &self,
        agent: AgentName,
        node: &NodeName,
        change: impl Future<Output = Result<(), SignalError>>,
    ) -> Result<(), SignalError> {
        self.signal(agent, node, Signal::Stop).await?;
        change.await?;
        let first_sync = FirstSync::skip_existing(agent, self.logbook.read(agent, node));
        self.signal(agent, node, Signal::Run).await?;
        first_sync.seen().await
    }

    /// Returns when the agent has begun its work at least once. Nobody but the caller sets a deadline.
    pub async fn has_begun(&self, agent: AgentName, node: &NodeName) -> Result<(), SignalError> {
        let log = self.logbook.read(agent, node);
        FirstSync::ever(agent, log).seen().await
    }

    /// Has all agents end, also those that stand still, and does not wait.
    pub fn kill(&self) {
        self.handles.values().for_each(AgentHandle::kill);
    }
}
