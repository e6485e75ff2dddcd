//! A packet on its way: what it has become, and what the kernel knows of it by now.

use std::net::{IpAddr, SocketAddr};

use super::{
    conntrack::translated,
    matches::{Answer, Side, states},
    packet::{Packet, Tracking},
};
use crate::conntrack::Tuple;

/// A packet on its way.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    /// As it is now.
    pub(super) packet: Packet,
    /// Where it goes out.
    pub(super) output: Output,
    /// What conntrack made of it. Before it has looked, rules see an invalid packet (Linux 6.18, `xt_conntrack.c`).
    pub(super) tracking: Tracking,
    /// Its connection.
    pub(super) conn: Option<Conn>,
    /// From where its receiver gets it, where Felix's programs give it another source behind the rules.
    pub(super) leaves_as: Option<SocketAddr>,
    /// Whether the policies in Felix's programs are asked where it leaves, too.
    pub(super) is_policed: bool,
}

/// Where a packet goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Output {
    /// It is not routed yet, or for the node.
    None,
    /// By this interface.
    By(String),
    /// No routes are known.
    Unknown,
}

/// A connection, confirmed or not.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a bit of the kernel's nf_conn.status"
)]
pub(super) struct Conn {
    pub(super) original: Tuple,
    pub(super) reply: Tuple,
    /// Whether this packet is the answer's direction.
    pub(super) is_reply: bool,
    /// Whether the source of the original direction was changed.
    pub(super) snat: bool,
    /// Whether its destination was.
    pub(super) dnat: bool,
    /// Whether its identifier may have changed with either: it is low enough to have been found with the destination, and not all lower ones
    /// are taken.
    pub(super) is_drawn_or_found: bool,
    /// Whether what becomes of the source is settled, and of the destination.
    pub(super) src_settled: bool,
    pub(super) dst_settled: bool,
    /// Its mark.
    pub(super) mark: u32,
    /// Whether an answer was seen.
    pub(super) answered: bool,
}

impl Flight {
    pub(super) fn new(packet: Packet) -> Self {
        Self {
            packet,
            output: Output::None,
            tracking: Tracking::Invalid,
            conn: None,
            leaves_as: None,
            is_policed: false,
        }
    }

    pub(super) fn address(&self, side: Side) -> IpAddr {
        match side {
            Side::Src => self.packet.src,
            Side::Dst => self.packet.dst,
        }
    }

    pub(super) fn input(&self) -> Option<&str> {
        self.packet.input.as_deref()
    }

    pub(super) fn output(&self) -> Option<&str> {
        match &self.output {
            Output::By(name) => Some(name),
            Output::None | Output::Unknown => None,
        }
    }

    /// Whether the output interface is one of these.
    pub(super) fn output_is(&self, fits: impl Fn(&str) -> bool) -> Answer {
        match &self.output {
            Output::By(name) => fits(name).into(),
            Output::None => Answer::No,
            Output::Unknown => Answer::Open("the output interface: no routes are known".to_owned()),
        }
    }

    /// The bits that `--ctstate` looks at.
    pub(super) fn states(&self) -> u16 {
        let state = match self.tracking {
            Tracking::New => states::NEW,
            Tracking::Established => states::ESTABLISHED,
            Tracking::Related => states::RELATED,
            Tracking::Invalid => states::INVALID,
            Tracking::Untracked => states::UNTRACKED,
        };
        let conn = self.conn.as_ref();
        state | conn.map_or(0, |conn| nat((conn.snat, conn.dnat)))
    }

    /// Whether it has one of these.
    pub(super) fn is_in(&self, wanted: u16) -> Answer {
        let both = states::SNAT | states::DNAT;
        let doubtful = self.conn.as_ref().filter(|conn| conn.is_drawn_or_found);
        let certain = doubtful.map_or(self.states(), |conn| {
            (self.states() & !both) | nat(translated(conn.original, conn.reply))
        });
        if certain & wanted == 0 && wanted & both != 0 && doubtful.is_some() {
            return Answer::Open("whether its identifier changed with the source".to_owned());
        }
        (certain & wanted != 0).into()
    }

    /// Whether the connection began so.
    pub(super) fn original(&self, is: impl Fn(&Tuple) -> bool) -> Answer {
        let conn = self.conn.as_ref();
        conn.is_some_and(|conn| is(&conn.original)).into()
    }
}

/// The bits of `--ctstate` for what was translated.
fn nat((source, destination): (bool, bool)) -> u16 {
    let bit = |is: bool, bit| if is { bit } else { 0 };
    bit(source, states::SNAT) | bit(destination, states::DNAT)
}
