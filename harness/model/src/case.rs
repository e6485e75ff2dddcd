//! A case: one scenario with one variant's overrides and one matrix cell applied, ready to run.
//! Everything a backend and the engine need is here, checked and resolved; spans and spelling
//! mistakes stay behind in the reader.

mod address;
mod cluster;
mod culprits;
mod family;
mod fault;
mod find;
mod id;
mod named;
mod network;
mod promise;
mod query;
mod shared;
mod sign;
mod step;
mod symptom;
mod traffic;
mod versions;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub use address::{Network, Ports};
pub use cluster::{
    AgentSource, ApiWay, Bpffs, CalicoSpec, ClusterSpec, IptablesVariant, KubeProxySpec, PodOwner,
    Programs, ProxyMode,
};
pub(crate) use culprits::culprits;
pub use culprits::{ADMIN, AWS_NODE, END_OF_FELIXS_POD, REBOOT};
pub use family::IpFamily;
pub use fault::{AgentFault, Craft, Dataplane, Entries, Family, Fault, RuleBackend, Run, TableRef};
pub use find::Finder;
pub use id::CaseId;
pub use network::{CniSpec, HostSpec, PoolSpec, RandomizeSnat, Route, Via, Vxlan};
pub(crate) use promise::OfFamily;
pub use promise::{
    Claim, Counter, ElementQuery, Limits, Presence, Promise, RuleChain, RuleQuery, SourceAddress,
    Window,
};
pub use query::Query;
pub use shared::Shared;
pub use sign::{Sign, Which};
pub use step::{ObjectRef, Step};
pub use symptom::Symptom;
pub use traffic::{Destination, Origin, Traffic};
pub use versions::Versions;

use crate::names::{AgentName, PromiseName, ScenarioName, TrafficName, VariantName};

/// The unit that runs, and one JUnit test suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    /// The scenario's name.
    pub scenario: ScenarioName,
    /// The variant's name.
    pub variant: VariantName,
    /// The matrix cell, e.g. `iptables` → `nft`; empty without a matrix.
    pub cell: IndexMap<String, String>,
    /// What the scenario says of itself.
    pub about: Arc<String>,
    /// References such as `projectcalico/calico#10538`.
    pub incident: Arc<Vec<String>>,
    /// The scenario file.
    pub file: Arc<PathBuf>,
    /// The line in it that names the variant, from 1 on; older runs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What to raise.
    pub cluster: ClusterSpec,
    /// Kubernetes objects to apply, in order, namespaces added in front where they are missing.
    /// As all that is an `Arc` here: the cases of a run share it ([`Shared`]).
    pub manifests: Arc<Vec<serde_json::Value>>,
    /// Traffic, by name.
    pub traffic: Arc<IndexMap<TrafficName, Traffic>>,
    /// What happens, one step after the other.
    pub timeline: Arc<Vec<Step>>,
    /// What is judged.
    pub promises: Arc<IndexMap<PromiseName, Promise>>,
    /// What is expected of the promises.
    pub expect: Expect,
    /// Who or what each promise that is expected to break breaks because of, where the scenario says it: an agent, a third
    /// party, or the word of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Which repetition it is, from 1 on, where it is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetition: Option<u32>,
}

/// Of the [id](Case::id) of a repetition the case that is repeated; none of another.
pub fn repeated_case(id: &str) -> Option<&str> {
    id.rsplit_once('#').map(|(case, _)| case)
}

impl Case {
    /// `scenario/variant` or `scenario/variant[iptables=nft]`, where it is repeated with `#2` behind it: unique in a run, and what a
    /// person filters by.
    pub fn id(&self) -> String {
        let cell: Vec<String> = self.cell.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let cell = match cell.as_slice() {
            [] => String::new(),
            _ => format!("[{}]", cell.join(",")),
        };
        let repetition = self.repetition.map(|it| format!("#{it}"));
        let repetition = repetition.unwrap_or_default();
        format!("{}/{}{cell}{repetition}", self.scenario, self.variant)
    }

    /// One of its repetitions, counted from 1, each with a seed of its own: the first has that of the case.
    #[must_use]
    pub fn repetition(&self, nth: u32) -> Self {
        Self {
            repetition: Some(nth),
            seed: self.seed.wrapping_add(u64::from(nth) - 1),
            ..self.clone()
        }
    }

    /// Whether Felix is to load eBPF programs at one time or another.
    pub fn wants_programs(&self) -> bool {
        let switches = |step: &Step| match step {
            Step::Fault {
                fault: Fault::Switch { dataplane },
                ..
            } => *dataplane == Dataplane::Bpf,
            Step::Felix(change) => change.get(Dataplane::FIELD) == Some(&true.into()),
            _ => false,
        };
        let begins = Dataplane::of(&self.cluster) == Some(Dataplane::Bpf);
        begins || self.timeline.iter().any(switches)
    }

    /// Whether they are truly loaded at one time or another; Felix's model has none.
    pub fn loads_programs(&self) -> bool {
        self.has_real_felix() && self.wants_programs()
    }

    /// Whether Felix is a program of its own.
    pub(crate) fn has_real_felix(&self) -> bool {
        let felix = self.cluster.source(AgentName::Felix);
        felix.is_some_and(|source| *source != AgentSource::Model)
    }

    /// What the scenario says of Felix's eBPF programs, if anything.
    pub fn programs(&self) -> Option<Programs> {
        self.cluster.calico.as_ref()?.programs
    }

    /// How long its timeline takes at least, without what the steps' own work takes.
    pub fn lasts(&self) -> Duration {
        Step::over(&self.timeline)
    }
}

/// What is expected of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// Every promise is kept.
    Healthy,
    /// Exactly these promises are broken, every other one is kept.
    Broken(Vec<PromiseName>),
}

/// What can run here; for what cannot, the reason a person acts on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(pub BTreeMap<String, Result<(), String>>);
