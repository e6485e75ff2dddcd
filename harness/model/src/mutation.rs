//! Changes to a case that must change its verdict. One that does not says that the scenario proves
//! nothing: its incident happens without the fault, or nobody looks at what a promise says.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::{
    case::{Case, Expect, Step},
    names::VariantName,
};

/// A case with one change.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutant {
    /// The change, as a person reads it.
    pub what: String,
    /// The case with it.
    pub case: Case,
}

/// The case without each of its faults in turn, to be run. None for a case that is expected to be
/// healthy: what does not break it may as well not be there.
pub fn without_faults(case: &Case) -> Vec<Mutant> {
    if case.expect == Expect::Healthy {
        return Vec::new();
    }
    let words = case.steps_in_words().into_iter();
    let steps = case.timeline.iter().zip(words).enumerate();
    let faults = steps.filter(|(_, (step, _))| is_fault(step));
    faults
        .map(|(index, (_, words))| {
            let mut case = case.clone();
            Arc::make_mut(&mut case.timeline).remove(index);
            let words = words.map(|words| format!(", {words}"));
            Mutant {
                what: format!("without step {}{}", index + 1, words.unwrap_or_default()),
                case,
            }
        })
        .collect()
}

/// The case on the ground of each healthy variant of its scenario in turn: its cluster, manifests, traffic and
/// timeline, so that the knob is flipped back whatever it is. What is promised and expected stays. A variant in
/// the same cell of the matrix goes before one in another. None for a case that is expected to be healthy.
pub fn on_healthy_ground(case: &Case, others: &[Case]) -> Vec<Mutant> {
    if case.expect == Expect::Healthy {
        return Vec::new();
    }
    let healthy = others
        .iter()
        .filter(|it| it.scenario == case.scenario && it.expect == Expect::Healthy);
    let mut grounds: IndexMap<&VariantName, &Case> = IndexMap::new();
    for other in healthy {
        let ground = grounds.entry(&other.variant).or_insert(other);
        if ground.cell != case.cell && other.cell == case.cell {
            *ground = other;
        }
    }
    let mutants = grounds.into_iter().map(|(name, ground)| Mutant {
        what: format!("on the ground of {name}"),
        case: on_ground(case, ground),
    });
    // A variant may flip nothing but promises.
    mutants.filter(|mutant| mutant.case != *case).collect()
}

/// Traffic that only the case has is kept: a promise may be about it.
fn on_ground(case: &Case, ground: &Case) -> Case {
    let mut traffic = (*case.traffic).clone();
    traffic.extend((*ground.traffic).clone());
    Case {
        cluster: ground.cluster.clone(),
        manifests: Arc::clone(&ground.manifests),
        timeline: Arc::clone(&ground.timeline),
        traffic: Arc::new(traffic),
        ..case.clone()
    }
}

/// The case with the opposite expected of each promise in turn. A history that is as the case expects
/// is as none of these.
pub fn opposites(case: &Case) -> Vec<Mutant> {
    let names = case.promises.keys();
    names
        .map(|name| {
            let mut broken = match &case.expect {
                Expect::Healthy => Vec::new(),
                Expect::Broken(broken) => broken.clone(),
            };
            let before = broken.len();
            broken.retain(|it| it != name);
            let opposite = if broken.len() < before {
                "kept"
            } else {
                broken.push(name.clone());
                "broken"
            };
            let expect = if broken.is_empty() {
                Expect::Healthy
            } else {
                Expect::Broken(broken)
            };
            Mutant {
                what: format!("{name} expected {opposite}"),
                case: Case {
                    expect,
                    ..case.clone()
                },
            }
        })
        .collect()
}

/// What is done to the cluster, as against what it does all day.
fn is_fault(step: &Step) -> bool {
    matches!(step, Step::Fault { .. } | Step::Felix(_) | Step::MoveApi)
}
