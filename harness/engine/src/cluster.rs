//! The one narrow seam: a cluster is a Kubernetes API plus exec into the network namespaces of its
//! nodes and pods. That is all a backend has to provide, and the only thing the engine knows. What it may lack is a
//! capability of its own: [`Recording`], [`AgentControl`], [`Holding`], [`Killing`], [`LateLogs`], [`NodeUpgrades`], [`Scheduling`], [`Debts`].

mod capability;
mod debt;
mod felix_program;

use std::{
    fmt, io,
    net::IpAddr,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_model::{
    case,
    names::{AgentName, NodeName},
};
use serde::{Deserialize, Serialize};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::logbook::AgentLog;

pub use capability::{
    AgentControl, ApiEndpoints, Delay, Holding, Killing, LateLogs, NodeUpgrades, Reboots,
    Recording, Say, Scheduling, Waited, Waiter,
};
pub(crate) use capability::{agent_control, exec_as, holding};
pub use debt::{Debt, Debts};
pub use felix_program::FelixProgram;

/// A raised cluster.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// The Kubernetes API.
    fn api(&self) -> kube::Client;

    /// Nodes and off-cluster hosts, each with the address by which it is meant; pods are looked up in the API.
    /// A host is there once for each family that the cluster has, the default one first.
    fn places(&self) -> Vec<(Place, IpAddr)>;

    /// Runs a command in that place's namespaces, with standard input, output and error piped.
    async fn exec(&self, at: &Place, command: &Command) -> Result<Process, ExecError>;

    /// An agent's log so far and from now on. It ends only when the agent will not live
    /// again, with that as the last item.
    fn agent_logs(&self, agent: AgentName, node: &NodeName) -> AgentLog;

    /// Evidence of what a node's agents are at: what they asked the API for, with what answers, and what
    /// they said last. Whole lines; empty where nothing can be known.
    fn account(&self, node: &NodeName) -> String;

    /// How long something may be on a node without being looked at: between two recorded writes where there is
    /// [`Self::recording`], between two looks elsewhere. Where it was longer, the node was not watched. In pods and on hosts
    /// looks alone tell, and it may be longer.
    fn sees_within(&self) -> Duration;

    /// The case's namespaces, where the cluster has others' objects too: readiness is about theirs alone. `None` where
    /// everything that the cluster has is the case's.
    fn namespaces(&self) -> Option<Vec<String>> {
        None
    }

    /// Objects of the case as they are to be here, in order.
    fn dressed(&self, objects: &[serde_json::Value]) -> Vec<serde_json::Value> {
        objects.to_vec()
    }

    /// `None` where what an agent writes is known from looks alone.
    fn recording(&self) -> Option<&dyn Recording> {
        None
    }

    /// `None` where nothing but the agents' owner can end them.
    fn agent_control(&self) -> Option<&dyn AgentControl> {
        None
    }

    /// `None` where nothing stands between agents and their commands.
    fn holding(&self) -> Option<&dyn Holding> {
        None
    }

    /// `None` where a process outlives the client that started it.
    fn killing(&self) -> Option<&dyn Killing> {
        None
    }

    /// `None` where nodes have no Kubernetes of their own.
    fn node_upgrades(&self) -> Option<&dyn NodeUpgrades> {
        None
    }

    /// `None` where no node can lose what its kernel holds without ending what runs on it.
    fn reboots(&self) -> Option<&dyn Reboots> {
        None
    }

    /// `None` where nobody can say where the API is.
    fn api_endpoints(&self) -> Option<&dyn ApiEndpoints> {
        None
    }

    /// `None` where entries of logs come as they are written.
    fn late_logs(&self) -> Option<&dyn LateLogs> {
        None
    }

    /// Runs at a node. `None` where Felix is a model, or has no program there.
    fn felix_program(&self) -> Option<FelixProgram> {
        None
    }

    /// `None` where it cannot be known how long the case's processes wait for a processor.
    fn scheduling(&self) -> Option<&dyn Scheduling> {
        None
    }

    /// Nodes that do not answer any more, each by all its names and with the reason, or the API. Asked where something went wrong.
    async fn silent_nodes(&self) -> Vec<String> {
        Vec::new()
    }

    /// `None` where what faults change goes with the cluster.
    fn debts(&self) -> Option<&dyn Debts> {
        None
    }

    /// Its case is over, and somebody is about to look at it.
    async fn keep(&self) {}

    /// Takes everything down. Every error, not the first.
    async fn destroy(&self) -> Result<(), Leftovers>;
}

/// A cluster's nodes.
pub(crate) fn nodes(cluster: &dyn Cluster) -> Vec<NodeName> {
    let node = |(place, _)| match place {
        Place::Node(name) => Some(name),
        Place::Pod { .. } | Place::Host(_) => None,
    };
    cluster.places().into_iter().filter_map(node).collect()
}

/// What is done to an agent's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// It ends, and what it runs with it. It is not started again by itself.
    Stop,
    /// It is started if it was stopped, and goes on if it was paused.
    Run,
    /// It does nothing, as with SIGSTOP. The commands that it has started go on.
    Pause,
}

/// Where a command runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A node's namespaces.
    Node(NodeName),
    /// A pod's network namespace.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An off-cluster host.
    Host(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node/{name}"),
            Self::Pod { namespace, name } => write!(f, "pod/{namespace}/{name}"),
            Self::Host(name) => write!(f, "host/{name}"),
        }
    }
}

impl From<&case::Origin> for Place {
    fn from(written: &case::Origin) -> Self {
        match written {
            case::Origin::Pod { namespace, name } => Self::Pod {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            case::Origin::Node(node) => Self::Node(node.clone()),
            case::Origin::Host(host) => Self::Host(host.clone()),
        }
    }
}

/// A command to run in a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Program and arguments.
    Argv(Vec<String>),
    /// The probe; the backend knows where its binary is.
    Probe,
}

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    /// Its standard input.
    pub stdin: Option<ChildStdin>,
    /// Its standard output.
    pub stdout: Option<ChildStdout>,
    /// Its standard error.
    pub stderr: Option<ChildStderr>,
    /// The child itself, killed on drop.
    pub child: tokio::process::Child,
}

impl From<tokio::process::Child> for Process {
    fn from(mut child: tokio::process::Child) -> Self {
        Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
        }
    }
}

impl Process {
    /// Starts a command of this machine.
    pub fn spawn(command: &mut tokio::process::Command) -> io::Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let command = command.stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().map(Self::from)
    }

    /// What [`Killing::kill`] knows it by; `None` once its end was waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

/// A command could not be started.
#[derive(Debug, thiserror::Error)]
#[error("could not run {command} in {place}: {source}")]
pub struct ExecError {
    /// Where.
    pub place: String,
    /// What.
    pub command: String,
    /// Why.
    pub source: io::Error,
}

/// An agent could not be stopped, started or paused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SignalError(pub String);

/// An agent is dead for good: how it ended, and below what it said last.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AgentDied(pub String);

/// What could not be taken down.
#[derive(Debug, thiserror::Error)]
#[error("left behind: {}", .0.join("; "))]
pub struct Leftovers(pub Vec<String>);
