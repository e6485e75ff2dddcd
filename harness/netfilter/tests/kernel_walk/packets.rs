//! Packets as bytes.

use std::net::IpAddr;

use chainbreak_netfilter::walk::{Packet, Protocol, TcpFlags};

/// A packet with its headers, as a raw socket sends it. Numbers are those of a connection whose ends began at 1000 and
/// 5000.
pub(crate) fn bytes(packet: &Packet, is_reply: bool) -> Vec<u8> {
    let mut inner = match packet.protocol {
        Protocol::TCP => tcp(packet, is_reply),
        Protocol::UDP => udp(packet),
        _ => icmp(packet),
    };
    let at = match packet.protocol {
        Protocol::TCP => 16,
        Protocol::UDP => 6,
        _ => 2,
    };
    let addresses = [packet.src, packet.dst].map(octets).concat();
    let length = u16::try_from(inner.len()).unwrap();
    let pseudo = if packet.protocol == Protocol::ICMP {
        Vec::new()
    } else {
        let [high, low] = length.to_be_bytes();
        [&addresses, &[0, packet.protocol.0, high, low][..]].concat()
    };
    let sum = checksum(&[pseudo, inner.clone()].concat());
    inner[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    [header(packet, length), addresses, inner].concat()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The header before its addresses.
fn header(packet: &Packet, inner: u16) -> Vec<u8> {
    let protocol = packet.protocol.0;
    let whole = if packet.src.is_ipv4() {
        20 + inner
    } else {
        inner
    };
    let [high, low] = whole.to_be_bytes();
    if packet.src.is_ipv4() {
        vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0]
    } else {
        vec![0x60, 0, 0, 0, high, low, protocol, 64]
    }
}

fn tcp(packet: &Packet, is_reply: bool) -> Vec<u8> {
    let begins = packet.flags.has(TcpFlags::SYN);
    let (own, other): (u32, u32) = if is_reply { (5000, 1000) } else { (1000, 5000) };
    let seq = if begins { own } else { own + 1 };
    let ack = if packet.flags.has(TcpFlags::ACK) {
        other + 1
    } else {
        0
    };
    let mut tcp = [packet.sport.to_be_bytes(), packet.dport.to_be_bytes()].concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([0x50, packet.flags.0, 0xff, 0xff, 0, 0, 0, 0]);
    tcp
}

fn udp(packet: &Packet) -> Vec<u8> {
    let mut udp = [packet.sport.to_be_bytes(), packet.dport.to_be_bytes()].concat();
    udp.extend([0, 10, 0, 0, b'c', b'b']);
    udp
}

/// An echo whose identifier is the packet's source port.
fn icmp(packet: &Packet) -> Vec<u8> {
    let id = packet.sport.to_be_bytes();
    vec![packet.icmp, 0, 0, 0, id[0], id[1], 0, 1, b'c', b'b']
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// Addresses and ports of what a raw socket of IPv4 got: a packet with its header.
pub(crate) fn read(bytes: &[u8]) -> Option<Ends> {
    let address = |at: usize| {
        let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::from(octets))
    };
    let inner = usize::from(bytes.first()? & 15) * 4;
    let protocol = Protocol(*bytes.get(9)?);
    Ends::of(protocol, (address(12)?, address(16)?), bytes.get(inner..)?)
}

/// What of a packet is compared where it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) protocol: Protocol,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Of an echo, its identifier.
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

impl Ends {
    /// Of what is in a packet; none where that is no echo.
    pub(crate) fn of(
        protocol: Protocol,
        (src, dst): (IpAddr, IpAddr),
        inner: &[u8],
    ) -> Option<Self> {
        let port = |at: usize| {
            let octets: [u8; 2] = inner.get(at..at + 2)?.try_into().ok()?;
            Some(u16::from_be_bytes(octets))
        };
        let ports = protocol.has_ports();
        // Neighbours tell each other of themselves in IPv6's own ICMP.
        let is_other = protocol == Protocol::ICMPV6 && !matches!(inner.first()?, 128 | 129);
        let sport = if ports { port(0)? } else { port(4)? };
        (!is_other).then_some(Self {
            protocol,
            src,
            dst,
            sport,
            dport: if ports { port(2)? } else { 0 },
        })
    }

    /// Whether this is the packet; a source port or an identifier of 0 is any.
    pub(crate) fn is(&self, packet: &Packet) -> bool {
        let expected = Self {
            protocol: packet.protocol,
            src: packet.src,
            dst: packet.dst,
            sport: if packet.sport == 0 {
                self.sport
            } else {
                packet.sport
            },
            dport: packet.dport,
        };
        *self == expected
    }
}
