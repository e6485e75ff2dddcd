//! What the cases of a run have in common, once in memory.

use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use indexmap::IndexMap;

use super::{Case, HostSpec, PoolSpec, Promise, Step, Traffic};
use crate::names::{PromiseName, TrafficName};

/// How many are remembered: a scenario's cells have few that differ, and stand side by side.
const REMEMBERED: usize = 16;

/// Gives each case of a run what is the same as in one of the cases before it, so that thousands of them have it in memory once.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Shared {
    texts: Newest<String>,
    incidents: Newest<Vec<String>>,
    files: Newest<PathBuf>,
    felix: Newest<serde_json::Map<String, serde_json::Value>>,
    hosts: Newest<IndexMap<String, HostSpec>>,
    pools: Newest<Vec<PoolSpec>>,
    manifests: Newest<Vec<serde_json::Value>>,
    traffic: Newest<IndexMap<TrafficName, Traffic>>,
    timelines: Newest<Vec<Step>>,
    promises: Newest<IndexMap<PromiseName, Promise>>,
}

impl Shared {
    /// The next case.
    pub fn take(&mut self, case: &mut Case) {
        self.texts.take(&mut case.about);
        self.incidents.take(&mut case.incident);
        self.files.take(&mut case.file);
        self.felix.take(&mut case.cluster.felix);
        self.hosts.take(&mut case.cluster.hosts);
        self.pools.take(&mut case.cluster.pools);
        self.manifests.take(&mut case.manifests);
        self.traffic.take(&mut case.traffic);
        self.timelines.take(&mut case.timeline);
        self.promises.take(&mut case.promises);
    }
}

/// The newest values, each once.
#[derive(Debug, Clone, PartialEq)]
struct Newest<T>(VecDeque<Arc<T>>);

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: PartialEq> Newest<T> {
    fn take(&mut self, own: &mut Arc<T>) {
        if let Some(same) = self.0.iter().find(|it| *it == own) {
            *own = Arc::clone(same);
            return;
        }
        self.0.truncate(REMEMBERED - 1);
        self.0.push_front(Arc::clone(own));
    }
}
