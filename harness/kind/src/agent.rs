//! What a model of Felix that runs on a real node is told, and what it tells: JSON lines. The program on the other end is
//! `chainbreak agent`, in the node's container.

use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

/// The verb of the program.
pub(crate) const VERB: &str = "agent";

/// The first line that it reads. It ends with its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Order {
    /// Felix's version, as scenarios write it.
    pub version: String,
    /// Kubernetes' name of the node.
    pub node: String,
    /// Seed of everything random.
    pub seed: u64,
    /// How many lives the agent has had, with this one.
    pub life: u32,
    /// Whether it serves IPv6, too.
    pub ipv6: bool,
    /// How it reaches the API, as YAML.
    pub kubeconfig: String,
}

/// A line that it writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// The first: it lives, and this is its process in the node.
    Started {
        /// In the node's PID namespace.
        pid: u32,
    },
    /// A log entry.
    Log {
        /// With its header.
        text: String,
    },
    /// A netfilter command ended.
    Command(Ran),
    /// The last: why it ends.
    Exits {
        /// In its words.
        reason: String,
    },
}

/// A netfilter command that ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ran {
    /// Its end on `CLOCK_MONOTONIC`, which all containers of a machine share.
    pub monotonic_us: u64,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// What it read.
    pub input: String,
    /// Its exit status.
    pub exit: i32,
    /// What it said.
    pub stderr: String,
    /// How long it ran.
    pub took_us: u64,
}

/// Returns when the standard input has ended, however that comes: whoever wanted this process is gone.
pub fn input_ended() {
    // Nothing more is read.
    for line in io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
    }
}
