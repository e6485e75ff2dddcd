//! What the next life of an agent is, a model's or a real one's: its version, its pod, its way to the API. What the last one has written stays as it
//! is, but for what it had pinned in a file system that ends with its pod: only who looks after it from then on is another.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chainbreak_agents::{felix::NOTHING_ATTACHED, step::Command};
use chainbreak_engine::log::EventLog;
use chainbreak_model::{
    case::{ApiWay, Case, ClusterSpec, END_OF_FELIXS_POD, REBOOT, Versions},
    names::{AgentName, NodeName},
};

use super::{
    lives::Lives,
    model,
    real::{Real, tell_way},
    say_model,
    settings::NodeContext,
};
use crate::{
    error::LabError,
    recorder::Recorder,
    worker::delegation,
    world::{Node, World},
};

/// What the models live by.
pub(super) type Models = BTreeMap<(AgentName, NodeName), Lives>;

/// Where real ones are, and what they live by.
pub(super) type NodeContexts = BTreeMap<(AgentName, NodeName), (Lives, NodeContext)>;

/// Real kube-proxies by the version that a timeline calls them.
pub(super) type Others = BTreeMap<String, Real>;

/// Settings by which Felix says elsewhere, or nowhere, whether it is ready.
const HEALTH: [&str; 3] = ["healthEnabled", "healthHost", "healthPort"];

/// What agents are from their next life on.
#[derive(Debug)]
struct Wanted {
    cluster: ClusterSpec,
    versions: Versions,
}

/// The agents of a case, and what it says of them.
#[derive(Debug)]
pub(crate) struct AgentVersions {
    wanted: Mutex<Wanted>,
    seed: u64,
    models: Models,
    /// Whether Felix is to have eBPF programs.
    lacking: &'static str,
    contexts: NodeContexts,
    others: Others,
}

impl AgentVersions {
    pub(super) fn new(
        case: &Case,
        lacking: &'static str,
        models: Models,
        (contexts, others): (NodeContexts, Others),
    ) -> Self {
        let wanted = Wanted {
            cluster: case.cluster.clone(),
            versions: Versions::of(&case.cluster),
        };
        Self {
            wanted: Mutex::new(wanted),
            seed: case.seed,
            models,
            lacking,
            contexts,
            others,
        }
    }

    /// The agent's next life on that node is that of another version. It is to be ended for that.
    pub(crate) fn change(
        &self,
        world: &World,
        log: &EventLog,
        (agent, node): (AgentName, &NodeName),
        version: &str,
    ) -> Result<(), LabError> {
        let mut wanted = self.wanted();
        if let Some((lives, context)) = self.contexts.get(&(agent, node.clone())) {
            let other = self.others.get(version);
            let other = other.ok_or_else(|| unknown(agent, version, node))?;
            let start = other.start(&wanted.cluster, version, context)?;
            lives.replace(other.life(start)()?);
            other.say(log);
            return Ok(());
        }
        wanted.versions.set(agent, node, version);
        self.remodel(&wanted, world, log, (agent, node))?;
        say_model(agent, version, self.lacking, log);
        Ok(())
    }

    /// Whether that is a Felix, and no model of one, which says at its usual port whether it is ready.
    pub(crate) fn tells_readiness(&self, agent: AgentName, node: &NodeName) -> bool {
        let wanted = self.wanted();
        let is_real = !self.models.contains_key(&(agent, node.clone()));
        let environment = wanted.cluster.calico.iter().flat_map(|it| it.env.keys());
        let environment = environment.filter_map(|name| name.strip_prefix("FELIX_"));
        let mut set = wanted
            .cluster
            .felix
            .keys()
            .map(String::as_str)
            .chain(environment);
        let moves = set.any(|it| HEALTH.iter().any(|name| it.eq_ignore_ascii_case(name)));
        agent == AgentName::Felix && is_real && !moves
    }

    /// What the agent's pod on that node has pinned in a file system of its own is gone. The agent is to be ended for that.
    pub(crate) async fn end_pod(
        &self,
        world: &World,
        log: &EventLog,
        (agent, node): (AgentName, &NodeName),
    ) -> Result<(), LabError> {
        let own = agent == AgentName::Felix && self.wanted().cluster.has_own_bpffs();
        match world.node(node) {
            Some(at) if own => self.unpin(at, log).await,
            _ => Ok(()),
        }
    }

