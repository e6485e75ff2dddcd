//! Entries of the connection tracking table for connections that nobody has.
//!
//! They are TCP's, established and assured: the kernel drops none of them early to make room, as it does with
//! connections that were never answered. A probe reads one [`Fill`] or is told to empty the table of them,
//! and prints one [`Report`] when that is done. A table that it has filled it keeps full until its input ends.

use serde::{Deserialize, Serialize};

/// Whose connections they are: the network that benchmarks have for themselves (RFC 2544), so nobody's.
pub const NETWORK: &str = "198.18.0.0/15";
/// What tells them from others' connections: their mark.
pub const MARK: u32 = 0x198_1815;

/// Entries to be made, of IPv4: tables hold both families' together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fill {
    /// So many. Where the table is full before, the rest comes as soon as there is room.
    pub entries: u32,
    /// How long they live, in seconds.
    pub timeout_s: u32,
    /// Chooses their addresses and ports.
    pub seed: u64,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// The entries are there.
    Filled {
        /// The table took no more before all of them were there.
        full: bool,
    },
    /// None of them is there.
    Emptied,
}
