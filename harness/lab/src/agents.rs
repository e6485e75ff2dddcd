//! The agents of all nodes. Each has a thread of its own, started from its node's place: what it asks
//! and what it runs leaves from the node. On the thread lives a [`model`], or the [`process`] of a real
//! one, life after life.

mod elf;
pub(crate) mod handle;
pub(crate) mod identity;
mod model;
mod process;
mod program;
mod proxy_config;
mod real;
mod settings;
pub(crate) mod versions;

use std::{
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use chainbreak_engine::{
    log::EventLog,
    logbook::{Logbook, Writer},
};
use chainbreak_model::{
    case::{AgentSource, Case},
    event::What,
    names::{AgentName, NodeName},
};
use futures::future::LocalBoxFuture;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use self::{
    handle::{AgentControl, AgentHandle, AgentHandles, agent_handle},
    process::Start,
    real::Real,
    settings::NodeContext,
    versions::{AgentVersions, Models, NodeContexts, Others},
};
use crate::{
    error::LabError,
    shims::Shims,
    world::{Node, World},
};

/// What stands between two lives of an agent that exited, as with runsv and a first restart by the
/// kubelet.
const RESTART: Duration = Duration::from_secs(1);
/// A life that is no longer than this has done nothing.
const EARLY: Duration = Duration::from_secs(5);
/// So many lives that have done nothing, one after the other and from the beginning, are trouble. One or
/// two may be bad luck that a restart heals, as it would in a cluster. An agent that has once lived longer
/// is restarted forever, whatever becomes of it: that is the product's doing, which is to be judged.
const MAX_EARLY_EXITS: u32 = 3;

/// One life of an agent, from its start to the exit of its process. It pauses when it is told to; dropping
/// it ends it.
type Life = Box<dyn Fn(LogWriter, AgentControl) -> LocalBoxFuture<'static, Death> + Send>;

/// What an agent lives by, which another version of it replaces.
#[derive(Clone)]
struct Lives(Arc<Mutex<Life>>);

impl std::fmt::Debug for Lives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lives")
    }
}

impl Lives {
    fn new(life: Life) -> Self {
        Self(Arc::new(Mutex::new(life)))
    }

    /// The next life is this one.
    fn replace(&self, life: Life) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = life;
    }

    fn begin(&self, writer: LogWriter, control: AgentControl) -> LocalBoxFuture<'static, Death> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)(writer, control)
    }
}

/// Writes down what an agent says in one of its lives.
#[derive(Clone)]
struct LogWriter {
    write: Rc<dyn Fn(String)>,
    /// From 1.
    life: u32,
}

/// How a life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Death {
    /// `exit status 1`.
    reason: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As agents do in order to read their configuration again; also each end of a model.
    Planned,
    /// Of a process, for reasons of its own.
    Own,
    /// It could not even be started.
    NotStarted,
}

