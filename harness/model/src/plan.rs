//! From a scenario to its cases: variants × matrix cells, each to run or to skip with the reason.

mod both;
mod cells;
mod disturb;
mod exclude;
mod follow;
mod knob;
mod needs;
mod renamed;
mod shard;
mod upgrades;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::{
    agents::{AgentChoice, AtHand},
    case::{AgentSource, Capabilities, Case, Fault, KubeProxySpec, Programs, Step},
    matrix::MatrixKey,
    names::{AgentName, VariantName},
    read::TAKING_CHANGES,
    scenario::{Scenario, Variant},
};
use cells::{Possible, cases};
pub use exclude::Exclude;
pub use needs::{image_name, is_nginx};
pub use shard::Shard;

/// A real agent of whatever version it says: which one it is, and its file, its root file system, or its image.
pub type Real = (AgentName, AgentSource);

/// What a person chose beside the scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// The backend's name; it is a capability like any other.
    pub backend: String,
    /// Its clusters are real ones: they bring along the agents that nobody chose, and have what the machine has to have
    /// otherwise.
    pub real_clusters: bool,
    /// The cluster is somebody's, by its name, and nothing may be done to it as a whole: a case has what is in its own namespaces.
    pub undisturbed: Option<String>,
    /// `--matrix`: replaces the scenario's values for these keys.
    pub matrix: IndexMap<MatrixKey, Vec<String>>,
    /// `--varying`: only cases that each of these keys varies.
    pub varying: Vec<MatrixKey>,
    /// `--agent`: replaces the scenario's sources.
    pub agents: Vec<AgentChoice>,
    /// What real agents say that their version is; it replaces the scenario's and the matrix's. Of one
    /// that is not here, the version stays as written.
    pub versions: BTreeMap<Real, String>,
    /// Releases of each agent, the oldest first: a minor version means its newest patch among them, or where there is none whatever
    /// its last one is. Of no concern to real clusters, which bring their own.
    pub pinned: BTreeMap<AgentName, Vec<String>>,
    /// `--agents real`: what replaces the models that nobody chose.
    pub at_hand: AtHand,
    /// `--seed`: replaces the scenario's.
    pub seed: Option<u64>,
    /// `--variant`: only these; all when empty.
    pub variants: Vec<VariantName>,
    /// `--exclude`: cells that are left out.
    pub exclude: Vec<Exclude>,
    /// Only cases whose id contains one of these; all when empty.
    pub filters: Vec<String>,
}

/// What becomes of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Planned {
    /// It runs.
    Run(Box<Case>),
    /// It cannot run here.
    Skip(Skipped),
}

impl Planned {
    /// [`Case::id`].
    pub fn id(&self) -> String {
        match self {
            Self::Run(case) => case.id(),
            Self::Skip(skipped) => skipped.id.clone(),
        }
    }
}

/// A case that does not run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Skipped {
    /// [`Case::id`].
    pub id: String,
    /// `only:` or `--exclude` leaves it out, or a real agent cannot do what it asks, and how; there is no use in
    /// bringing what is missing.
    pub outside: Vec<String>,
    /// What is missing; not empty unless `outside` is not.
    pub missing: Vec<Missing>,
}

impl Skipped {
    /// Why it does not run, and below a reason what mends it. What several capabilities lack is said once.
    pub fn reason(&self) -> String {
        let mut missing: IndexMap<&str, Vec<&str>> = IndexMap::new();
        for Missing { capability, reason } in &self.missing {
            missing.entry(reason).or_default().push(capability);
        }
        let missing = missing.into_iter();
        let missing = missing.map(|(reason, of)| format!("{}: {reason}", of.join(", ")));
        let outside = self.outside.iter().cloned();
        outside.chain(missing).collect::<Vec<_>>().join("; ")
    }
}

/// A capability that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Missing {
    /// Its name.
    pub capability: String,
    /// Why it is not there, as a person acts on it.
    pub reason: String,
}

/// The backend that runs cases in namespaces of the run's own.
const EXISTING: &str = "cluster";

