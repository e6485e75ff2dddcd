//! Packets as bytes.

use std::net::{IpAddr, Ipv4Addr};

use chainbreak_netfilter::walk::{Packet, Protocol, TcpFlags};

/// A packet with its headers, as a raw socket sends it. Numbers are those of a connection whose ends began at 1000 and
/// 5000.
pub(crate) fn bytes(packet: &Packet, is_reply: bool) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) else {
        panic!("packets of IPv4 are made here");
    };
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
    let pseudo = if packet.protocol == Protocol::ICMP {
        Vec::new()
    } else {
        let length = u16::try_from(inner.len()).unwrap().to_be_bytes();
        let mut pseudo = [src.octets(), dst.octets()].concat();
        pseudo.extend([0, packet.protocol.0, length[0], length[1]]);
        pseudo
    };
    let sum = checksum(&[pseudo, inner.clone()].concat());
    inner[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut all = header(src, dst, packet.protocol, inner.len());
    all.extend(inner);
    all
}

fn header(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, inner: usize) -> Vec<u8> {
    let length = u16::try_from(20 + inner).unwrap().to_be_bytes();
    let mut header = vec![
        0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol.0, 0, 0,
    ];
    header.extend(src.octets());
    header.extend(dst.octets());
    header
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

/// Addresses and ports of what a raw socket got.
pub(crate) fn read(bytes: &[u8]) -> Option<Ends> {
    let address = |at: usize| {
        let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::from(octets))
    };
    let inner = usize::from(bytes.first()? & 15) * 4;
    let protocol = Protocol(*bytes.get(9)?);
    let port = |at: usize| {
        let octets: [u8; 2] = bytes.get(inner + at..inner + at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(octets))
    };
    let ports = protocol.has_ports();
    Some(Ends {
        protocol,
        src: address(12)?,
        dst: address(16)?,
        sport: if ports { port(0)? } else { port(4)? },
        dport: if ports { port(2)? } else { 0 },
    })
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
