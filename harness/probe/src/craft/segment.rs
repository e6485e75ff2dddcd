//! TCP segments as bytes: read from IP packets, and made.

use std::net::{IpAddr, SocketAddr};

/// The flags of a segment's header.
pub(crate) mod flags {
    pub(crate) const FIN: u8 = 0x01;
    pub(crate) const SYN: u8 = 0x02;
    pub(crate) const RST: u8 = 0x04;
    pub(crate) const PSH: u8 = 0x08;
    pub(crate) const ACK: u8 = 0x10;
}

const TCP: u8 = 6;
const HEADER: usize = 20;
const CHECKSUM: usize = 16;

/// A segment, and the bytes of it after the IP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// How far it moves the sequence number: data, SYN and FIN.
    pub(crate) length: u32,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The TCP segment in an IP packet. `None` for anything else: other protocols, fragments, IPv6 with
    /// extension headers.
    pub(crate) fn read(packet: &'a [u8]) -> Option<Self> {
        let (from, to, bytes) = match packet.first()? >> 4 {
            4 => read_ipv4(packet)?,
            6 => read_ipv6(packet)?,
            _ => return None,
        };
        let half = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let header = usize::from(bytes.get(12)? >> 4) * 4;
        let flags = *bytes.get(13)?;
        let data = u32::try_from(bytes.len().checked_sub(header)?).ok()?;
        let counted = (flags & (flags::SYN | flags::FIN)).count_ones();
        Some(Self {
            from: SocketAddr::new(from, half(0)?),
            to: SocketAddr::new(to, half(2)?),
            seq: word(4)?,
            ack: word(8)?,
            flags,
            length: data + counted,
            bytes,
        })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

type Payload<'a> = (IpAddr, IpAddr, &'a [u8]);

fn read_ipv4(packet: &[u8]) -> Option<Payload<'_>> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x3fff;
    if *packet.get(9)? != TCP || fragment != 0 {
        return None;
    }
    let address = |at: usize| Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into());
    Some((address(12)?, address(16)?, packet.get(header..total)?))
}

fn read_ipv6(packet: &[u8]) -> Option<Payload<'_>> {
    let length = usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
    if *packet.get(6)? != TCP {
        return None;
    }
    let address = |at: usize| Some(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?.into());
    Some((address(8)?, address(24)?, packet.get(40..40 + length)?))
}

/// A segment to be made. Its checksum is right unless [`Made::spoil`] was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Made {
    from: SocketAddr,
    to: SocketAddr,
    tcp: Vec<u8>,
}

impl Made {
    pub(crate) fn new(
        (from, to): (SocketAddr, SocketAddr),
        (seq, ack): (u32, u32),
        flags: u8,
        data: &[u8],
    ) -> Self {
        let mut tcp = Vec::with_capacity(HEADER + data.len());
        tcp.extend(from.port().to_be_bytes());
        tcp.extend(to.port().to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        // Five words of header; a window as a connection without much to do has it; no urgent data.
        tcp.extend([5 << 4, flags]);
        tcp.extend(502_u16.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(data);
        let sum = checksum(from.ip(), to.ip(), &tcp).to_be_bytes();
        tcp.splice(CHECKSUM..CHECKSUM + 2, sum);
        Self { from, to, tcp }
    }

    /// Makes the checksum wrong.
    pub(crate) fn spoil(mut self) -> Self {
        self.tcp[CHECKSUM] ^= 0xff;
        self
    }

    /// Where it goes.
    pub(crate) fn to(&self) -> IpAddr {
        self.to.ip()
    }

    /// Header and data of the segment.
    pub(crate) fn tcp(&self) -> &[u8] {
        &self.tcp
    }

    /// The whole IP packet. Of IPv4, identification and checksum are the kernel's to fill in (`raw(7)`).
    pub(crate) fn packet(&self) -> Vec<u8> {
        let length = u16::try_from(self.tcp.len()).expect("a crafted segment is short");
        let mut packet = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut header = vec![0x45, 0];
                header.extend((20 + length).to_be_bytes());
                header.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
                header
            }
            (from, to) => {
                let mut header = vec![0x60, 0, 0, 0];
                header.extend(length.to_be_bytes());
                header.extend([TCP, 64]);
                header.extend(octets(from));
                header.extend(octets(to));
                header
            }
        };
        packet.extend(&self.tcp);
        packet
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The Internet checksum over pseudo header and segment, whose own checksum field is zero, or right: then
/// the result is 0.
fn checksum(from: IpAddr, to: IpAddr, tcp: &[u8]) -> u16 {
    let mut bytes = octets(from);
    bytes.extend(octets(to));
    bytes.extend([0, TCP]);
    bytes.extend(u16::try_from(tcp.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend(tcp);
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        odd => u32::from(odd[0]) << 8,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded into sixteen bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(from: &str, to: &str) -> Made {
        let ends = (from.parse().unwrap(), to.parse().unwrap());
        Made::new(ends, (7, 9), flags::PSH | flags::ACK, b"odd")
    }

    #[test]
    fn a_made_segment_reads_back_in_both_families() {
        for (from, to) in [
            ("10.0.0.1:80", "10.0.0.2:4000"),
            ("[fd00::1]:80", "[fd00::2]:4000"),
        ] {
            let made = made(from, to);
            let packet = made.packet();
            let segment = Segment::read(&packet).unwrap();
            assert_eq!((segment.from, segment.to), (made.from, made.to));
            assert_eq!((segment.seq, segment.ack, segment.length), (7, 9, 3));
            assert!(segment.has(flags::PSH) && !segment.has(flags::RST));
            assert_eq!(segment.bytes, made.tcp());
        }
    }

    #[test]
    fn the_checksum_is_right_unless_it_was_spoilt() {
        for (from, to) in [
            ("10.0.0.1:80", "10.0.0.2:4000"),
            ("[fd00::1]:80", "[fd00::2]:4000"),
        ] {
            let made = made(from, to);
            let sum = |made: &Made| checksum(made.from.ip(), made.to.ip(), &made.tcp);
            assert_eq!(sum(&made), 0);
            assert_ne!(sum(&made.spoil()), 0);
        }
    }

    #[test]
    fn what_is_no_whole_tcp_segment_is_not_read() {
        let packet = made("10.0.0.1:80", "10.0.0.2:4000").packet();
        let but = |at: usize, byte: u8| {
            let mut other = packet.clone();
            other[at] = byte;
            other
        };
        assert_eq!(Segment::read(&but(9, 17)), None, "UDP");
        assert_eq!(Segment::read(&but(6, 0x20)), None, "a fragment");
        assert_eq!(Segment::read(&packet[..30]), None, "cut off");
        assert_eq!(Segment::read(&[]), None);
    }
}