/// Running agents. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Agents {
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    logbook: Logbook,
    handles: AgentHandles,
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
            logbook: Logbook::default(),
            handles: AgentHandles::new(),
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
        let seed = case.seed;
        if let Some(spec) = &case.cluster.kube_proxy {
            let model = |node: &Node| model::kube_proxy(spec, world, node, seed, log);
            let real = |real: &Real, context: &NodeContext| real.kube_proxy(spec, context);
            let agent = (AgentName::KubeProxy, spec.version.as_str());
            agents
                .start_on_all(agent, &spec.source, world, model, real)
                .await?;
        }
        if let Some(spec) = &case.cluster.calico {
            let model = |node: &Node| model::felix(spec, world, node, seed, log);
            let agent = (AgentName::Felix, spec.version.as_str());
            agents
                .start_on_all(agent, &spec.source, world, model, Real::felix)
                .await?;
        }
        Ok(agents)
    }

    /// Starts one agent on every node: its model's lives, or the program's.
    async fn start_on_all(
        &mut self,
        (agent, version): (AgentName, &str),
        source: &AgentSource,
        world: &World,
        model: impl Fn(&Node) -> Result<Life, LabError>,
        start: impl Fn(&Real, &NodeContext) -> Start,
    ) -> Result<(), LabError> {
        match source {
            AgentSource::Model => {
                say_model(agent, version, &self.log);
                for node in world.nodes() {
                    let lives = Lives::new(model(node)?);
                    self.models
                        .insert((agent, node.name.clone()), lives.clone());
                    self.begin(agent, node, move || Ok(lives)).await?;
                }
            }
            AgentSource::Path(path) => {
                let real = Real::identify(agent, path).await?;
                real.say(&self.log);
                for node in world.nodes() {
                    let context = self.prepare(&real, world, node).await?;
                    let life = real.life(start(&real, &context));
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
    ) -> Result<NodeContext, LabError> {
        let (context, shims) = real.prepare(world, node, &self.log).await?;
        self.shims.push(shims);
        Ok(context)
    }

    /// The logs of all agents.
    pub(crate) fn logbook(&self) -> &Logbook {
        &self.logbook
    }

    /// The handles of all agents.
    pub(crate) fn handles(&self) -> &AgentHandles {
        &self.handles
    }

    /// What brings models to other versions.
    pub(crate) fn versions(&self, case: &Case) -> AgentVersions {
        AgentVersions {
            cluster: case.cluster.clone(),
            seed: case.seed,
            models: self.models.clone(),
            contexts: self.contexts.clone(),
            others: self.others.clone(),
        }
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
        self.handles.values().for_each(AgentHandle::kill);
    }

    /// Starts an agent's thread. There, `settle` makes what it lives by.
    async fn begin(
        &mut self,
        agent: AgentName,
        node: &Node,
        settle: impl FnOnce() -> Result<Lives, LabError> + Send + 'static,
    ) -> Result<(), LabError> {
        let name = node.name.clone();
        let write = self.logbook.writer(agent, &name);
        let (log, mut stop) = (self.log.clone(), self.stop.subscribe());
        let place = format!("{agent}@{name}");
        let (handle, control) = agent_handle();
        self.handles.insert((agent, name.clone()), handle);
        let started = node.place.run(move || {
            thread::Builder::new().name(place).spawn(move || {
                let lives = async {
                    match settle() {
                        Ok(lives) => live(agent, name, lives, (write, control), log).await,
                        Err(error) => write.end(error.to_string()),
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

/// A model never stands in silently.
fn say_model(agent: AgentName, version: &str, log: &EventLog) {
    log.append(What::Fact {
        name: agent.to_string(),
        value: format!("model {version} (no binary given)"),
    });
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.tell_to_end();
    }
}

/// One life after the other, until the first ones were too short. A life that was ended from outside counts
/// for nothing.
async fn live(
    agent: AgentName,
    node: NodeName,
    lives: Lives,
    (write, mut control): (Writer, AgentControl),
    log: EventLog,
) {
    let write = Rc::new(write);
    let mut early_exits = Some(0);
    for number in 1.. {
        control.may_live().await;
        let started = Instant::now();
        let to = Rc::clone(&write);
        let writer = LogWriter {
            write: Rc::new(move |entry| to.write(entry)),
            life: number,
        };
        let death = tokio::select! {
            death = lives.begin(writer, control.clone()) => death,
            () = control.stopped() => continue,
        };
        early_exits = early_exits.and_then(|so_far| count(so_far, death.kind, started.elapsed()));
        if early_exits.is_some_and(|count| count >= MAX_EARLY_EXITS) {
            write.end(obituary(&death));
            return;
        }
        log.append(What::Step {
            text: format!(
                "{agent} on {node} exited and is started again: {}",
                death.reason
            ),
        });
        sleep_until(Instant::now() + RESTART).await;
    }
}

/// How many early exits there are after another life; `None` once a life was long enough.
fn count(so_far: u32, kind: Kind, lived: Duration) -> Option<u32> {
    match kind {
        Kind::NotStarted => Some(MAX_EARLY_EXITS),
        _ if lived >= EARLY => None,
        Kind::Planned => Some(so_far),
        Kind::Own => Some(so_far + 1),
    }
}

fn obituary(death: &Death) -> String {
    let (reason, seconds) = (&death.reason, EARLY.as_secs());
    match death.kind {
        Kind::Own => {
            format!("{reason}, {MAX_EARLY_EXITS} times in a row within {seconds} s of its start")
        }
        Kind::Planned | Kind::NotStarted => reason.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_lives_of_a_process_can_be_too_short() {
        let moment = Duration::from_millis(20);
        assert_eq!(count(0, Kind::Own, moment), Some(1));
        assert_eq!(count(2, Kind::Own, moment), Some(MAX_EARLY_EXITS));
        assert_eq!(count(2, Kind::Own, EARLY), None);
        assert_eq!(count(2, Kind::Planned, moment), Some(2));
        assert_eq!(count(2, Kind::Planned, EARLY), None);
        assert_eq!(count(0, Kind::NotStarted, moment), Some(MAX_EARLY_EXITS));
    }
}
