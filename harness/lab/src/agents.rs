//! The agents of all nodes. Each has a thread of its own, started from its node's place: what it asks
//! and what it runs leaves from the node. On the thread lives a [`model`], or the [`process`] of a real
//! one, life after life ([`Supervisor`]).

mod elf;
pub(crate) mod identity;
mod lives;
mod model;
mod pausable;
mod process;
mod program;
mod proxy_config;
pub(crate) mod readiness;
mod real;
mod settings;
pub(crate) mod versions;

use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

use chainbreak_engine::{log::EventLog, logbook::Logbook, supervisor::Supervisor};
use chainbreak_model::{
    case::{AgentSource, ApiWay, Case, ClusterSpec, Programs},
    event::EventKind,
    names::AgentName,
};
use futures::future::join_all;
use tokio::{sync::watch, time::timeout};

use self::{
    lives::Lives,
    real::Real,
    settings::NodeContext,
    versions::{AgentVersions, Models, NodeContexts, Others},
};
use crate::{
    error::LabError,
    shims::Shims,
    world::{Node, World},
};

/// Longer than a real kube-proxy takes on a busy machine. One that does not begin keeps nobody from starting.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);

/// Running agents. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Agents {
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    supervisor: Supervisor,
    models: Models,
    /// Where real ones are that can be replaced by other releases.
    contexts: NodeContexts,
    /// Those releases.
    others: Others,
    log: EventLog,
    /// Of the real ones. They end last.
    shims: Vec<Shims>,
}

impl Agents {
    /// Starts what the case asks for on every node, and says which agent stands for which.
    pub(crate) async fn start(
        case: &Case,
        world: &World,
        log: &EventLog,
    ) -> Result<Self, LabError> {
        let mut agents = Self {
            stop: watch::Sender::new(false),
            threads: Vec::new(),
            supervisor: Supervisor::new(Logbook::default(), None),
            models: Models::new(),
            contexts: NodeContexts::new(),
            others: Others::new(),
            log: log.clone(),
            shims: Vec::new(),
        };
        for (version, path) in &case.cluster.releases {
            let real = Real::identify(AgentName::KubeProxy, path).await?;
            agents.others.insert(version.clone(), real);
        }
        for agent in case.cluster.agents() {
            if way(agent, &case.cluster) == ApiWay::Service {
                agents.wait_for_the_service(case, world).await;
            }
            agents.start_on_all(agent, case, world).await?;
        }
        Ok(agents)
    }

    /// Waits until kube-proxy leads to the API on every node. Who asks by the Service before loses the first SYN and tries again after
    /// 30 s (the time that client-go, too, gives a connection); no case is about that.
    async fn wait_for_the_service(&self, case: &Case, world: &World) {
        if case.cluster.kube_proxy.is_none() {
            return;
        }
        let nodes = world.nodes();
        let begun = nodes.map(|node| self.supervisor.has_begun(AgentName::KubeProxy, &node.name));
        // Whether it is well is asked later.
        drop(timeout(BEGUN_WITHIN, join_all(begun)).await);
    }

    /// Starts one agent on every node: its model's lives, or the program's.
    async fn start_on_all(
        &mut self,
        agent: AgentName,
        case: &Case,
        world: &World,
    ) -> Result<(), LabError> {
        let cluster = &case.cluster;
        let (Some(version), Some(source)) = (cluster.version(agent), cluster.source(agent)) else {
            return Err(absent(agent));
        };
        match source {
            AgentSource::Model => {
                say_model(agent, version, lacking(case), &self.log);
                for node in world.nodes() {
                    let which = (agent, version);
                    let life = model::life(cluster, which, world, node, case.seed, &self.log)?;
                    let lives = Lives::new(life);
                    self.models
                        .insert((agent, node.name.clone()), lives.clone());
                    self.begin(agent, node, move || Ok(lives)).await?;
                }
            }
            AgentSource::Path(path) => {
                let real = Real::identify(agent, path).await?;
                real.say(&self.log);
                for node in world.nodes() {
                    let way = way(agent, cluster);
                    let context = self.prepare(&real, world, node, way).await?;
                    let life = real.life(real.start(cluster, version, &context)?);
                    if real.has_root() {
                        let lives = move || life().map(Lives::new);
                        self.begin(agent, node, lives).await?;
                        continue;
                    }
                    let lives = Lives::new(life()?);
                    self.contexts
                        .insert((agent, node.name.clone()), (lives.clone(), context));
                    self.begin(agent, node, move || Ok(lives)).await?;
                }
            }
            AgentSource::Cluster | AgentSource::Build | AgentSource::Image(_) => {
                let what = format!("the lab brings no real {agent} along");
                return Err(LabError::Unable { what });
            }
        }
        Ok(())
    }

