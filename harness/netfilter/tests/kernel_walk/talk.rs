//! What is said over connections: packets that begin them, and those that follow.

use chainbreak_netfilter::walk::{Packet, Protocol, TcpFlags};
use rand::{Rng, RngExt, seq::IndexedRandom};

use crate::{
    packets::Ends,
    places::{OURS, Place},
    world::Sent,
};

/// New connections and what follows on them. No two have one source port.
pub(crate) fn packets<R: Rng>(
    random: &mut R,
    count: usize,
    mut first: impl FnMut(&mut R, u16) -> Sent,
) -> Vec<Sent> {
    let mut sent: Vec<Sent> = Vec::new();
    let mut sport = random.random_range(2000..60000_u16);
    for number in 0..count {
        let earlier = (0..number).filter(|at| sent.get(*at).is_some_and(|it| it.answers.is_none()));
        let earlier: Vec<usize> = earlier.collect();
        let follows = earlier
            .choose(random)
            .copied()
            .filter(|_| random.random_bool(0.55));
        let Some(at) = follows else {
            sport += 1;
            sent.push(first(random, sport));
            continue;
        };
        let mut next = sent[at].clone();
        let answers = random.random_bool(0.6);
        let flags = if answers {
            [
                TcpFlags::SYN_ACK,
                TcpFlags::SYN_ACK,
                TcpFlags::ACK,
                TcpFlags(0x14),
                TcpFlags(0x11),
            ]
        } else {
            [
                TcpFlags::ACK,
                TcpFlags::ACK,
                TcpFlags::SYN,
                TcpFlags(0x11),
                TcpFlags(0x14),
            ]
        };
        if next.packet.protocol == Protocol::TCP {
            next.packet.flags = *flags.choose(random).unwrap();
        }
        next.answers = answers.then_some(at);
        sent.push(next);
    }
    sent
}

/// A packet as a place sends it: one of TCP mostly begins a connection.
pub(crate) fn sent(random: &mut impl Rng, from: Place, mut packet: Packet) -> Sent {
    if packet.protocol == Protocol::TCP {
        let flags = [
            TcpFlags::SYN,
            TcpFlags::SYN,
            TcpFlags::SYN,
            TcpFlags::ACK,
            TcpFlags::SYN_ACK,
            TcpFlags(0x14),
            TcpFlags(0),
        ];
        packet.flags = *flags.choose(random).unwrap();
    }
    match from {
        Place::Client => packet.input = Some("cali1".to_owned()),
        Place::Server => packet.input = Some("eth0".to_owned()),
        Place::Node => packet.mark = OURS | *[0, 0, 0x4000].choose(random).unwrap(),
    }
    Sent {
        from,
        packet,
        answers: None,
    }
}

/// The packet that is to be sent now: an answer goes back from where the packet arrived.
pub(crate) fn follow(sent: &Sent, arrivals: &[Option<(Place, Ends)>]) -> Option<Packet> {
    let Some(answers) = sent.answers else {
        return Some(sent.packet.clone());
    };
    let (place, ends) = arrivals.get(answers).copied().flatten()?;
    if place.is_own(ends.src) {
        return None;
    }
    let input = match place {
        Place::Client => Some("cali1".to_owned()),
        Place::Server => Some("eth0".to_owned()),
        Place::Node => None,
    };
    let (sport, dport) = if ends.protocol.has_ports() {
        (ends.dport, ends.sport)
    } else {
        (ends.sport, 0)
    };
    Some(Packet {
        src: ends.dst,
        dst: ends.src,
        sport,
        dport,
        icmp: if ends.src.is_ipv4() { 0 } else { 129 },
        mark: if input.is_none() { OURS } else { 0 },
        input,
        ..sent.packet.clone()
    })
}

pub(crate) fn place_of(packet: &Packet) -> Place {
    match packet.input.as_deref() {
        Some("cali1") => Place::Client,
        Some(_) => Place::Server,
        None => Place::Node,
    }
}
