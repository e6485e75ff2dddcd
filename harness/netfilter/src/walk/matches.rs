//! What a rule asks of a packet, and the answer.

use std::sync::Arc;

use ipnet::IpNet;

use super::{
    elements::{Elements, Field},
    flight::Flight,
    packet::{Protocol, TcpFlags},
    state::State,
};
use crate::words::number;

/// One condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    /// Whether it is fulfilled when the test is not.
    pub(super) not: bool,
    pub(super) test: Test,
}

/// The two ends of a packet or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Src,
    Dst,
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    Address(Side, IpNet),
    Protocol(Protocol),
    Input(IfName),
    Output(IfName),
    Port(Side, Ports),
    /// Either port.
    AnyPort(Ports),
    /// Some of these [`states`].
    State(u16),
    Mark(Masked),
    ConnectionMark(Masked),
    /// An address that the connection began with.
    Original(Side, IpNet),
    OriginalPort(Ports),
    /// Whether the packet goes in the direction in which the connection began.
    OriginalDirection,
    /// Which [`Kind`]s of address it is.
    Kind {
        side: Side,
        kinds: Vec<Kind>,
        only_of_input: bool,
    },
    Flags {
        of: TcpFlags,
        set: TcpFlags,
    },
    Icmp {
        kind: u8,
    },
    /// True by chance, in so many of 2³¹ cases.
    Chance(u32),
    /// The source is reached through the interface by which the packet came.
    ReverseRoute {
        loose: bool,
        with_mark: bool,
        accept_local: bool,
    },
    /// The source was noted under this name before; with `--set` it only is noted now.
    Recent {
        name: String,
        only_notes: bool,
    },
    /// It was in a set of this name: what is looked up, by side and protocol.
    Set {
        name: String,
        keys: Vec<Side>,
    },
    /// What nft looks up in a set of its own.
    Lookup {
        keys: Vec<Field>,
        elements: Arc<Elements>,
    },
    /// What is asked is not known here: the words.
    Unknown(String),
}

/// A value under a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Masked {
    pub(super) value: u32,
    pub(super) mask: u32,
}

/// What kind of address one is, as the routes of the node have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Local,
    Unicast,
    Broadcast,
    Multicast,
    Blackhole,
    Unreachable,
    Prohibit,
}

/// Bits of `--ctstate`.
pub(super) mod states {
    pub(in crate::walk) const NEW: u16 = 1;
    pub(in crate::walk) const ESTABLISHED: u16 = 2;
    pub(in crate::walk) const RELATED: u16 = 4;
    pub(in crate::walk) const INVALID: u16 = 8;
    pub(in crate::walk) const UNTRACKED: u16 = 16;
    pub(in crate::walk) const SNAT: u16 = 32;
    pub(in crate::walk) const DNAT: u16 = 64;

    const NAMES: [(&str, u16); 7] = [
        ("NEW", NEW),
        ("ESTABLISHED", ESTABLISHED),
        ("RELATED", RELATED),
        ("INVALID", INVALID),
        ("UNTRACKED", UNTRACKED),
        ("SNAT", SNAT),
        ("DNAT", DNAT),
    ];

    /// Reads `RELATED,ESTABLISHED`, in either case.
    pub(in crate::walk) fn parse(text: &str) -> Option<u16> {
        let one = |name: &str| {
            let mut known = NAMES.iter();
            let known = known.find(|(known, _)| known.eq_ignore_ascii_case(name.trim()))?;
            Some(known.1)
        };
        text.split(',')
            .try_fold(0, |all, name| Some(all | one(name)?))
    }
}

/// An interface's name, or what it begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IfName {
    name: String,
    begins: bool,
}

impl IfName {
    /// Reads `cali+`, which stands for all that begin so (in nft `cali*`).
    pub(super) fn parse(text: &str) -> Self {
        let begins = text.strip_suffix(['+', '*']);
        Self {
            name: begins.unwrap_or(text).to_owned(),
            begins: begins.is_some(),
        }
    }

    fn fits(&self, name: &str) -> bool {
        if self.begins {
            name.starts_with(&self.name)
        } else {
            name == self.name
        }
    }
}

/// Ranges of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ports(pub(super) Vec<(u16, u16)>);

impl Ports {
    /// Reads `80`, `1024:2047`, `:1023`, `80,443`; nft's ranges have `-`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let range = |text: &str| {
            let (first, last) = text.split_once([':', '-']).unwrap_or((text, text));
            let bound = |text: &str, none| match text {
                "" => Some(none),
                _ => text.trim().parse().ok(),
            };
            Some((bound(first, 0)?, bound(last, u16::MAX)?))
        };
        text.split(',').map(range).collect::<Option<_>>().map(Self)
    }

    fn has(&self, port: u16) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&port))
    }
}

