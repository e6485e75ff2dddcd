//! What was attached, recognised by what is in it.

use std::{collections::BTreeSet, fmt};

use chainbreak_model::names::AgentName;
use chainbreak_netfilter::{
    NetfilterError,
    dumps::{Dumps, Kind},
};

use crate::{
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
}

/// Something that was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attached {
    /// A listing.
    Dump(Kind),
    /// The log of an agent.
    Log(AgentName),
    /// Kubernetes objects.
    Objects,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dump(kind) => kind.fmt(f),
            Self::Log(agent) => write!(f, "{agent}'s log"),
            Self::Objects => f.pad("Kubernetes objects"),
        }
    }
}

impl Evidence {
    /// Takes in a text, and says what it found there; nothing where it knows nothing of it. Rules that break off, or that no tool prints,
    /// are an error, and nothing of the text's rules is taken in.
    pub fn add(&mut self, text: &str) -> Result<BTreeSet<Attached>, NetfilterError> {
        let (has_objects, text) = self.objects.add(text);
        let (read, rest) = logs::read(&text);
        let mut found: BTreeSet<Attached> =
            read.iter().map(|log| Attached::Log(log.agent)).collect();
        found.extend(has_objects.then_some(Attached::Objects));
        for log in read {
            match self.logs.iter_mut().find(|it| it.agent == log.agent) {
                Some(known) => known.entries.extend(log.entries),
                None => self.logs.push(log),
            }
        }
        found.extend(self.dumps.add(&rest)?.into_iter().map(Attached::Dump));
        Ok(found)
    }

    /// The log of an agent, where it is there.
    pub fn log(&self, agent: AgentName) -> Option<&Log> {
        self.logs.iter().find(|log| log.agent == agent)
    }
}