/// The cases of a scenario, variant by variant, cell by cell.
pub fn plan(scenario: &Scenario, choice: &Choice, capabilities: &Capabilities) -> Vec<Planned> {
    let all = cases(scenario, choice).into_values();
    all.map(|Possible { case, variant, .. }| {
        let mut outside = outside(&case, variant);
        outside.extend(of_another_dataplane(&case));
        outside.extend(knob::lost(&case, variant, choice));
        outside.extend(choice.exclude.iter().find_map(|it| it.leaves_out(&case)));
        decided(case, outside, &variant.needs, choice, capabilities)
    })
    .collect()
}

/// What becomes here of a case that was planned before, perhaps on another machine. What its variant needs beyond what the case says is not
/// known any more.
pub fn again(case: Case, choice: &Choice, capabilities: &Capabilities) -> Planned {
    decided(case, Vec::new(), &[], choice, capabilities)
}

/// Whether a case runs that is not `outside` already.
fn decided(
    case: Case,
    mut outside: Vec<String>,
    needs: &[String],
    choice: &Choice,
    capabilities: &Capabilities,
) -> Planned {
    outside.extend(beyond_a_real_one(&case));
    outside.extend(beyond_real_programs(&case));
    outside.extend(upgrades::cannot_be(&case));
    if choice.real_clusters {
        outside.extend(beyond_a_model(&case, needs));
    }
    if let Some(cluster) = &choice.undisturbed {
        outside.extend(disturb::refused(&case, cluster));
    }
    if choice.backend == EXISTING {
        outside.extend(renamed::refused(&case));
    }
    let needs = needs::of(&case, choice, needs);
    let missing = |need: &String| missing(need, &case, &choice.backend, capabilities);
    let missing: Vec<Missing> = needs.iter().filter_map(missing).collect();
    if outside.is_empty() && missing.is_empty() {
        return Planned::Run(Box::new(case));
    }
    Planned::Skip(Skipped {
        id: case.id(),
        outside,
        missing,
    })
}

/// The ids of a scenario's cases, whatever can run here.
pub fn list(scenario: &Scenario, choice: &Choice) -> Vec<String> {
    cases(scenario, choice).into_keys().collect()
}

/// The ids of cases that stand for several cells of the matrix, and for how many: these run the same.
pub fn merged(scenario: &Scenario, choice: &Choice) -> Vec<(String, usize)> {
    let cases = cases(scenario, choice).into_iter();
    let counted = cases.map(|(id, possible)| (id, possible.cells));
    counted.filter(|(_, cells)| *cells > 1).collect()
}

/// Whether a chosen source is that of an agent of some case.
pub fn is_used(agent: &AgentChoice, scenario: &Scenario, choice: &Choice) -> bool {
    // As without it: a real agent's own version replaces the one that it was chosen for.
    let alone = Choice {
        agents: Vec::new(),
        versions: BTreeMap::new(),
        ..choice.clone()
    };
    let cases = cases(scenario, &alone);
    cases.values().any(|it| agent.concerns(&it.case.cluster))
}

/// The real agents of a scenario's cases, whatever can run here.
pub fn real_agents(scenario: &Scenario, choice: &Choice) -> BTreeSet<Real> {
    let real = |possible: Possible<'_>| {
        AgentName::ALL.map(|agent| match possible.case.cluster.source(agent) {
            Some(source @ (AgentSource::Path(_) | AgentSource::Image(Some(_)))) => {
                Some((agent, source.clone()))
            }
            _ => None,
        })
    };
    let cases = cases(scenario, choice).into_values();
    cases.flat_map(real).flatten().collect()
}

/// How a case's versions lie outside what its variant is about, or outside what anybody can play.
fn outside(case: &Case, variant: &Variant) -> Vec<String> {
    let outside = variant.only.iter().filter_map(|(key, range)| {
        let version = case.cluster.version(key.agent()?)?;
        (!range.contains(version)).then(|| format!("is about {key} {range}, this is {version}"))
    });
    let unplayable = case.cluster.agents().filter_map(|agent| {
        let version = case.cluster.version(agent)?;
        (agent.kind().unplayable)(&case.cluster, version)
    });
    outside.chain(unplayable).collect()
}