impl Masked {
    /// Reads `0x4000/0x4000` or `0x4000`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
        Some(Self {
            value: number(value)?,
            mask: number(mask)?,
        })
    }

    /// Whether a mark has it.
    pub(super) fn has(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }
}

/// What a test comes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Yes,
    No,
    /// By chance: yes in so many of 2³¹ cases.
    Chance(u32),
    /// Not to be told, and what would have to be known.
    Open(String),
}

impl From<bool> for Answer {
    fn from(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}

/// How many cases [`Answer::Chance`] counts in (Linux 6.18, `xt_statistic.c`).
pub(super) const CASES: u32 = 1 << 31;

impl Match {
    /// Whether the packet is what the rule asks for.
    pub(super) fn ask(&self, flight: &Flight, state: &State) -> Answer {
        // A rule about one family's addresses says nothing of the other's.
        if let Test::Address(_, net) = self.test
            && net.addr().is_ipv4() != flight.packet.dst.is_ipv4()
        {
            return Answer::No;
        }
        // Nor does one about a connection of a packet that has none (Linux 6.18, `xt_connmark.c`, `xt_conntrack.c`).
        if self.test.is_of_connection() && flight.conn.is_none() {
            return Answer::No;
        }
        let answer = self.test.ask(flight, state);
        if !self.not {
            return answer;
        }
        match answer {
            Answer::Yes => Answer::No,
            Answer::No => Answer::Yes,
            Answer::Chance(cases) => Answer::Chance(CASES.saturating_sub(cases)),
            open @ Answer::Open(_) => open,
        }
    }
}

impl Test {
    fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::ConnectionMark(_)
                | Self::Original(..)
                | Self::OriginalPort(_)
                | Self::OriginalDirection
        )
    }

    fn ask(&self, flight: &Flight, state: &State) -> Answer {
        let packet = &flight.packet;
        match self {
            Self::Address(side, net) => net.contains(&flight.address(*side)).into(),
            Self::Protocol(protocol) => (packet.protocol == *protocol).into(),
            Self::Input(name) => flight.input().is_some_and(|it| name.fits(it)).into(),
            Self::Output(name) => flight.output_is(|it| name.fits(it)),
            Self::Port(side, ports) => has_port(flight, &[*side], ports).into(),
            Self::AnyPort(ports) => has_port(flight, &[Side::Src, Side::Dst], ports).into(),
            Self::State(states) => flight.is_in(*states),
            Self::Mark(mark) => mark.has(packet.mark).into(),
            Self::ConnectionMark(mark) => {
                let conn = flight.conn.as_ref();
                conn.is_some_and(|conn| mark.has(conn.mark)).into()
            }
            Self::Original(side, net) => flight.original(|tuple| match side {
                Side::Src => net.contains(&tuple.src),
                Side::Dst => net.contains(&tuple.dst),
            }),
            Self::OriginalPort(ports) => {
                flight.original(|tuple| tuple.dport.is_some_and(|port| ports.has(port)))
            }
            Self::OriginalDirection => {
                let conn = flight.conn.as_ref();
                conn.is_some_and(|conn| !conn.is_reply).into()
            }
            Self::Flags { of, set } => {
                let tcp = packet.protocol == Protocol::TCP;
                (tcp && packet.flags.0 & of.0 == set.0).into()
            }
            Self::Icmp { kind } => (packet.protocol.is_icmp() && packet.icmp == *kind).into(),
            Self::Chance(cases) => match *cases {
                0 => Answer::No,
                CASES.. => Answer::Yes,
                cases => Answer::Chance(cases),
            },
            Self::Kind {
                side,
                kinds,
                only_of_input,
            } => state.kind_of(flight, flight.address(*side), kinds, *only_of_input),
            Self::ReverseRoute {
                loose,
                with_mark,
                accept_local,
            } => state.reverse_route(flight, *loose, *with_mark, *accept_local),
            Self::Recent {
                only_notes: true, ..
            } => Answer::Yes,
            Self::Recent { name, .. } => Answer::Open(format!(
                "whether {} asked lately (/proc/net/xt_recent/{name})",
                packet.src
            )),
            Self::Set { name, keys } => state.in_set(flight, name, keys),
            Self::Lookup { keys, elements } => elements.has(flight, keys),
            Self::Unknown(words) => Answer::Open(words.clone()),
        }
    }
}

fn has_port(flight: &Flight, sides: &[Side], ports: &Ports) -> bool {
    let packet = &flight.packet;
    let port = |side: &Side| match side {
        Side::Src => packet.sport,
        Side::Dst => packet.dport,
    };
    packet.protocol.has_ports() && sides.iter().any(|side| ports.has(port(side)))
}
