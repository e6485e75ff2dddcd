//! From a scenario to its cases: variants × matrix cells, each to run or to skip with the reason.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::{
    case::{Capabilities, Case, ClusterSpec, IptablesVariant},
    matrix::MatrixKey,
    names::VariantName,
    scenario::{Run, Scenario, Variant},
};

/// What a person chose beside the scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// The backend's name; it is a capability like any other.
    pub backend: String,
    /// `--matrix`: replaces the scenario's values for these keys.
    pub matrix: IndexMap<MatrixKey, Vec<String>>,
    /// `--seed`: replaces the scenario's.
    pub seed: Option<u64>,
    /// `--variant`: only these; all when empty.
    pub variants: Vec<VariantName>,
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

/// A case that cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Skipped {
    /// [`Case::id`].
    pub id: String,
    /// What is missing; never empty.
    pub missing: Vec<Missing>,
}

impl Skipped {
    /// What is missing, in one line.
    pub fn reason(&self) -> String {
        let missing: Vec<String> = self
            .missing
            .iter()
            .map(|m| format!("{}: {}", m.capability, m.reason))
            .collect();
        missing.join("; ")
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

/// The cases of a scenario, variant by variant, cell by cell.
pub fn plan(scenario: &Scenario, choice: &Choice, capabilities: &Capabilities) -> Vec<Planned> {
    let all = cases(scenario, choice).into_iter();
    all.map(|(case, variant)| {
        let needs = needs(&case, &choice.backend, &variant.needs);
        let missing: Vec<Missing> = needs
            .iter()
            .filter_map(|need| missing(need, &choice.backend, capabilities))
            .collect();
        if missing.is_empty() {
            Planned::Run(Box::new(case))
        } else {
            Planned::Skip(Skipped {
                id: case.id(),
                missing,
            })
        }
    })
    .collect()
}

/// The ids of a scenario's cases, whatever can run here.
pub fn list(scenario: &Scenario, choice: &Choice) -> Vec<String> {
    cases(scenario, choice)
        .iter()
        .map(|(case, _)| case.id())
        .collect()
}

fn cases<'a>(scenario: &'a Scenario, choice: &Choice) -> Vec<(Case, &'a Variant)> {
    let mut matrix = scenario.matrix.clone();
    matrix.extend(choice.matrix.clone());
    let cells = cells(&matrix);
    let chosen = |name: &VariantName| choice.variants.is_empty() || choice.variants.contains(name);
    let mut cases = Vec::new();
    for (name, variant) in scenario.variants.iter().filter(|(name, _)| chosen(name)) {
        for cell in &cells {
            let case = case(scenario, choice, name, variant, cell);
            let id = case.id();
            let wanted = |filter: &String| id.contains(filter.as_str());
            if choice.filters.is_empty() || choice.filters.iter().any(wanted) {
                cases.push((case, variant));
            }
        }
    }
    cases
}

/// One value for each key.
type Cell = IndexMap<MatrixKey, String>;

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
    cell: &Cell,
) -> Case {
    let Run {
        mut cluster,
        manifests,
        traffic,
        timeline,
        promises,
    } = variant.run.clone();
    for (key, value) in cell {
        key.apply(value, &mut cluster)
            .expect("the matrix holds values that were checked");
    }
    Case {
        scenario: scenario.name.clone(),
        variant: name.clone(),
        cell: cell
            .iter()
            .map(|(key, value)| (key.to_string(), value.clone()))
            .collect(),
        about: scenario.about.clone(),
        incident: scenario.incident.clone(),
        file: scenario.file.clone(),
        cluster,
        manifests,
        traffic,
        timeline,
        promises,
        expect: variant.expect.clone(),
        seed: choice.seed.or(scenario.seed).unwrap_or_default(),
    }
}

/// Every capability that a case needs, in one place: the backend, what its manifests and agents run,
/// and what the scenario says beyond that.
fn needs(case: &Case, backend: &str, own: &[String]) -> Vec<String> {
    let mut needs = vec![backend.to_owned(), iptables(&case.cluster).to_owned()];
    if case.cluster.kube_proxy.is_some() {
        needs.push("conntrack".to_owned());
    }
    if case.manifests.iter().any(runs_nginx) {
        needs.push("nginx".to_owned());
    }
    needs.extend(
        own.iter()
            .filter(|need| !needs.contains(need))
            .cloned()
            .collect::<Vec<_>>(),
    );
    needs
}

fn iptables(cluster: &ClusterSpec) -> &'static str {
    match cluster.iptables {
        IptablesVariant::Legacy => "iptables-legacy",
        IptablesVariant::Nft => "iptables-nft",
    }
}

/// Whether an image is nginx itself, by the last part of its repository: `nginx:1.27`,
/// `ghcr.io/nginxinc/nginx-unprivileged@sha256:…`; not what goes with nginx, such as its exporter.
pub fn is_nginx(image: &str) -> bool {
    let untagged = image.split('@').next().unwrap_or_default();
    let last = untagged.rsplit('/').next().unwrap_or_default();
    let repository = last.split(':').next().unwrap_or_default();
    ["nginx", "nginx-unprivileged"].contains(&repository)
}

/// Whether an object's pods run nginx.
fn runs_nginx(object: &serde_json::Value) -> bool {
    let spec = match object["kind"].as_str() {
        Some("Pod") => &object["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    let images = spec["containers"].as_array().into_iter().flatten();
    let mut images = images.filter_map(|container| container["image"].as_str());
    images.any(is_nginx)
}

fn missing(need: &str, backend: &str, capabilities: &Capabilities) -> Option<Missing> {
    let reason = match capabilities.0.get(need) {
        Some(Ok(())) => return None,
        Some(Err(reason)) => reason.clone(),
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
    fn nginx_is_known_by_its_repository_whatever_stands_around_it() {
        for image in [
            "nginx",
            "nginx:1.25",
            "docker.io/library/nginx:1",
            "ghcr.io:443/x/nginx-unprivileged@sha256:00",
            "localhost:5000/nginx:1.27@sha256:00",
        ] {
            assert!(is_nginx(image), "{image}");
        }
        for image in [
            "",
            "nginx/nginx-prometheus-exporter:1.1",
            "nginx-ingress",
            "nginx.example/busybox:1",
            "nginx:1/busybox",
        ] {
            assert!(!is_nginx(image), "{image}");
        }
    }
}
