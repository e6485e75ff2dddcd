//! What conntrack makes of a packet: which connection it is of, or why of none (Linux 6.18, `nf_conntrack_core.c`,
//! `nf_conntrack_proto_tcp.c`).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    flight::Conn,
    packet::{Packet, Protocol, TcpFlags, Tracking},
    translation::ATTEMPTS,
};
use crate::conntrack::{Echo, Flow, Tuple};

/// The entries of a node, by what they are looked up with.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections {
    flows: Vec<Flow>,
    /// Which entry, and whether the tuple is of its answers.
    by_tuple: BTreeMap<(Protocol, Tuple), (usize, bool)>,
    /// What each source was made.
    sources: BTreeMap<(Protocol, Source), BTreeSet<Source>>,
}

/// An address with a port, or with an echo's identifier.
pub(super) type Source = (IpAddr, Option<u16>);

/// What was found, and why.
#[derive(Debug)]
pub(super) struct Verdict {
    /// A new connection may have taken the place of a closed one, which no listing tells.
    pub(super) reopens: Option<Box<Verdict>>,
    pub(super) tracking: Tracking,
    pub(super) conn: Option<Conn>,
    pub(super) why: String,
}

/// Of sysctls, what decides here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// `nf_conntrack_tcp_loose`: a connection may be picked up in its middle.
    pub(super) loose: bool,
}

impl Connections {
    /// Adds an entry. Of entries with one tuple the last counts.
    pub(super) fn add(&mut self, flow: Flow) {
        let Some(protocol) = Protocol::parse(&flow.protocol) else {
            return;
        };
        let number = self.flows.len();
        self.by_tuple
            .insert((protocol, flow.original), (number, false));
        self.by_tuple.insert((protocol, flow.reply), (number, true));
        let source = source(flow.original);
        let made = self.sources.entry((protocol, source)).or_default();
        made.insert(self::source(inverse(flow.reply)));
        self.flows.push(flow);
    }

    /// Whether a connection has this tuple already (`nf_conntrack_tuple_taken`), other than one whose place is taken by the
    /// one that begins with `original`.
    pub(super) fn has(&self, protocol: Protocol, tuple: Tuple, original: Tuple) -> bool {
        let found = self.by_tuple.get(&(protocol, tuple));
        let flow = found.and_then(|(number, _)| self.flows.get(*number));
        flow.is_some_and(|flow| flow.original != original && flow.reply != original)
    }

    /// The ports (of echoes the identifiers) that a source has at another address (`find_appropriate_src`).
    pub(super) fn given(
        &self,
        protocol: Protocol,
        source: Source,
        address: IpAddr,
    ) -> impl Iterator<Item = u16> {
        let made = self.sources.get(&(protocol, source)).into_iter().flatten();
        let there = made.filter(move |(made, _)| *made == address);
        there.filter_map(|(_, number)| *number)
    }

    /// Which connection a packet is of.
    pub(super) fn look(&self, packet: &Packet, settings: Settings) -> Verdict {
        if let Some(tracking) = packet.tracking {
            return assumed(packet, tracking);
        }
        if let Some(why) = malformed(packet) {
            return Verdict::invalid(why);
        }
        let found = self.by_tuple.get(&(packet.protocol, tuple(packet)));
        let flow = found.and_then(|(number, reply)| Some((self.flows.get(*number)?, *reply)));
        match flow {
            Some((flow, _)) if begins_again(packet, flow) == Some(true) => {
                let mut verdict = unknown(packet, settings);
                let state = flow.state.as_deref().unwrap_or_default();
                verdict.why = format!("a SYN begins a connection anew, as the entry is in {state}");
                verdict
            }
            Some((flow, reply)) => {
                let mut verdict = self.known(packet, flow, reply);
                if begins_again(packet, flow).is_none() {
                    verdict.reopens = Some(Box::new(unknown(packet, settings)));
                }
                verdict
            }
            None => unknown(packet, settings),
        }
    }

