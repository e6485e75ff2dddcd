//! What happens in a case.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{AgentName, MarkName};

/// One step of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Let things be for a while.
    Settle(Duration),
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
    /// Merge this into FelixConfiguration `default`'s spec.
    Felix(serde_json::Map<String, serde_json::Value>),
    /// From here on, while the next steps happen, an agent's command starts later than the agent wants.
    Slow {
        /// Whose command.
        agent: AgentName,
        /// The command's name: `iptables-restore` is that of both front ends.
        command: String,
        /// How much later each of them starts.
        by: Duration,
        /// How long this is so; the timeline is not over before.
        duration: Duration,
    },
}
