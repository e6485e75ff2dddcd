//! Other versions of agents that run, models and real ones. What one has written stays as it is: only who looks after it from then on
//! is another.

use std::collections::BTreeMap;

use chainbreak_engine::log::EventLog;
use chainbreak_model::{
    case::{CalicoSpec, ClusterSpec},
    names::{AgentName, NodeName},
};

use super::{
    lives::{Life, Lives},
    model,
    real::Real,
    say_model,
    settings::NodeContext,
};
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
            let spec = self.cluster.kube_proxy.as_ref().ok_or_else(absent)?;
            let other = self.others.get(version).ok_or_else(absent)?;
            let start = other.kube_proxy(&spec.at(version), context);
            lives.replace(other.life(start)()?);
            other.say(log);
            return Ok(());
        }
        let models = self.models.get(&(agent, node.clone()));
        let lives = models.ok_or_else(absent)?;
        let life = self.life(world, log, (agent, node), version)?;
        lives.replace(life.ok_or_else(absent)?);
        say_model(agent, version, log);
        Ok(())
    }

    fn life(
        &self,
        world: &World,
        log: &EventLog,
        (agent, node): (AgentName, &NodeName),
        version: &str,
    ) -> Result<Option<Life>, LabError> {
        let (Some(node), seed) = (world.node(node), self.seed) else {
            return Ok(None);
        };
        let life = match (agent, &self.cluster.kube_proxy, &self.cluster.calico) {
            (AgentName::KubeProxy, Some(spec), _) => {
                model::kube_proxy(&spec.at(version), world, node, seed, log)?
            }
            (AgentName::Felix, _, Some(spec)) => {
                let spec = CalicoSpec {
                    version: version.to_owned(),
                    ..spec.clone()
                };
                model::felix(&spec, world, node, seed, log)?
            }
            _ => return Ok(None),
        };
        Ok(Some(life))
    }
}