    /// Makes a node ready for a real agent.
    async fn prepare(
        &mut self,
        real: &Real,
        world: &World,
        node: &Node,
        way: ApiWay,
    ) -> Result<NodeContext, LabError> {
        let (context, shims) = real.prepare(world, node, way, &self.log).await?;
        self.shims.push(shims);
        Ok(context)
    }

    /// What stops and restarts them, and has their logs.
    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// What says what the next life of each is.
    pub(crate) fn versions(&self, case: &Case) -> AgentVersions {
        let real = (self.contexts.clone(), self.others.clone());
        AgentVersions::new(case, lacking(case), self.models.clone(), real)
    }

    /// Ends all agents and their commands and waits for it.
    pub(crate) fn stop(&mut self) -> Vec<String> {
        self.tell_to_end();
        let ended = self.threads.drain(..).map(JoinHandle::join);
        let left = ended
            .filter_map(Result::err)
            .map(|_panic| "an agent's thread panicked".to_owned())
            .collect();
        self.shims.clear();
        left
    }

    /// Also those that stand still.
    fn tell_to_end(&self) {
        self.stop.send_replace(true);
        self.supervisor.kill();
    }

    /// Starts an agent's thread. There, `settle` makes what it lives by.
    async fn begin(
        &mut self,
        agent: AgentName,
        node: &Node,
        settle: impl FnOnce() -> Result<Lives, LabError> + Send + 'static,
    ) -> Result<(), LabError> {
        let supervision = self.supervisor.add(agent, &node.name);
        let (log, mut stop) = (self.log.clone(), self.stop.subscribe());
        let place = format!("{agent}@{}", node.name);
        let started = node.place.run(move || {
            thread::Builder::new().name(place).spawn(move || {
                let lives = async {
                    match settle() {
                        Ok(lives) => supervision.live(lives, log).await,
                        Err(error) => supervision.give_up(error.to_string()),
                    }
                };
                let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
                run(async {
                    tokio::select! { () = lives => {}, () = stopped => {} }
                });
            })
        });
        let thread = started.await.map_err(|source| LabError::Place {
            place: node.place.name().to_owned(),
            what: "start an agent's thread",
            source,
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

/// How an agent reaches the API: kube-proxy by its own address always, for nothing translates before it does.
fn way(agent: AgentName, cluster: &ClusterSpec) -> ApiWay {
    match (agent, &cluster.calico) {
        (AgentName::Felix, Some(calico)) => calico.api,
        _ => ApiWay::Direct,
    }
}

/// Nobody starts what the cluster does not have.
fn absent(agent: AgentName) -> LabError {
    LabError::Unable {
        what: format!("the cluster has no {agent}"),
    }
}

/// What Felix's model has in place of eBPF programs, where they are wanted.
fn lacking(case: &Case) -> &'static str {
    match (case.wants_programs(), case.programs()) {
        (false, _) => "",
        (true, Some(Programs::Work)) => {
            ", with a table of nftables in place of eBPF programs: as on a node where they work"
        }
        (true, _) => ", without eBPF programs: as on a node where they do not work",
    }
}

/// A model never stands in silently, nor for eBPF programs that are wanted and that it does not have.
fn say_model(agent: AgentName, version: &str, lacking: &str, log: &EventLog) {
    let without = match agent {
        AgentName::Felix => lacking,
        AgentName::KubeProxy => "",
    };
    log.append(EventKind::Fact {
        name: agent.to_string(),
        value: format!("model {version} (no binary given){without}"),
    });
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.tell_to_end();
    }
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    // Without a runtime there is no agent, and the wait for its rules says so.
    match runtime {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => tracing::error!(%error, "an agent has no runtime"),
    }
}
