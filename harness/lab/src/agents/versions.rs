//! Other versions of agents that run, models and real ones. What one has written stays as it is: only who looks after it from then on
//! is another.

use std::collections::BTreeMap;

use chainbreak_engine::log::EventLog;
use chainbreak_model::{
    case::ClusterSpec,
    names::{AgentName, NodeName},
};

use super::{lives::Lives, model, real::Real, say_model, settings::NodeContext};
use crate::{error::LabError, world::World};

/// What the models live by.
pub(super) type Models = BTreeMap<(AgentName, NodeName), Lives>;

/// Where real ones are, and what they live by.
pub(super) type NodeContexts = BTreeMap<(AgentName, NodeName), (Lives, NodeContext)>;

/// Real kube-proxies by the version that a timeline calls them.
pub(super) type Others = BTreeMap<String, Real>;

/// The agents of a case, and what it says of them.
#[derive(Debug, Clone)]
pub(crate) struct AgentVersions {
    pub(super) cluster: ClusterSpec,
    pub(super) seed: u64,
    pub(super) models: Models,
    /// Whether Felix is to have eBPF programs.
    pub(super) lacking: &'static str,
    pub(super) contexts: NodeContexts,
    pub(super) others: Others,
}

impl AgentVersions {
    /// The agent's next life on that node is that of another version. It is to be ended for that.
    pub(crate) fn change(
        &self,
        world: &World,
        log: &EventLog,
        (agent, node): (AgentName, &NodeName),
        version: &str,
    ) -> Result<(), LabError> {
        let absent = || LabError::Unable {
            what: format!("there is no {agent} {version} that could be on {node} from now on"),
        };
        if let Some((lives, context)) = self.contexts.get(&(agent, node.clone())) {
            let other = self.others.get(version).ok_or_else(absent)?;
            let start = other.start(&self.cluster, version, context)?;
            lives.replace(other.life(start)()?);
            other.say(log);
            return Ok(());
        }
        let models = self.models.get(&(agent, node.clone()));
        let lives = models.ok_or_else(absent)?;
        let node = world.node(node).ok_or_else(absent)?;
        let which = (agent, version);
        let life = model::life(&self.cluster, which, world, node, self.seed, log)?;
        lives.replace(life);
        say_model(agent, version, self.lacking, log);
        Ok(())
    }
}
