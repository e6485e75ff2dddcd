//! Changes to a case that must change its verdict. One that does not says that the scenario proves
//! nothing: its incident happens without the fault, or nobody looks at what a promise says.

use crate::case::{Case, Expect, Step};

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
    let steps = case.timeline.iter().enumerate();
    let faults = steps.filter(|(_, step)| is_fault(step));
    faults
        .map(|(index, step)| {
            let mut case = case.clone();
            case.timeline.remove(index);
            let step = serde_json::to_string(step).unwrap_or_else(|_| format!("{step:?}"));
            Mutant {
                what: format!("without step {}, {step}", index + 1),
                case,
            }
        })
        .collect()
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
    matches!(step, Step::Fault { .. } | Step::Felix(_))
}
