//! What a case is judged by.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::names::{AgentName, TrafficName};

/// One health criterion over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Promise {
    /// Requests are answered.
    Available {
        /// Which traffic.
        traffic: TrafficName,
        /// Least share of answered requests, 0–100 (percent).
        at_least: f64,
        /// Longest allowed time without an answer to any request sent.
        longest_gap: Option<Duration>,
    },
    /// No log entry matches.
    NoLog {
        /// Whose log.
        agent: AgentName,
        /// A regular expression.
        matches: String,
    },
    /// Some log entry matches.
    HasLog {
        /// Whose log.
        agent: AgentName,
        /// A regular expression.
        matches: String,
    },
    /// A rule is there, on every node.
    HasRule {
        /// Which rule.
        rule: RuleQuery,
        /// At all times; else at the end.
        always: bool,
    },
}

/// A rule in a node's tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleQuery {
    /// `nat`, `filter`, ….
    pub table: String,
    /// The chain that holds it.
    pub chain: String,
    /// Its target; without it the chain itself is asked for.
    pub jump: Option<String>,
}

impl fmt::Display for RuleQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.chain)?;
        self.jump.iter().try_for_each(|jump| write!(f, " → {jump}"))
    }
}
