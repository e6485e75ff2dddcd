//! A raised cluster behind the engine's seam.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use chainbreak_engine::{
    cluster::{
        AgentControl, Cluster, Command, Debts, ExecError, FelixProgram, Holding, Killing, LateLogs,
        Leftovers, NodeUpgrades, Place, Process, Signal, SignalError,
    },
    logbook::{AgentLog, Logbook},
};
use chainbreak_model::{
    case::{AgentSource, ApiWay, Case, IpFamily},
    names::{AgentName, NodeName},
};
use futures::future::{BoxFuture, join_all};
use indexmap::IndexMap;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    error::KindError,
    shared::{
        felix::Models,
        holding::Holds,
        killing::Commands,
        logs,
        nodes::Nodes,
        pods::{Network, Pods},
        program, restart, signal,
        survey::CALICO_STAYS,
        telling,
    },
    tool::Tool,
};

/// A look goes through Docker or the API, and may begin with a process in a container that these start.
const SEES_WITHIN: Duration = Duration::from_secs(1);
/// What a node may take to answer that is asked whether it is there.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Raised {
    pub(crate) client: Client,
    pub(crate) nodes: Nodes,
    pub(crate) pods: Pods,
    /// Of which pods have addresses.
    pub(crate) ip_families: Vec<IpFamily>,
    /// Outside of the cluster, by name.
    pub(crate) hosts: IndexMap<String, Host>,
    pub(crate) logbook: Logbook,
    pub(crate) models: Models,
    /// Where the nodes are ours.
    pub(crate) ours: Option<Ours>,
    /// Who plays Felix.
    pub(crate) felix: Option<AgentSource>,
    /// The case's own ones, where there are others.
    pub(crate) namespaces: Option<Vec<String>>,
    pub(crate) end: Arc<dyn End>,
    /// Logs and models: they end before the cluster does.
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

/// What is done with commands on nodes that are ours.
pub(crate) struct Ours {
    /// Those that can be ended.
    commands: Commands,
    /// Of agents' commands.
    holds: Holds,
}

impl Ours {
    /// Nothing is run or held yet.
    pub(crate) fn of(case: &Case, client: &Client, nodes: &Nodes) -> Self {
        let felix = case.cluster.source(AgentName::Felix).cloned();
        Self {
            commands: Commands::default(),
            holds: Holds::new(client, nodes, felix),
        }
    }
}

/// A host outside of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// By which it is meant, one of each family.
    pub(crate) addresses: Vec<IpAddr>,
    /// What puts a command there.
    pub(crate) entry: Vec<String>,
    /// Where this program is there.
    pub(crate) program: String,
}

/// How a place is entered.
struct Entering {
    /// What puts a command on its node, or host.
    machine: Vec<String>,
    /// What gives it the network of a pod there.
    network: Vec<String>,
    /// Where this program is there.
    program: String,
}

/// What becomes of a cluster and its hosts when a case is over, which the backend knows that has it.
#[async_trait]
pub(crate) trait End: Send + Sync {
    /// An agent is to be of another version. An error is why it cannot be.
    fn before_upgrade(&self) -> Result<(), KindError>;

    /// Where what is to be undone on nodes is noted, if they outlive the run.
    fn debts(&self) -> Option<&dyn Debts> {
        None
    }

    /// Where the nodes are ours to upgrade.
    fn node_upgrades(&self) -> Option<&dyn NodeUpgrades> {
        None
    }

    /// The case is over. Every error.
    async fn after_case(&self, client: &Client) -> Vec<KindError>;
}

impl Raised {
    /// Begins to write down what the cluster's own agents log from then on.
    pub(crate) fn following(&self, case: &Case, since: Timestamp) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let own = |agent: &AgentName| case.cluster.source(*agent) == Some(&AgentSource::Cluster);
        for agent in AgentName::ALL.into_iter().filter(own) {
            for node in &self.nodes.0 {
                let writer = self.logbook.writer(agent, &node.name);
                let (client, node) = (self.client.clone(), node.registered.clone());
                tasks.spawn(logs::follow(client, agent, node, since, writer));
            }
        }
        tasks
    }

    /// How a place is entered.
    async fn entering(&self, at: &Place) -> Result<Entering, KindError> {
        let network = match at {
            Place::Node(name) => {
                let name = name.as_str();
                let nodes = &self.nodes;
                let node = nodes.get(name);
                let node = node.or_else(|lost| nodes.registered_as(name).ok_or(lost))?;
                let node = node.clone();
                Network { node, pid: None }
            }
            Place::Pod { namespace, name } => {
                let pods = &self.pods;
                pods.find(&self.client, &self.nodes, namespace, name)
                    .await?
            }
            Place::Host(name) => {
                let lost = || KindError::Unable(format!("there is no host {name}"));
                let host = self.hosts.get(name).ok_or_else(lost)?;
                return Ok(Entering {
                    machine: host.entry.clone(),
                    network: Vec::new(),
                    program: host.program.clone(),
                });
            }
        };
        let of_pod =
            |pid: u32| ["nsenter", "--net", "--target", &pid.to_string(), "--"].map(str::to_owned);
        Ok(Entering {
            machine: network.node.entry,
            network: network.pid.map(of_pod).into_iter().flatten().collect(),
            program: network.node.program,
        })
    }

    /// Whether a process of ours plays it, and no pod.
    fn is_modelled(&self, agent: AgentName) -> bool {
        agent == AgentName::Felix && self.felix == Some(AgentSource::Model)
    }

    async fn restart_pod(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), KindError> {
        let release = match (agent, version) {
            (_, None) => None,
            (AgentName::KubeProxy, Some(version)) => Some(restart::release(version)?),
            (AgentName::Felix, Some(_)) => {
                return Err(KindError::Unable(CALICO_STAYS.to_owned()));
            }
        };
        if release.is_some() {
            self.end.before_upgrade()?;
        }
        let node = self.nodes.get(node.as_str())?;
        let families = &self.ip_families;
        restart::restart_with(&self.client, agent, node, release, families).await
    }

    async fn spawn(&self, at: &Place, command: &Command) -> std::io::Result<Process> {
        let entering = self.entering(at).await.map_err(std::io::Error::other)?;
        let argv = program::words(&entering.program, command);
        let commands = self.ours.as_ref().map(|it| &it.commands);
        let named = commands.map(|commands| (commands, Commands::named(&entering.machine)));
        let name = named.iter().flat_map(|(_, named)| named.words());
        let entry = entering.machine.into_iter().chain(entering.network);
        let mut words = entry.chain(name).chain(argv);
        let program = words.next().ok_or(std::io::ErrorKind::InvalidInput)?;
        let process = Process::spawn(tokio::process::Command::new(program).args(words))?;
        if let Some((commands, named)) = named {
            commands.started(process.id(), named);
        }
        Ok(process)
    }
}

