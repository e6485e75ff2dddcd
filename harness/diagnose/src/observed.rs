//! What somebody sees of requests that no dump of a node has: what becomes of them, and whose they are.

use std::fmt;

use chainbreak_model::{
    case::{Claim, Expect, Origin, Traffic},
    names::TrafficName,
    scenario::Scenario,
};
use indexmap::IndexMap;

/// What becomes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They are not answered, all or some.
    Lost,
    /// Connections are reset.
    Reset,
    /// Servers see another client than the one that asks.
    OtherSource,
    /// Some endpoints get more than others.
    Uneven,
    /// Others answer than the server outside of the cluster that is asked.
    Elsewhere,
}

impl Fate {
    /// Each with its word, and what that says.
    pub const ALL: [(&'static str, Self, &'static str); 5] = [
        (
            "lost",
            Self::Lost,
            "They are not answered, all or some: they time out, or are refused",
        ),
        ("reset", Self::Reset, "Connections that stood are reset"),
        (
            "other-source",
            Self::OtherSource,
            "Servers see another client",
        ),
        (
            "uneven",
            Self::Uneven,
            "Some endpoints get more than others",
        ),
        (
            "elsewhere",
            Self::Elsewhere,
            "Others answer than the server outside of the cluster that is asked",
        ),
    ];
}

/// Whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A pod's.
    Pods,
    /// A node's own.
    Nodes,
    /// Somebody's outside of the cluster.
    Outsiders,
}

impl Whose {
    /// Each with its word, and what that says.
    pub const ALL: [(&'static str, Self, &'static str); 3] = [
        ("pod", Self::Pods, "A pod's"),
        ("node", Self::Nodes, "A node's own"),
        (
            "outside",
            Self::Outsiders,
            "Somebody's outside of the cluster",
        ),
    ];
}

/// What is seen, as far as somebody says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// What becomes of requests.
    pub fate: Option<Fate>,
    /// Whose they are.
    pub whose: Option<Whose>,
}

impl Observed {
    /// Whether anything is said.
    pub(crate) fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Whether that is seen in an incident of the scenario.
    pub(crate) fn is_of(self, scenario: &Scenario) -> bool {
        scenario.variants.values().any(|variant| {
            let Expect::Broken(names) = &variant.expect else {
                return false;
            };
            let run = &variant.run;
            let broken = names.iter().filter_map(|name| run.promises.get(name));
            let mut seen = broken.filter_map(|promise| seen(&promise.claim, &run.traffic));
            seen.any(|(fate, whose)| {
                self.fate.is_none_or(|it| it == fate) && self.whose.is_none_or(|it| it == whose)
            })
        })
    }
}

/// What is seen of requests where the claim does not hold; nothing of rules, logs and counters.
pub fn seen(claim: &Claim, traffic: &IndexMap<TrafficName, Traffic>) -> Option<(Fate, Whose)> {
    let (fate, name) = match claim {
        // Whose the requests are, a counter does not say: they come from where its server is not.
        Claim::Counter {
            at: Some(Origin::Host(_)),
            limits,
            ..
        } if limits.at_least.is_some() => return Some((Fate::Elsewhere, Whose::Pods)),
        Claim::Available { traffic, .. } | Claim::Recovers { traffic, .. } => (Fate::Lost, traffic),
        Claim::Resets { traffic, .. } => (Fate::Reset, traffic),
        Claim::Source { traffic, .. } | Claim::SourcePorts { traffic, .. } => {
            (Fate::OtherSource, traffic)
        }
        Claim::Balance { traffic, .. } => (Fate::Uneven, traffic),
        _ => return None,
    };
    let whose = match &traffic.get(name)?.from {
        Origin::Pod { .. } => Whose::Pods,
        Origin::Node(_) => Whose::Nodes,
        Origin::Host(_) => Whose::Outsiders,
    };
    Some((fate, whose))
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.whose {
            None => "requests",
            Some(Whose::Pods) => "pods' requests",
            Some(Whose::Nodes) => "a node's requests",
            Some(Whose::Outsiders) => "outsiders' requests",
        };
        let fate = match self.fate {
            None => "go wrong",
            Some(Fate::Lost) => "are lost",
            Some(Fate::Reset) => "are reset",
            Some(Fate::OtherSource) => "come from another client",
            Some(Fate::Uneven) => "are spread unevenly",
            Some(Fate::Elsewhere) => "do not get to the server that is asked",
        };
        write!(f, "{whose} {fate}")
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use chainbreak_model::read;

    use super::*;

    const SCENARIO: &str = "\
name: it
about: it
cluster: { nodes: 1, kube-proxy: { version: '1.32' }, hosts: { outside: { nginx: 80 } } }
manifests:
  - { apiVersion: v1, kind: Pod, metadata: { name: client }, spec: { containers: [{ name: c, image: nginx, ports: [{ containerPort: 80 }] }] } }
traffic:
  inside: { from: pod/client, to: host/outside, port: 80, every: 5ms }
  outside: { from: host/outside, to: pod/default/client, port: 80, every: 5ms }
timeline: [settle: 1s]
promises:
  answers: { available: { traffic: inside } }
  keeps: { source: { traffic: outside, is: client } }
  rises: { counter: { snmp: Tcp.PassiveOpens, at: host/outside, at-least: 1 } }
variants:
  broken: { expect: { broken: [answers, rises] } }
  healthy: { timeline: [settle: 2s], expect: healthy }
";

    #[test]
    fn what_is_seen_of_requests_is_what_breaks_in_an_incident_of_the_scenario() {
        let none = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
        let scenario = read(Path::new("it.yaml"), SCENARIO.as_bytes(), &none);
        let scenario = scenario.unwrap_or_else(|error| panic!("{}", error.plain()));
        let is_of = |fate, whose| Observed { fate, whose }.is_of(&scenario);
        assert!(is_of(Some(Fate::Lost), None));
        assert!(is_of(Some(Fate::Lost), Some(Whose::Pods)));
        assert!(is_of(None, Some(Whose::Pods)));
        assert!(!is_of(Some(Fate::Lost), Some(Whose::Outsiders)));
        assert!(!is_of(None, Some(Whose::Outsiders)));
        assert!(!is_of(Some(Fate::OtherSource), None));
        assert!(is_of(Some(Fate::Elsewhere), None));
    }
}