/// How a case that says itself with what Felix begins lies outside its cell.
fn of_another_dataplane(case: &Case) -> Option<String> {
    let asked = case.cell.get(&MatrixKey::Dataplane.to_string())?;
    let said = MatrixKey::Dataplane.value(&case.cluster)?;
    (said != *asked).then(|| format!("says itself that Felix begins with {said}"))
}

/// What a case asks of kube-proxy that only its model can do, if a real one plays it.
fn beyond_a_real_one(case: &Case) -> Option<String> {
    let spec = case.cluster.kube_proxy.as_ref()?;
    if spec.source == AgentSource::Model {
        return None;
    }
    let held = |step: &Step| matches!(step, Step::Fault { fault: Fault::Slow { command, .. }, .. } if command == TAKING_CHANGES);
    if case.timeline.iter().any(held) {
        return Some(format!(
            "holds kube-proxy's model at {TAKING_CHANGES}, this is a real one"
        ));
    }
    let period = spec.full_sync_period;
    let hour = period == KubeProxySpec::hour();
    (!hour).then(|| format!("sets full-sync-period to {period:?}, this is a real kube-proxy"))
}

/// What a variant says of a node without eBPF programs, if a real Felix loads them.
fn beyond_real_programs(case: &Case) -> Option<String> {
    let said = case.programs() == Some(Programs::Fail);
    let why = "is about a node whose eBPF programs do not work, a real Felix's do";
    (said && case.loads_programs()).then(|| why.to_owned())
}

/// What a variant needs of a real Felix, if its model plays it on a real cluster.
fn beyond_a_model(case: &Case, needs: &[String]) -> Option<String> {
    let modelled = case.cluster.source(AgentName::Felix) == Some(&AgentSource::Model);
    let said = case.programs() == Some(Programs::Work);
    let bpf = said || needs.iter().any(|need| need == needs::BPF);
    let slow = |step: &Step| {
        let agent = AgentName::Felix;
        matches!(step, Step::Fault { fault: Fault::Slow { agent: slow, .. }, .. } if *slow == agent)
    };
    if modelled && case.timeline.iter().any(slow) {
        return Some("holds Felix's commands back, this is its model, in no container".to_owned());
    }
    (modelled && bpf).then(|| format!("needs {}, this is Felix's model", needs::BPF))
}

/// Why a model does not meet [`needs::BPF`].
const OF_A_REAL_FELIX: &str = "Felix's model has no eBPF programs, a real Felix has\n\
                               chainbreak run --allow-ebpf --agent felix=PATH";

fn missing(need: &str, case: &Case, backend: &str, capabilities: &Capabilities) -> Option<Missing> {
    let told_by = needs::told_by(need, case);
    let reason = match capabilities.0.get(told_by) {
        Some(Ok(())) => return None,
        Some(Err(reason)) => reason.clone(),
        None if told_by == needs::BPF => OF_A_REAL_FELIX.to_owned(),
        None => format!("the backend {backend} does not have it"),
    };
    Some(Missing {
        capability: need.to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_capabilities_lack_is_said_once() {
        let lacks = |capability: &str, reason: &str| Missing {
            capability: capability.to_owned(),
            reason: reason.to_owned(),
        };
        let no_kind = "could not start `kind`\nsee https://kind.sigs.k8s.io";
        let skipped = Skipped {
            id: "s/v".to_owned(),
            outside: vec!["its kube-proxy is 1.26".to_owned()],
            missing: vec![
                lacks("kind", no_kind),
                lacks("conntrack", "no conntrack"),
                lacks("nginx", no_kind),
            ],
        };
        assert_eq!(
            skipped.reason(),
            "its kube-proxy is 1.26; kind, nginx: could not start `kind`\nsee https://kind.sigs.k8s.io; conntrack: no conntrack"
        );
    }
}
