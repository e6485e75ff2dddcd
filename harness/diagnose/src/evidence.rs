//! What was attached, recognised by what is in it.

use chainbreak_model::names::AgentName;
use chainbreak_netfilter::{NetfilterError, dumps::Dumps};

use crate::{
    hints::Hints,
    logs::{self, Log},
    objects::Objects,
};

/// What is known of one node and its cluster.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Rules, connections, routes, settings.
    pub dumps: Dumps,
    /// What agents logged.
    pub logs: Vec<Log>,
    /// What the API holds.
    pub objects: Objects,
    /// Whether all of it is of one moment, as what is rebuilt of a recorded run.
    pub is_of_one_moment: bool,
    /// What else the texts say.
    pub(crate) hints: Hints,
}

impl Evidence {
    /// Rules and what else was dumped, and nothing beside.
    pub fn of(dumps: Dumps) -> Self {
        Self {
            dumps,
            ..Self::default()
        }
    }

    /// Takes in a text: whether it knows anything of it. Rules that break off, or that no tool prints, are an error, and nothing of the
    /// text's rules is taken in.
    pub fn add(&mut self, text: &str) -> Result<bool, NetfilterError> {
        let (has_objects, text) = self.objects.add(text);
        let (logs, rest) = logs::read(&text);
        let has_logs = !logs.is_empty();
        for log in logs {
            match self.logs.iter_mut().find(|it| it.agent == log.agent) {
                Some(known) => known.entries.extend(log.entries),
                None => self.logs.push(log),
            }
        }
        let has_hints = self.hints.add(&rest);
        let has_dumps = !self.dumps.add(&rest)?.is_empty();
        Ok(has_objects || has_logs || has_hints || has_dumps)
    }

    /// Takes in Kubernetes objects of a text, and nothing else of it: whether it has any.
    pub fn add_objects(&mut self, text: &str) -> bool {
        self.objects.add(text).0
    }

    /// The log of an agent, where it is there.
    pub fn log(&self, agent: AgentName) -> Option<&Log> {
        self.logs.iter().find(|log| log.agent == agent)
    }
}
