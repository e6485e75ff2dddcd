//! Which addresses, ports and identifiers a connection gets that begins (Linux 6.18, `get_unique_tuple` and
//! `nf_nat_l4proto_unique_tuple` of `nf_nat_core.c`).

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    conntrack::{inverse, source, tuple},
    flight::Conn,
    packet::Packet,
    path::Effect,
    rules::Port,
    state::State,
    walker::Walker,
};
use crate::conntrack::Tuple;

/// How many identifiers the kernel tries from 0 before it draws one (`NF_NAT_MAX_ATTEMPTS`).
pub(super) const ATTEMPTS: u16 = 128;

impl Walker<'_> {
    /// Gives it a destination; what is none stays.
    pub(super) fn dnat(&mut self, address: Option<IpAddr>, port: Option<u16>) -> Effect {
        let Some(conn) = &mut self.flight.conn else {
            return Effect::Unchanged;
        };
        let packet = &mut self.flight.packet;
        let before = tuple(packet);
        packet.dst = address.unwrap_or(packet.dst);
        if packet.protocol.has_ports() {
            packet.dport = port.unwrap_or(packet.dport);
        }
        // Ports stay where a rule has none; an identifier is found from 0 on.
        if packet.protocol.is_icmp() && !self.state.is_free(packet, packet.sport, conn) {
            let free = |id: &u16| self.state.is_free(packet, *id, conn);
            packet.sport = (0..ATTEMPTS).find(free).unwrap_or(0);
        }
        conn.dst_settled = true;
        conn.dnat |= before != tuple(packet);
        conn.reply = inverse(tuple(packet));
        Effect::Dnat(packet.dst, packet.dport)
    }

    /// Gives it a source; without an address it is one that is not known here.
    pub(super) fn snat(&mut self, address: Option<IpAddr>, port: Port) -> Effect {
        let Some(conn) = &mut self.flight.conn else {
            return Effect::Unchanged;
        };
        let packet = &mut self.flight.packet;
        let before = tuple(packet);
        packet.src = address.unwrap_or(packet.src);
        let has_ports = packet.protocol.has_ports();
        let is_numbered = has_ports || packet.protocol.is_icmp();
        packet.sport = match port {
            Port::Is(port) if has_ports => port,
            Port::Drawn if is_numbered => 0,
            Port::Kept if is_numbered => self.state.kept(packet, before, conn),
            _ => packet.sport,
        };
        conn.src_settled = true;
        conn.snat |= address.is_none() || before != tuple(packet);
        conn.reply = inverse(tuple(packet));
        if packet.sport == 0 {
            conn.reply.dport = None;
            conn.reply.echo = None;
        }
        Effect::Snat(address, packet.sport)
    }
}

impl State {
    /// Whether with this source port or identifier no other connection has the tuple of its answers.
    fn is_free(&self, packet: &Packet, sport: u16, conn: &Conn) -> bool {
        let with = Packet {
            sport,
            ..packet.clone()
        };
        let answers = inverse(tuple(&with));
        let connections = &self.connections;
        !connections.has(packet.protocol, answers, conn.original)
    }

    /// The source port or identifier that it gets where it may keep its own: what the same source was given before at
    /// the new address, else its own; 0, one that is drawn, where others have these.
    fn kept(&self, packet: &Packet, before: Tuple, conn: &Conn) -> u16 {
        let connections = &self.connections;
        let given = connections.given(packet.protocol, source(before), packet.src);
        let given: BTreeSet<u16> = given.filter(|_| packet.src != before.src).collect();
        if given.len() > 1 {
            // The latest one, which no listing tells.
            return 0;
        }
        let mut kept = given.into_iter().chain([packet.sport]);
        let free = |sport: &u16| self.is_free(packet, *sport, conn);
        kept.find(free).unwrap_or(0)
    }
}