    /// The agent's next life on that node is in another pod ([`Self::end_pod`]), and the API is reached in the way that is wanted, which is
    /// this one from now on if one is given.
    pub(crate) async fn replace_pod(
        &self,
        world: &World,
        log: &EventLog,
        (agent, node): (AgentName, &NodeName),
        api: Option<ApiWay>,
    ) -> Result<(), LabError> {
        self.end_pod(world, log, (agent, node)).await?;
        let (Some(at), AgentName::Felix) = (world.node(node), agent) else {
            return Ok(());
        };
        let Some(way) = self.way(api) else {
            return Ok(());
        };
        if self.models.contains_key(&(agent, node.clone())) {
            return self.remodel(&self.wanted(), world, log, (agent, node));
        }
        tell_way(agent, world, at, way).await.map(drop)
    }

    /// How Felix is to reach the API, which is this way from now on if one is given.
    fn way(&self, api: Option<ApiWay>) -> Option<ApiWay> {
        let mut wanted = self.wanted();
        let calico = wanted.cluster.calico.as_mut()?;
        calico.api = api.unwrap_or(calico.api);
        Some(calico.api)
    }

    /// What Felix has pinned on that node is pinned no more, and the history says so.
    async fn unpin(&self, at: &Node, log: &EventLog) -> Result<(), LabError> {
        let lost = match self.models.get(&(AgentName::Felix, at.name.clone())) {
            Some(lives) => lives.lost_with_pod(),
            None => Some(unpin_all()),
        };
        let Some(lost) = lost else {
            return Ok(());
        };
        let recorder = Recorder::new(END_OF_FELIXS_POD, at.name.clone(), log.clone());
        take_away(&recorder, at, lost).await
    }

    /// The programs of a real Felix on that node are gone with their maps; a model's are a table, which goes with the others.
    pub(crate) async fn lose_programs(
        &self,
        world: &World,
        log: &EventLog,
        node: &NodeName,
    ) -> Result<(), LabError> {
        let is_there = self.wanted().versions.get(AgentName::Felix, node).is_some();
        let is_real = is_there && !self.models.contains_key(&(AgentName::Felix, node.clone()));
        let Some(at) = world.node(node).filter(|_| is_real) else {
            return Ok(());
        };
        let recorder = Recorder::new(REBOOT, at.name.clone(), log.clone());
        take_away(&recorder, at, unpin_all()).await?;
        take_away(&recorder, at, detach_all()).await
    }

    /// The model's next life is as it is wanted.
    fn remodel(
        &self,
        wanted: &Wanted,
        world: &World,
        log: &EventLog,
        (agent, node): (AgentName, &NodeName),
    ) -> Result<(), LabError> {
        let version = wanted.versions.get(agent, node).unwrap_or("?");
        let absent = || unknown(agent, version, node);
        let lives = self.models.get(&(agent, node.clone()));
        let lives = lives.ok_or_else(absent)?;
        let node = world.node(node).ok_or_else(absent)?;
        let which = (agent, version);
        let life = model::life(&wanted.cluster, which, world, node, self.seed, log)?;
        lives.replace(life);
        Ok(())
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes away what Felix has on a node, where it has that.
async fn take_away(recorder: &Recorder, at: &Node, lost: Command) -> Result<(), LabError> {
    let output = recorder.run_in(&at.place, lost).await;
    if output.exit == 0 || output.stderr.contains(NOTHING_ATTACHED) {
        return Ok(());
    }
    let what = format!("take away what felix has: {}", output.stderr.trim());
    Err(LabError::Unable { what })
}

/// Takes the programs of a real Felix from interfaces where they are not pinned (until v3.30).
fn detach_all() -> Command {
    let each = "all=$(tc qdisc show) || exit; echo \"$all\" | while read -r _ kind _ _ name _; do \
        [ \"$kind\" != clsact ] || tc qdisc del dev \"$name\" clsact || exit; done";
    Command {
        argv: ["sh", "-c", each].map(str::to_owned).to_vec(),
        input: String::new(),
    }
}

/// Ends all pins of a real Felix, as when their file system ends. What the kernel itself has there, `maps.debug` and `progs.debug`, is no pin.
fn unpin_all() -> Command {
    let what = ["-mindepth", "1", "!", "-name", "*.debug", "-delete"];
    let argv = ["find", delegation::BPF].into_iter().chain(what);
    Command {
        argv: argv.map(str::to_owned).collect(),
        input: String::new(),
    }
}

fn unknown(agent: AgentName, version: &str, node: &NodeName) -> LabError {
    LabError::Unable {
        what: format!("there is no {agent} {version} that could be on {node} from now on"),
    }
}
