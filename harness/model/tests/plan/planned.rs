//! A scenario with two agents, and what is planned of it.

use std::{collections::BTreeMap, io, path::Path};

use chainbreak_model::{
    agents::AgentChoice,
    case::{AgentSource, Capabilities, Case},
    matrix::MatrixKey,
    names::AgentName,
    plan,
    plan::{Choice, Planned},
    read,
    scenario::Scenario,
};

pub(crate) const SCENARIO: &str = "\
name: s
about: two agents
cluster:
  nodes: 1
  kube-proxy: { version: '1.32' }
  calico: { version: v3.28.1 }
timeline: [settle: 1s]
promises:
  quiet: { no-log: { agent: kube-proxy, matches: 'Failed' } }
variants:
  partial: { only: { kube-proxy: '>=1.27' }, expect: { broken: [quiet] } }
  full: { only: { kube-proxy: '<1.27', calico: '<v3.30' }, expect: healthy }
  alone: { kube-proxy: none, expect: healthy }
";

pub(crate) fn scenario(text: &str) -> Scenario {
    let open = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    read(Path::new("/scenarios/s.yaml"), text.as_bytes(), &open)
        .unwrap_or_else(|error| panic!("{}", error.plain()))
}

pub(crate) fn choice(agents: &[&str], matrix: &[&str]) -> Choice {
    let agent = |text: &&str| AgentChoice::parse(text, Path::new("/here")).expect("a choice");
    let key = |text: &&str| MatrixKey::parse_values(text).expect("a matrix");
    Choice {
        backend: "lab".to_owned(),
        agents: agents.iter().map(agent).collect(),
        matrix: matrix.iter().map(key).collect(),
        ..Choice::default()
    }
}

pub(crate) fn real(path: &str) -> AgentSource {
    AgentSource::Path(path.into())
}

/// A choice with releases that are pinned.
pub(crate) fn with_pins(choice: Choice) -> Choice {
    let of = |agent, pins: &[&str]| (agent, pins.iter().map(|&it| it.to_owned()).collect());
    let pinned = [
        of(
            AgentName::KubeProxy,
            &["1.30.4", "1.31.4", "1.32.2", "1.32.13"],
        ),
        of(AgentName::Felix, &["v3.28.1", "v3.28.5", "v3.31.5"]),
    ];
    Choice {
        pinned: pinned.into(),
        ..choice
    }
}

pub(crate) fn planned(scenario: &Scenario, choice: &Choice) -> Vec<Planned> {
    let here = ["lab", "iptables-legacy", "conntrack", "ipset"].map(|it| (it.to_owned(), Ok(())));
    plan(scenario, choice, &Capabilities(BTreeMap::from(here)))
}

pub(crate) fn cases(scenario: &Scenario, choice: &Choice) -> Vec<Case> {
    let runs = planned(scenario, choice).into_iter();
    let cases = runs.filter_map(|planned| match planned {
        Planned::Run(case) => Some(*case),
        Planned::Skip(_) => None,
    });
    cases.collect()
}

pub(crate) fn skips(scenario: &Scenario, choice: &Choice) -> Vec<(String, String)> {
    let all = planned(scenario, choice).into_iter();
    let skips = all.filter_map(|planned| match planned {
        Planned::Run(_) => None,
        Planned::Skip(skipped) => Some((skipped.id.clone(), skipped.reason())),
    });
    skips.collect()
}

pub(crate) fn kube_proxy(case: &Case) -> (&str, &AgentSource) {
    let spec = case.cluster.kube_proxy.as_ref().expect("a kube-proxy");
    (&spec.version, &spec.source)
}