    /// A packet of an entry.
    fn known(&self, packet: &Packet, flow: &Flow, is_reply: bool) -> Verdict {
        if packet.protocol == Protocol::TCP
            && let Some(why) = out_of_state(packet, flow, is_reply)
        {
            return Verdict::invalid(why);
        }
        let answered = is_reply || !flow.unreplied;
        let tracking = if answered {
            Tracking::Established
        } else {
            Tracking::New
        };
        let (original, reply) = (flow.original, flow.reply);
        // The bit of an identifier's change is that of the end with which it changed: numbers from 0 on are found with the
        // destination, others drawn with the source.
        let id = |tuple: Tuple| tuple.echo.map(|it| it.id);
        let changed = id(reply).filter(|_| id(original) != id(reply));
        let found = changed.is_some_and(|id| id < ATTEMPTS);
        let (snat, dnat) = translated(original, reply);
        let conn = Conn {
            original,
            reply,
            is_reply,
            snat: snat || changed.is_some() && !found,
            dnat: dnat || found,
            is_drawn_or_found: found && !self.are_lower_taken(packet.protocol, reply),
            src_settled: true,
            dst_settled: true,
            mark: flow.mark,
            answered,
        };
        let side = if is_reply {
            "the answer"
        } else {
            "the direction"
        };
        let state = flow.state.as_deref().map(|it| format!(" {it}"));
        let state = state.unwrap_or_default();
        let why = format!("{side} of the entry{state} {original} ↔ {reply}");
        Verdict {
            tracking,
            conn: Some(conn),
            why,
            reopens: None,
        }
    }

    /// Whether all lower identifiers are taken, as they were when one was found; one that was drawn may be low, too.
    fn are_lower_taken(&self, protocol: Protocol, tuple: Tuple) -> bool {
        let Some(echo) = tuple.echo else {
            return false;
        };
        let mut lower = (0..echo.id).map(|id| Tuple {
            echo: Some(Echo { id, ..echo }),
            ..tuple
        });
        lower.all(|tuple| self.by_tuple.contains_key(&(protocol, tuple)))
    }
}

impl Verdict {
    fn invalid(why: impl Into<String>) -> Self {
        Self {
            tracking: Tracking::Invalid,
            conn: None,
            why: why.into(),
            reopens: None,
        }
    }
}

/// What conntrack looks a packet up by.
pub(super) fn tuple(packet: &Packet) -> Tuple {
    let port = |port| packet.protocol.has_ports().then_some(port);
    let echo = Echo {
        kind: packet.icmp,
        code: 0,
        id: packet.sport,
    };
    Tuple {
        src: packet.src,
        dst: packet.dst,
        sport: port(packet.sport),
        dport: port(packet.dport),
        echo: packet.protocol.is_icmp().then_some(echo),
    }
}

/// Who sends what has this tuple.
pub(super) fn source(tuple: Tuple) -> Source {
    (tuple.src, tuple.sport.or(tuple.echo.map(|it| it.id)))
}

/// The tuple of its answers.
pub(super) fn inverse(tuple: Tuple) -> Tuple {
    Tuple {
        src: tuple.dst,
        dst: tuple.src,
        sport: tuple.dport,
        dport: tuple.sport,
        echo: tuple.echo.map(answered),
    }
}

/// The types of ICMP that ask, each with the one that answers (`invmap` in `nf_conntrack_proto_icmp.c` and
/// `nf_conntrack_proto_icmpv6.c`).
const ANSWERS: [(u8, u8); 6] = [(8, 0), (13, 14), (15, 16), (17, 18), (128, 129), (139, 140)];

/// What answers it, or what it answers.
fn answered(echo: Echo) -> Echo {
    let other = ANSWERS.iter().find_map(|&(asks, answers)| match echo.kind {
        kind if kind == asks => Some(answers),
        kind if kind == answers => Some(asks),
        _ => None,
    });
    Echo {
        kind: other.unwrap_or(echo.kind),
        ..echo
    }
}

fn begun(packet: &Packet) -> Conn {
    let original = tuple(packet);
    Conn {
        original,
        reply: inverse(original),
        is_reply: false,
        snat: false,
        dnat: false,
        is_drawn_or_found: false,
        src_settled: false,
        dst_settled: false,
        mark: 0,
        answered: false,
    }
}

fn assumed(packet: &Packet, tracking: Tracking) -> Verdict {
    let settled = !matches!(tracking, Tracking::New | Tracking::Related);
    let conn = Conn {
        src_settled: settled,
        dst_settled: settled,
        answered: tracking == Tracking::Established,
        ..begun(packet)
    };
    let tracked = !matches!(tracking, Tracking::Invalid | Tracking::Untracked);
    Verdict {
        tracking,
        conn: tracked.then_some(conn),
        why: "so it is assumed".to_owned(),
        reopens: None,
    }
}

/// Whether the source and the destination have another address or port in answers.
pub(super) fn translated(original: Tuple, reply: Tuple) -> (bool, bool) {
    let snat = (original.src, original.sport) != (reply.dst, reply.dport);
    let dnat = (original.dst, original.dport) != (reply.src, reply.sport);
    (snat, dnat)
}

