//! The cases of a scenario: every variant in every cell of the matrix that is one of its own.

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;

use super::{Choice, both::both, follow::follow};
use crate::{
    agents,
    case::{Case, ClusterSpec, Fault, ProxyMode, Shared, Step},
    matrix::{DUAL, MatrixKey},
    names::{AgentName, VariantName},
    scenario::{Run, Scenario, Variant},
    version,
};

/// One value for each key.
type Cell = IndexMap<MatrixKey, String>;

/// A case before it is known whether it runs here.
#[derive(Debug)]
pub(super) struct Possible<'a> {
    pub(super) case: Case,
    pub(super) variant: &'a Variant,
    /// The cells of the matrix that it stands for, at least one.
    pub(super) cells: usize,
}

/// The cases of a scenario, by id. Cells that run the same are one case: a variant is not varied by
/// versions of an agent that it does not have, nor by versions that one real agent stands for.
pub(super) fn cases<'a>(scenario: &'a Scenario, choice: &Choice) -> IndexMap<String, Possible<'a>> {
    let cells = scenario.matrices().flat_map(|mut matrix| {
        // Of two keys that say the same version the chosen one replaces the other.
        for (key, other) in MatrixKey::SAME {
            if choice.matrix.contains_key(&key) {
                matrix.shift_remove(&other);
            }
        }
        matrix.extend(choice.matrix.clone());
        cells(&matrix)
    });
    let cells: Vec<Cell> = cells.collect();
    let chosen = |name: &VariantName| choice.variants.is_empty() || choice.variants.contains(name);
    let (mut cases, mut shared) = (IndexMap::<String, Possible<'_>>::new(), Shared::default());
    for (name, variant) in scenario.variants.iter().filter(|(name, _)| chosen(name)) {
        for cell in &cells {
            let mut case = case(scenario, choice, name, variant, cell.clone());
            let taken = cases.get(&case.id());
            if taken.is_some_and(|taken| taken.case != case) {
                tell_apart(&mut case, cell);
            }
            shared.take(&mut case);
            let is_varied = |key: &MatrixKey| case.cell.contains_key(&key.to_string());
            if !choice.varying.iter().all(is_varied) {
                continue;
            }
            let id = case.id();
            let wanted = |filter: &String| id.contains(filter.as_str());
            if !choice.filters.is_empty() && !choice.filters.iter().any(wanted) {
                continue;
            }
            let possible = cases.entry(id).or_insert(Possible {
                case,
                variant,
                cells: 0,
            });
            possible.cells += 1;
        }
    }
    cases
}

/// Another player of the same version has the name already: what was written is told with the version.
fn tell_apart(case: &mut Case, written: &Cell) {
    for (key, written) in written.iter().filter(|(key, _)| key.is_version()) {
        if let Some(value) = case.cell.get_mut(&key.to_string()) {
            *value = format!("{written}→{value}");
        }
    }
}

/// Whether a setting makes a difference to a cluster whose kube-proxy has its mode already: one that writes
/// through nft leaves nobody but Felix to write through iptables. In the lab nothing but kube-proxy has Kubernetes' version.
fn varies(key: MatrixKey, cluster: &ClusterSpec, choice: &Choice) -> bool {
    let mode = cluster.kube_proxy.as_ref().map(|it| it.mode);
    match key {
        MatrixKey::Mode => mode.is_some(),
        MatrixKey::IpFamily => true,
        MatrixKey::Iptables => mode != Some(ProxyMode::Nftables) || cluster.calico.is_some(),
        MatrixKey::Dataplane => cluster.calico.is_some(),
        MatrixKey::Kubernetes if choice.real_clusters => true,
        MatrixKey::KubeProxy | MatrixKey::Calico | MatrixKey::Kubernetes => {
            key.version(cluster).is_some()
        }
    }
}

/// Every combination of the values; of no keys there is one, the empty one.
fn cells(matrix: &IndexMap<MatrixKey, Vec<String>>) -> Vec<Cell> {
    let mut cells = vec![Cell::new()];
    for (key, values) in matrix {
        let wider = |cell: &Cell| {
            let cell = cell.clone();
            let with = move |value: &String| {
                let mut cell = cell.clone();
                cell.insert(*key, value.clone());
                cell
            };
            values.iter().map(with).collect::<Vec<Cell>>()
        };
        cells = cells.iter().flat_map(wider).collect();
    }
    cells
}

