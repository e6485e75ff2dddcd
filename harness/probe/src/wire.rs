//! What a probe is told and what it says: one JSON value a line on its standard input and output.
//!
//! A probe reads one [`Errand`]. Sent to make requests, it prints one [`Report::Started`], then one [`Report::Sample`] for each
//! request in the order of completion, and at the end (its standard input closes, or the count is
//! reached) one [`Report::Done`].

pub mod conntrack;
pub mod craft;
pub mod question;

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The response header in which the server names itself (the pod's name).
pub const BACKEND_HEADER: &str = "x-chainbreak-backend";
/// The response header in which the server gives the client address it saw, as `ip:port`.
pub const CLIENT_HEADER: &str = "x-chainbreak-client";

/// What a probe is there for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Errand {
    /// To make and measure requests.
    Requests(Order),
    /// To send segments into connections of others.
    Craft(craft::Craft),
    /// To fill conntrack's table.
    FillConntrack(conntrack::Fill),
    /// To empty it of what filled it.
    EmptyConntrack,
}

/// Requests to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Order {
    /// Where requests go.
    pub target: SocketAddr,
    /// What carries them.
    #[serde(default)]
    pub protocol: Protocol,
    /// Distance of two scheduled requests, in microseconds. Open loop: a slow answer delays nothing.
    pub every_us: u64,
    /// After this many microseconds a request counts as timed out: with new connections, and over UDP, from
    /// when it was begun, with a kept one from when it was due.
    pub timeout_us: u64,
    /// How connections are used.
    pub connections: Connections,
    /// Stop after this many requests; without it, run until standard input closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Bind requests to this local address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Which this is of the orders that run beside each other in one place: their ports begin apart.
    #[serde(default)]
    pub number: u16,
}

/// What carries requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP over TCP.
    #[default]
    Tcp,
    /// A question and its answer, a datagram each: see [`question`].
    Udp,
}

impl Protocol {
    /// Each with its word.
    pub const ALL: [(&'static str, Self); 2] = [("tcp", Self::Tcp), ("udp", Self::Udp)];

    /// `TCP`, as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// How connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connections {
    /// A connection for each request; over UDP a port of the client's for each.
    New,
    /// One connection as long as it lives; a new one after it died. Over UDP one port from the first request to
    /// the last: nothing ends it.
    Kept,
}

/// What a probe says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// The schedule begins. Sample times count from here.
    Started {
        /// `CLOCK_MONOTONIC` at the start, in microseconds: the same clock for every process of a machine.
        monotonic_us: u64,
        /// The address that requests come from, by the order or by the kernel's routes; none where these lead nowhere. Older
        /// probes did not say it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<IpAddr>,
    },
    /// One request came to its end.
    Sample(Sample),
    /// No more samples follow.
    Done {
        /// How many requests were sent.
        sent: u64,
        /// How late they were.
        #[serde(default)]
        lateness: Lateness,
    },
}

/// How late requests were begun ([`Sample::late_us`]): the probe's own timing error. A large one says that the machine was too
/// busy to measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Lateness {
    /// Half of the requests were not later, in microseconds.
    pub median_us: u64,
    /// 99 of 100 were not later.
    pub p99_us: u64,
    /// None was later.
    pub max_us: u64,
}

/// One request and its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sample {
    /// When the request was due, in microseconds since the start.
    pub at_us: u64,
    /// From due to the end, in microseconds.
    pub took_us: u64,
    /// From due to when the probe began it, in microseconds: the machine's part of `took_us`, not the network's. A kept connection
    /// may have been busy then, and that is the network's. Older probes did not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_us: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A complete answer with status 200; over UDP one to this very question.
    Answered {
        /// Who answered ([`BACKEND_HEADER`]), empty when the server does not say.
        backend: String,
        /// The client address that the server saw ([`CLIENT_HEADER`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen_as: Option<SocketAddr>,
        /// The client's own address and port.
        local: SocketAddr,
    },
    /// `ECONNREFUSED`: RST, or ICMP port unreachable (REJECT).
    Refused,
    /// The established connection was reset or ended early.
    Reset,
    /// No answer in time.
    TimedOut,
    /// `ENETUNREACH`, `EHOSTUNREACH` and the like.
    Unreachable {
        /// The system's words.
        error: String,
    },
    /// An answer that is not one: another status, not HTTP, or a datagram that repeats no question.
    Wrong {
        /// What came.
        what: String,
    },
}

impl Outcome {
    /// What [`Outcome::word`] says of an answer.
    pub const ANSWERED: &'static str = "answered";

    /// Whether the request was answered.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Answered { .. })
    }

    /// One word for tables.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Answered { .. } => Self::ANSWERED,
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::TimedOut => "timed out",
            Self::Unreachable { .. } => "unreachable",
            Self::Wrong { .. } => "wrong answer",
        }
    }
}
