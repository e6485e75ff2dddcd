//! A scenario that was read and found without mistake: each variant complete, ready to be planned.

use std::{path::PathBuf, sync::Arc};

use indexmap::IndexMap;

use crate::{
    case::{ClusterSpec, Expect, Promise, Sign, Step, Traffic},
    matrix::MatrixKey,
    names::{AgentName, PromiseName, ScenarioName, TrafficName, VariantName},
    version::Range,
};

/// One scenario file.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// `name:`.
    pub name: ScenarioName,
    /// `about:`.
    pub about: String,
    /// `incident:`.
    pub incident: Vec<String>,
    /// `labels:`.
    pub labels: Vec<String>,
    /// `signature:`.
    pub signature: Vec<Sign>,
    /// The file it was read from.
    pub file: PathBuf,
    /// `seed:`, where the scenario asks for one.
    pub seed: Option<u64>,
    /// `matrix:`; of each, every combination of values is a cell. Every key has a value.
    pub matrix: Vec<IndexMap<MatrixKey, Vec<String>>>,
    /// `variants:`, at least one.
    pub variants: IndexMap<VariantName, Variant>,
}

impl Scenario {
    /// The matrices, at least one: without any it is the empty one, which has one cell.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = IndexMap<MatrixKey, Vec<String>>> {
        let none = self.matrix.is_empty().then(IndexMap::new);
        self.matrix.iter().cloned().chain(none)
    }
}

/// A variant: the scenario with the variant's overrides, and what is expected of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// The line of the file that names it, from 1 on.
    pub line: usize,
    /// The scenario's and the variant's `needs:`.
    pub needs: Vec<String>,
    /// `only:`, the versions that it is about: of `kube-proxy` and of `calico`, where it has them.
    pub only: IndexMap<MatrixKey, Range>,
    /// The agents whose version it sets to another one than the scenario's: the version is what it is about.
    pub own_versions: Vec<AgentName>,
    /// What runs.
    pub run: Run,
    /// `expect:`.
    pub expect: Expect,
    /// `by:` of it.
    pub by: Option<String>,
}

/// What a variant runs; two variants with the same one would show the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What to raise.
    pub cluster: ClusterSpec,
    /// Kubernetes objects to apply, in order, namespaces added in front where they are missing.
    /// The cases of a scenario share them.
    pub manifests: Arc<Vec<serde_json::Value>>,
    /// Traffic, by name.
    pub traffic: IndexMap<TrafficName, Traffic>,
    /// What happens, one step after the other.
    pub timeline: Vec<Step>,
    /// What is judged.
    pub promises: IndexMap<PromiseName, Promise>,
}