fn case(
    scenario: &Scenario,
    choice: &Choice,
    name: &VariantName,
    variant: &Variant,
    mut cell: Cell,
) -> Case {
    let Run {
        mut cluster,
        manifests,
        traffic,
        mut timeline,
        mut promises,
    } = variant.run.clone();
    let before = cluster.default_family();
    let set = |key: MatrixKey, value: &str, cluster: &mut ClusterSpec| {
        key.apply(value, cluster)
            .expect("the matrix holds values that were checked");
    };
    if let Some(mode) = cell.get(&MatrixKey::Mode) {
        set(MatrixKey::Mode, mode, &mut cluster);
    }
    cell.retain(|key, _| varies(*key, &cluster, choice));
    for (key, value) in &cell {
        set(*key, value, &mut cluster);
    }
    let families = (before, cluster.default_family());
    follow(families, promises.values_mut(), &mut timeline);
    let known = cast(&mut cluster, &mut timeline, choice);
    for (key, value) in &mut cell {
        let own = key.agent().unwrap_or(AgentName::KubeProxy);
        if key.is_version()
            && known.contains(&own)
            && let Some(version) = key.version(&cluster)
        {
            version.clone_into(value);
        }
    }
    let has_both = cell.get(&MatrixKey::IpFamily).is_some_and(|it| it == DUAL);
    let mut case = Case {
        scenario: scenario.name.clone(),
        variant: name.clone(),
        cell: cell
            .into_iter()
            .map(|(key, value)| (key.to_string(), value))
            .collect(),
        about: Arc::new(scenario.about.clone()),
        incident: Arc::new(scenario.incident.clone()),
        file: Arc::new(scenario.file.clone()),
        line: Some(variant.line),
        cluster,
        manifests,
        traffic: Arc::new(traffic),
        timeline: Arc::new(timeline),
        promises: Arc::new(promises),
        expect: variant.expect.clone(),
        by: variant.by.clone(),
        seed: choice.seed.or(scenario.seed).unwrap_or_default(),
        repetition: None,
    };
    if has_both {
        both(&mut case);
    }
    case
}

/// Settles who plays the agents, and in which versions. Returns those that said theirs themselves.
fn cast(cluster: &mut ClusterSpec, timeline: &mut [Step], choice: &Choice) -> Vec<AgentName> {
    if choice.real_clusters {
        agents::choose(cluster, &choice.agents);
        agents::leave_to_the_cluster(cluster, &choice.agents);
    } else {
        pin(cluster, timeline, &choice.pinned);
        agents::choose(cluster, &choice.agents);
        agents::take(cluster, timeline, &choice.agents, &choice.at_hand);
    }
    identify(cluster, choice)
}

/// Gives every minor version of an agent the patch that it means, now and later.
fn pin(cluster: &mut ClusterSpec, timeline: &mut [Step], pins: &BTreeMap<AgentName, Vec<String>>) {
    for (agent, pins) in pins {
        let later = timeline.iter_mut().filter_map(|step| match step {
            Step::Fault {
                fault: Fault::Upgrade { to, .. },
                ..
            } => to.get_mut(agent),
            _ => None,
        });
        let now = cluster.agent_mut(*agent).map(|spec| spec.version);
        for version in now.into_iter().chain(later) {
            if let Some(pinned) = version::pinned(version, pins) {
                pinned.clone_into(version);
            }
        }
    }
}

/// Gives real agents the versions that they are known to have, and says whose those are.
fn identify(cluster: &mut ClusterSpec, choice: &Choice) -> Vec<AgentName> {
    let mut known = Vec::new();
    for agent in AgentName::ALL {
        let Some(spec) = cluster.agent_mut(agent) else {
            continue;
        };
        if let Some(version) = choice.versions.get(&(agent, spec.source.clone())) {
            version.clone_into(spec.version);
            known.push(agent);
        }
    }
    known
}
