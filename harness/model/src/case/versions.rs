//! Which version of an agent is on which node, as upgrades go on.

use std::collections::BTreeMap;

use super::ClusterSpec;
use crate::names::{AgentName, NodeName};

/// The versions of all agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions(BTreeMap<(AgentName, NodeName), String>);

impl Versions {
    /// What a cluster begins with.
    pub fn of(cluster: &ClusterSpec) -> Self {
        let agents = AgentName::ALL.into_iter();
        let versions = agents.filter_map(|agent| Some((agent, cluster.version(agent)?)));
        let all = versions.flat_map(|(agent, version)| {
            let nodes = cluster.node_names();
            nodes.map(move |node| ((agent, node), version.to_owned()))
        });
        Self(all.collect())
    }

    /// An agent's version on a node; `None` where it does not run.
    pub fn get(&self, agent: AgentName, node: &NodeName) -> Option<&str> {
        self.0.get(&(agent, node.clone())).map(String::as_str)
    }

    /// From now on it is another one.
    pub fn set(&mut self, agent: AgentName, node: &NodeName, version: &str) {
        self.0.insert((agent, node.clone()), version.to_owned());
    }

    /// The upgrade in words, `1.32 → 1.33`, and done.
    pub(super) fn upgrade(
        &mut self,
        agent: AgentName,
        node: Option<&NodeName>,
        to: &str,
    ) -> String {
        let mut from: Vec<String> = Vec::new();
        for ((whose, at), version) in &mut self.0 {
            if *whose == agent && node.is_none_or(|node| node == at) {
                if !from.contains(version) {
                    from.push(version.clone());
                }
                to.clone_into(version);
            }
        }
        format!("{} → {to}", from.join(", "))
    }
}
