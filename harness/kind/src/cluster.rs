//! A raised cluster behind the engine's seam.

use std::{
    net::IpAddr,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use chainbreak_engine::{
    begun::Begun,
    cluster::{
        AgentDied, Cluster, Command, ExecError, Leftovers, Place, Process, Signal, SignalError,
    },
    logbook::Logbook,
};
use chainbreak_model::{
    case::AgentSource,
    names::{AgentName, NodeName},
};
use futures::stream::BoxStream;
use kube::Client;
use tokio::task::JoinSet;

use crate::{
    error::KindError, felix::Models, holding::Holding, leavings, nodes::Nodes, pods::Pods,
    program::PROGRAM, renew, signal, survey::CALICO_STAYS,
};

/// See the module.
pub(crate) struct Raised {
    pub(crate) client: Client,
    pub(crate) nodes: Nodes,
    pub(crate) pods: Pods,
    pub(crate) logbook: Logbook,
    pub(crate) models: Models,
    /// Who plays Felix.
    pub(crate) felix: Option<AgentSource>,
    /// The case's objects, for a cluster that is kept for the next case.
    pub(crate) manifests: Vec<serde_json::Value>,
    pub(crate) holding: Arc<Holding>,
    /// Logs and models: they end before the cluster does.
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

impl Raised {
    /// `docker exec` with what gives a command the place's network.
    async fn entering(&self, at: &Place) -> Result<Vec<String>, KindError> {
        let exec = ["docker", "exec", "--interactive"].map(str::to_owned);
        let network = match at {
            Place::Node(name) => {
                let node = self.nodes.named(name.as_str());
                let lost = || KindError::Unable(format!("there is no node {name}"));
                let container = node.ok_or_else(lost)?.container.clone();
                return Ok(exec.into_iter().chain([container]).collect());
            }
            Place::Pod { namespace, name } => {
                let pods = &self.pods;
                pods.find(&self.client, &self.nodes, namespace, name)
                    .await?
            }
            Place::Host(name) => {
                return Err(KindError::Unable(format!("there is no host {name}")));
            }
        };
        let mut argv: Vec<String> = exec.into_iter().chain([network.container]).collect();
        if let Some(pid) = network.pid {
            argv.extend(["nsenter", "--net", "--target"].map(str::to_owned));
            argv.extend([pid.to_string(), "--".to_owned()]);
        }
        Ok(argv)
    }

    async fn renew_agent(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), KindError> {
        let modelled = agent == AgentName::Felix && self.felix == Some(AgentSource::Model);
        if modelled {
            let begun = Begun::from_now_on(agent, self.logbook.read(agent, node));
            self.models.renew(node, version).await?;
            return begun
                .seen()
                .await
                .map_err(|error| KindError::Unable(error.to_string()));
        }
        let release = match (agent, version) {
            (_, None) => None,
            (AgentName::KubeProxy, Some(version)) => Some(renew::release(version)?),
            (AgentName::Felix, Some(_)) => {
                return Err(KindError::Unable(CALICO_STAYS.to_owned()));
            }
        };
        if release.is_some() {
            // It is no longer what the next case that asks for it would get.
            self.holding.keep_no_longer();
        }
        renew::renew(&self.client, agent, node, release).await
    }

    async fn spawn(&self, at: &Place, argv: Vec<String>) -> std::io::Result<Process> {
        let entering = self.entering(at).await.map_err(std::io::Error::other)?;
        let mut words = entering.into_iter().chain(argv);
        let program = words.next().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut child = tokio::process::Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Process {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
        })
    }
}

#[async_trait]
impl Cluster for Raised {
    fn api(&self) -> Client {
        self.client.clone()
    }

    fn places(&self) -> Vec<(Place, IpAddr)> {
        let nodes = self.nodes.0.iter();
        nodes
            .map(|node| (Place::Node(node.name.clone()), node.address))
            .collect()
    }

    async fn exec(&self, at: &Place, command: &Command) -> Result<Process, ExecError> {
        let argv = match command {
            Command::Argv(argv) => argv.clone(),
            Command::Probe => vec![PROGRAM.to_owned(), "probe".to_owned()],
        };
        let line = argv.join(" ");
        self.spawn(at, argv).await.map_err(|source| ExecError {
            place: at.to_string(),
            command: line,
            source,
        })
    }

    async fn signal(
        &self,
        agent: AgentName,
        node: &NodeName,
        signal: Signal,
    ) -> Result<(), SignalError> {
        let done = if agent == AgentName::Felix && self.felix == Some(AgentSource::Model) {
            self.models.signal(node, signal).await
        } else {
            signal::signal(&self.client, &self.nodes, agent, node, signal).await
        };
        done.map_err(|error| SignalError(error.to_string()))
    }

    async fn renew(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), SignalError> {
        let renewed = self.renew_agent(agent, node, version).await;
        renewed.map_err(|error| SignalError(error.to_string()))
    }

    fn agent_logs(
        &self,
        agent: AgentName,
        node: &NodeName,
    ) -> BoxStream<'static, Result<String, AgentDied>> {
        self.logbook.read(agent, node)
    }

    /// Of Felix's model only.
    fn records(&self) -> bool {
        false
    }

    fn account(&self, node: &NodeName) -> String {
        self.logbook.last_words(node)
    }

    async fn raze(&self) -> Result<(), Leftovers> {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        { tasks }.shutdown().await;
        let razed = if self.holding.is_kept() {
            leavings::remove(&self.client, &self.manifests).await
        } else {
            self.holding.delete().await
        };
        razed.map_err(|error| Leftovers(vec![error.to_string()]))
    }
}