/// A packet without an entry.
fn unknown(packet: &Packet, settings: Settings) -> Verdict {
    let why = match packet.protocol {
        Protocol::TCP => match tcp_begins(packet.flags, settings) {
            Ok(why) => why,
            Err(why) => return Verdict::invalid(why),
        },
        protocol if protocol.is_icmp() && !asks(packet) => {
            return Verdict::invalid("this kind of ICMP begins nothing, and answers nothing known");
        }
        _ => "no entry is of these addresses and ports: it begins a connection",
    };
    Verdict {
        tracking: Tracking::New,
        conn: Some(begun(packet)),
        why: why.to_owned(),
        reopens: None,
    }
}

/// Whether a packet ends the entry that it is of, and begins a connection: a SYN after a close. None where it depends on
/// who closed it.
fn begins_again(packet: &Packet, flow: &Flow) -> Option<bool> {
    let tcp = packet.protocol == Protocol::TCP;
    let syn = tcp && Segment::of(packet.flags) == Segment::Syn;
    match flow.state.as_deref() {
        Some("TIME_WAIT") if syn => Some(true),
        Some("CLOSE") if syn => None,
        _ => Some(false),
    }
}

/// The ICMP that conntrack makes entries for: echo, timestamp, information and address mask requests; of IPv6 echo and
/// node information (`nf_conntrack_proto_icmp.c`, `nf_conntrack_proto_icmpv6.c`).
fn asks(packet: &Packet) -> bool {
    let kinds: &[u8] = if packet.protocol == Protocol::ICMP {
        &[8, 13, 15, 17]
    } else {
        &[128, 139]
    };
    kinds.contains(&packet.icmp)
}

/// What a TCP packet out of nowhere does.
fn tcp_begins(flags: TcpFlags, settings: Settings) -> Result<&'static str, &'static str> {
    match Segment::of(flags) {
        Segment::Syn => Ok("no entry is of these addresses and ports: a SYN begins a connection"),
        Segment::Ack if settings.loose => Ok(
            "no entry is of these addresses and ports: it is picked up in its middle (nf_conntrack_tcp_loose)",
        ),
        Segment::Ack => Err(
            "in the middle of a connection that has no entry, and nf_conntrack_tcp_loose is off",
        ),
        Segment::SynAck => Err("a SYN-ACK whose SYN this node did not see"),
        Segment::Fin => Err("a FIN of a connection that has no entry"),
        Segment::Rst => Err("a RST of a connection that has no entry"),
        Segment::None => Err("TCP flags that no connection has"),
    }
}

/// What conntrack takes a TCP packet for (`get_conntrack_index`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segment {
    Syn,
    SynAck,
    Fin,
    Ack,
    Rst,
    None,
}

impl Segment {
    fn of(flags: TcpFlags) -> Self {
        match flags {
            it if it.has(TcpFlags::RST) => Self::Rst,
            it if it.has(TcpFlags::SYN_ACK) => Self::SynAck,
            it if it.has(TcpFlags::SYN) => Self::Syn,
            it if it.has(TcpFlags::FIN) => Self::Fin,
            it if it.has(TcpFlags::ACK) => Self::Ack,
            _ => Self::None,
        }
    }
}

/// What no stack sends (`tcp_valid_flags`; PSH and the congestion flags do not count).
fn malformed(packet: &Packet) -> Option<&'static str> {
    const VALID: [u8; 9] = [0x02, 0x22, 0x12, 0x04, 0x14, 0x11, 0x31, 0x10, 0x30];
    let of = packet.flags.0 & 0x37;
    let is = packet.protocol == Protocol::TCP && !VALID.contains(&of);
    is.then_some("a combination of TCP flags that is not valid")
}

/// Why a TCP packet does not fit the state of its connection (`tcp_conntracks`). Windows are not in a listing: what
/// they would say is not known here.
fn out_of_state(packet: &Packet, flow: &Flow, is_reply: bool) -> Option<String> {
    let state = flow.state.as_deref().unwrap_or("NONE");
    let segment = Segment::of(packet.flags);
    let fits = match (segment, is_reply) {
        (Segment::None, _) => false,
        (Segment::Syn, false) => true,
        (Segment::Syn, true) => matches!(state, "SYN_SENT" | "TIME_WAIT" | "SYN_SENT2"),
        (Segment::SynAck, false) => matches!(state, "SYN_RECV" | "SYN_SENT2"),
        (Segment::Fin, _) => !matches!(state, "NONE" | "SYN_SENT" | "SYN_SENT2"),
        (Segment::Ack, false) => !matches!(state, "SYN_SENT" | "SYN_SENT2"),
        (Segment::Rst, _) | (Segment::SynAck | Segment::Ack, true) => state != "NONE",
    };
    (!fits).then(|| format!("{} does not fit the entry's state {state}", packet.flags))
}
