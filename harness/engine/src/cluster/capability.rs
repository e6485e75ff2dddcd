//! What a backend may lack. A cluster hands out each capability that it has ([`Cluster`]), so that nobody can take a method
//! that does nothing for one that does.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use chainbreak_model::{
    case::ApiWay,
    names::{AgentName, NodeName},
};
use futures::future::BoxFuture;

use super::{Cluster, Command, ExecError, Place, Process, Signal, SignalError};

/// The netfilter commands of every agent become events.
#[async_trait]
pub trait Recording: Send + Sync {
    /// As [`Cluster::exec`], on behalf of somebody: the netfilter commands that it runs on a node become events with that name.
    async fn exec_as(&self, who: &str, at: &Place, command: &Command)
    -> Result<Process, ExecError>;
}

/// An agent's commands of a program, whichever front end's it is, begin that much later, on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    /// Whose.
    pub agent: AgentName,
    /// Without its folder.
    pub program: String,
    /// How much.
    pub by: Duration,
}

/// Agents' commands can begin late. Cases that need it ask for the capability `held-commands`.
#[async_trait]
pub trait Holding: Send + Sync {
    /// It is so from now on.
    async fn hold_back(&self, delay: &Delay) -> Result<(), SignalError>;

    /// The same is over: those that wait go on. An error where it was over before, and commands were not late that were to be. No harm where
    /// it never began.
    async fn let_go(&self, delay: &Delay) -> Result<(), SignalError>;
}

/// Agents' processes can be ended, started and paused.
#[async_trait]
pub trait AgentControl: Send + Sync {
    /// Ends or starts an agent's process, or has it do nothing for a while. It is so when this returns;
    /// asking for what is so already does nothing.
    async fn signal(
        &self,
        agent: AgentName,
        node: &NodeName,
        signal: Signal,
    ) -> Result<(), SignalError>;

    /// Ends an agent's process and starts it at once, from now on in another version if one is given. What it has
    /// written stays. The new one has begun its work when this returns, as far as the backend
    /// can know ([`crate::supervisor`]).
    async fn restart_with(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), SignalError>;

    /// The next life of an agent that was stopped is in another pod: what the old one had mounted for itself alone is gone, and the new one
    /// reaches the API as new pods do, which is in this way from now on, if one is given.
    async fn replace_pod(
        &self,
        agent: AgentName,
        node: &NodeName,
        api: Option<ApiWay>,
    ) -> Result<(), SignalError>;
}

/// Processes can be killed where they run, whoever speaks to them here. Cases that need it ask for the capability `ended-commands`.
#[async_trait]
pub trait Killing: Send + Sync {
    /// Kills a process that [`Cluster::exec`] or [`Recording::exec_as`] started ([`Process::id`]), and what it started in its
    /// process group. One that has ended is no error.
    async fn kill(&self, process: u32) -> io::Result<()>;
}

/// The endpoint behind the Service `kubernetes` can be another one.
#[async_trait]
pub trait ApiEndpoints: Send + Sync {
    /// Ends the endpoint that is there, with its connections; then another one answers, and the Service's `EndpointSlice` names it.
    /// Who asks the API by its own address notices nothing.
    async fn move_on(&self) -> io::Result<()>;
}

/// What is done is told to it, as the history says it.
pub type Say<'a> = &'a (dyn Fn(String) + Send + Sync);

/// Nodes have a Kubernetes of their own, which can be another one.
#[async_trait]
pub trait NodeUpgrades: Send + Sync {
    /// Every version on the way of these nodes to that one, itself the last: kubeadm leaves no minor version out. An error is why there is no such
    /// way.
    async fn way(&self, nodes: &[NodeName], to: &str) -> Result<Vec<String>, String>;

    /// Upgrades and drains a node, and has pods run there again. It is Ready in that version when this returns; `false` where it was in
    /// that version before, or in a later one.
    async fn upgrade(&self, node: &NodeName, to: &str, say: Say<'_>) -> Result<bool, String>;
}

/// A node's kernel can lose what it holds, while pods go on.
#[async_trait]
pub trait Reboots: Send + Sync {
    /// Felix's eBPF programs of a node are gone with their maps, which no command for rules deletes. Agents are to be ended before that.
    async fn forget_programs(&self, node: &NodeName) -> Result<(), SignalError>;

    /// What a node writes before any agent begins is there again: its kubelet's chains, and what its CNI has of rules.
    async fn begin(&self, node: &NodeName) -> Result<(), SignalError>;
}

/// Entries of [`Cluster::agent_logs`] come later than they are written.
pub trait LateLogs: Send + Sync {
    /// Returns when what an agent wrote before that is in [`Cluster::agent_logs`]. A log that cannot be read says so there, and
    /// this goes on waiting.
    fn log_read(&self, agent: AgentName, node: &NodeName, until: Instant)
    -> BoxFuture<'static, ()>;
}

/// What can wait for a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiter {
    /// A process or thread, by its number.
    Task(u32),
    /// A virtual processor, by its number, which waits for one of its hypervisor's while a task runs on it that does not know. It is runnable
    /// where a task of the case wants it.
    VirtualProcessor(u32),
}

/// How long something has waited for a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waited {
    /// In its life so far, as Linux counts it: when a wait is over.
    pub for_now: Duration,
    /// For how long it has had one in its life so far; nothing of what is no task.
    pub ran: Duration,
    /// How often it got one in its life so far; 0 of what is no task.
    pub runs: u64,
    /// Whether it wants one at this moment. From Linux 6.12 on a task that is moved to another processor's queue as it goes to sleep is
    /// counted as waiting while it sleeps (seen with 6.18), again and again where it sleeps often: what is never seen to want one waits for none.
    pub runnable: bool,
}

/// What runs of the case, and what it runs on, tells how long it has waited for a processor.
pub trait Scheduling: Send + Sync {
    /// How long each has waited.
    fn waits(&self) -> BTreeMap<Waiter, Waited>;

    /// What one of them is called.
    fn name_of(&self, waiter: Waiter) -> String;
}

/// Runs a command on behalf of somebody, recorded as theirs where the backend records.
pub(crate) async fn exec_as(
    cluster: &dyn Cluster,
    who: &str,
    at: &Place,
    command: &Command,
) -> Result<Process, ExecError> {
    match cluster.recording() {
        Some(recording) => recording.exec_as(who, at, command).await,
        None => cluster.exec(at, command).await,
    }
}

/// What stops and starts agents, which a fault needs.
pub(crate) fn agent_control(cluster: &dyn Cluster) -> Result<&dyn AgentControl, SignalError> {
    let control = cluster.agent_control();
    control.ok_or_else(|| SignalError("the backend cannot".to_owned()))
}

pub(crate) fn holding(cluster: &dyn Cluster) -> Result<&dyn Holding, SignalError> {
    let holding = cluster.holding();
    holding.ok_or_else(|| SignalError("the backend cannot hold commands back".to_owned()))
}
