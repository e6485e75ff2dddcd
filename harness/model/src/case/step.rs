//! What happens in a case.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Fault;
use crate::names::MarkName;

/// One step of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Let things be for a while.
    Settle(Duration),
    /// Let things be until so long after the first step began, where it is not later already.
    At(Duration),
    /// Give this moment a name, once in a timeline.
    Mark(MarkName),
    /// Scale a Deployment through the given replica counts, over and over.
    Churn {
        /// `test/nginx`.
        namespace: String,
        /// `test/nginx`.
        deployment: String,
        /// Replica counts, taken in turn.
        replicas: Vec<u32>,
        /// Distance of two changes.
        every: Duration,
        /// How long.
        duration: Duration,
    },
    /// Wait until a Deployment's pods are all of its newest template and Ready, and no other is there.
    Rollout {
        /// `test/nginx`.
        namespace: String,
        /// `test/nginx`.
        deployment: String,
    },
    /// Merge this into FelixConfiguration `default`'s spec.
    Felix(serde_json::Map<String, serde_json::Value>),
    /// Apply Kubernetes objects, in order.
    Apply(Vec<serde_json::Value>),
    /// Delete a Kubernetes object.
    Delete(ObjectRef),
    /// The endpoint behind the Service `kubernetes` goes, with its connections, and then another one is in its place.
    MoveApi,
    /// Something is done to the cluster. The next steps happen meanwhile.
    Fault {
        /// What.
        fault: Fault,
        /// How long; without it until the timeline is over. The timeline is not over before.
        duration: Option<Duration>,
    },
}

impl Step {
    /// When the next step is due where this one is due then, both counted from the beginning of the first. It takes only the time that it is given;
    /// what goes on beside the next ones takes none.
    pub fn next_due(&self, due: Duration) -> Duration {
        match self {
            Self::Settle(time) | Self::Churn { duration: time, .. } => due + *time,
            Self::At(time) => due.max(*time),
            Self::Mark(_)
            | Self::Rollout { .. }
            | Self::Felix(_)
            | Self::Apply(_)
            | Self::Delete(_)
            | Self::MoveApi
            | Self::Fault { .. } => due,
        }
    }

    /// The word that a timeline has for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Settle(_) => "settle",
            Self::At(_) => "at",
            Self::Mark(_) => "mark",
            Self::Churn { .. } => "churn",
            Self::Rollout { .. } => "rollout",
            Self::Felix(_) => "felix",
            Self::Apply(_) => "apply",
            Self::Delete(_) => "delete",
            Self::MoveApi => "api",
            Self::Fault { fault, .. } => fault.word(),
        }
    }

    /// When a timeline is over, if every step takes only the time that it is given.
    pub(crate) fn over(steps: &[Self]) -> Duration {
        let (mut due, mut last) = (Duration::ZERO, Duration::ZERO);
        for step in steps {
            if let Self::Fault { duration, .. } = step {
                last = last.max(due + duration.unwrap_or_default());
            }
            due = step.next_due(due);
        }
        last.max(due)
    }

    /// Whether it takes a processor for seconds: two of these side by side leave each other, and others, too little machine to tell
    /// (seen on two cores, 6.5 s for what one alone does in 2 s).
    pub fn fills_conntrack(&self) -> bool {
        matches!(
            self,
            Self::Fault {
                fault: Fault::FillConntrack { .. },
                ..
            }
        )
    }
}

/// A Kubernetes object by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ObjectRef {
    /// `discovery.k8s.io/v1`.
    pub api_version: String,
    /// `EndpointSlice`.
    pub kind: String,
    /// `None` for kinds that live outside namespaces.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}