#[async_trait]
impl Cluster for Raised {
    fn api(&self) -> Client {
        self.client.clone()
    }

    fn places(&self) -> Vec<(Place, IpAddr)> {
        let nodes = self.nodes.0.iter();
        let nodes = nodes.map(|node| (Place::Node(node.name.clone()), node.address));
        let hosts = self.hosts.iter().flat_map(|(name, host)| {
            let place = Place::Host(name.clone());
            host.addresses.iter().map(move |it| (place.clone(), *it))
        });
        nodes.chain(hosts).collect()
    }

    async fn exec(&self, at: &Place, command: &Command) -> Result<Process, ExecError> {
        self.spawn(at, command).await.map_err(|source| ExecError {
            place: at.to_string(),
            command: match command {
                Command::Argv(argv) => argv.join(" "),
                Command::Probe => "the probe".to_owned(),
            },
            source,
        })
    }

    fn sees_within(&self) -> Duration {
        SEES_WITHIN
    }

    fn dressed(&self, objects: &[Value]) -> Vec<Value> {
        telling::dress(objects, &self.ip_families)
    }

    fn agent_logs(&self, agent: AgentName, node: &NodeName) -> AgentLog {
        self.logbook.read(agent, node)
    }

    fn namespaces(&self) -> Option<Vec<String>> {
        self.namespaces.clone()
    }

    fn account(&self, node: &NodeName) -> String {
        self.logbook.last_words(node)
    }

    fn agent_control(&self) -> Option<&dyn AgentControl> {
        Some(self)
    }

    fn holding(&self) -> Option<&dyn Holding> {
        self.ours.as_ref().map(|it| &it.holds as &dyn Holding)
    }

    fn killing(&self) -> Option<&dyn Killing> {
        self.ours.as_ref().map(|it| &it.commands as &dyn Killing)
    }

    fn late_logs(&self) -> Option<&dyn LateLogs> {
        Some(self)
    }

    fn debts(&self) -> Option<&dyn Debts> {
        self.end.debts()
    }

    fn node_upgrades(&self) -> Option<&dyn NodeUpgrades> {
        self.end.node_upgrades()
    }

    fn felix_program(&self) -> Option<FelixProgram> {
        self.felix.as_ref().and_then(FelixProgram::of)
    }

    async fn silent_nodes(&self) -> Vec<String> {
        // Through it nodes of somebody's cluster are asked.
        let answer = timeout(ANSWERS_WITHIN, self.client.apiserver_version()).await;
        match answer {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return vec![format!("the API: {error}")],
            Err(_elapsed) => return vec![format!("the API: not in {ANSWERS_WITHIN:?}")],
        }
        let asked = self.nodes.0.iter().map(async |node| {
            // By a process that begins there: a shell that stands may be all that is left.
            let answer = Tool::new(ANSWERS_WITHIN, node.argv(["true"]))
                .output()
                .await;
            let why = answer.err()?.to_string();
            Some(format!(
                "{}, {} in Kubernetes: {why}",
                node.name, node.registered
            ))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn destroy(&self) -> Result<(), Leftovers> {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        { tasks }.shutdown().await;
        let errors = self.end.after_case(&self.client).await;
        if errors.is_empty() {
            return Ok(());
        }
        Err(Leftovers(errors.iter().map(ToString::to_string).collect()))
    }
}

#[async_trait]
impl AgentControl for Raised {
    async fn signal(
        &self,
        agent: AgentName,
        node: &NodeName,
        signal: Signal,
    ) -> Result<(), SignalError> {
        if self.is_modelled(agent) {
            return self.models.signal(node, signal).await;
        }
        let done = signal::signal(&self.client, &self.nodes, agent, node, signal).await;
        done.map_err(|error| SignalError(error.to_string()))
    }

    async fn restart_with(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), SignalError> {
        if self.is_modelled(agent) {
            return self.models.restart_with(node, version).await;
        }
        let restarted = self.restart_pod(agent, node, version).await;
        restarted.map_err(|error| SignalError(error.to_string()))
    }

    /// A stopped agent's pod is deleted already ([`signal`]), and a model has mounted nothing.
    async fn replace_pod(
        &self,
        _: AgentName,
        _: &NodeName,
        _: Option<ApiWay>,
    ) -> Result<(), SignalError> {
        Ok(())
    }
}

impl LateLogs for Raised {
    fn log_read(
        &self,
        agent: AgentName,
        node: &NodeName,
        until: Instant,
    ) -> BoxFuture<'static, ()> {
        self.logbook.read_past(agent, node, until)
    }
}
