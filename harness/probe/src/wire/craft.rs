//! Crafting: segments that no end of a connection sent, made to fit its live sequence numbers.
//!
//! The crafter watches what passes its place, hence knows only connections on which something passes. It
//! reads one [`Craft`], prints [`Report::Started`], one [`Report::Crafted`] for each connection and turn,
//! and when its standard input closes [`Report::Done`].

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What to craft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Craft {
    /// Connections to these addresses are crafted for, as the place sees them: a service's backends, not
    /// its cluster IP.
    pub servers: Vec<SocketAddr>,
    /// What is sent into each of them.
    pub segment: Segment,
    /// Distance of two turns, in microseconds.
    pub every_us: u64,
}

/// What is sent into a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Segment {
    /// Data from the server, 2³⁰ beyond what it has sent: no window reaches so far, so conntrack calls it
    /// INVALID. (Data *before* the window is let pass since Linux 6.1, `nf_conntrack_proto_tcp.c`.)
    OutOfWindow,
    /// The server's reset with the sequence number that its client expects.
    Reset,
    /// A handshake in other sequence numbers, its checksums wrong: neither end takes it, but the conntrack of
    /// a node that sends it believes it, and calls what the connection really sends INVALID. A SYN in the
    /// connection's own addresses is needed, so this works on a node that forwards the connection
    /// without rewriting it.
    StrayHandshake,
}

impl Segment {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::OutOfWindow, Self::Reset, Self::StrayHandshake];

    /// As scenarios write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfWindow => "out-of-window",
            Self::Reset => "reset",
            Self::StrayHandshake => "stray-handshake",
        }
    }
}

/// What a crafter says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// It watches.
    Started,
    /// Segments went into a connection.
    Crafted {
        /// The connection's client, as the place sees it.
        client: SocketAddr,
        /// Its server.
        server: SocketAddr,
    },
    /// Nothing more is crafted.
    Done {
        /// How many segments were sent.
        segments: u64,
    },
}
