//! A packet as a node meets it, and the names of what is in it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

use crate::Family;

/// The protocol that an IP packet carries, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP of IPv4.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMP of IPv6.
    pub const ICMPV6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);

    /// Names as iptables, nft and conntrack print them (`/etc/protocols`).
    const NAMES: [(&'static str, u8); 13] = [
        ("icmp", 1),
        ("igmp", 2),
        ("ipencap", 4),
        ("ipip", 4),
        ("tcp", 6),
        ("udp", 17),
        ("ipv6", 41),
        ("gre", 47),
        ("esp", 50),
        ("ipv6-icmp", 58),
        ("icmpv6", 58),
        ("sctp", 132),
        ("udplite", 136),
    ];

    /// A protocol by its name or number.
    pub fn parse(text: &str) -> Option<Self> {
        let named = Self::NAMES.iter().find(|(name, _)| *name == text);
        let number = named.map_or_else(|| text.parse().ok(), |(_, number)| Some(*number))?;
        Some(Self(number))
    }

    /// Whether it has ports.
    pub fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 33 | 132 | 136)
    }

    /// Whether it is the ICMP of either family.
    pub fn is_icmp(self) -> bool {
        self == Self::ICMP || self == Self::ICMPV6
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}

/// TCP's flags, as they stand in its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// FIN.
    pub const FIN: Self = Self(1);
    /// SYN: a connection begins.
    pub const SYN: Self = Self(2);
    /// RST.
    pub const RST: Self = Self(4);
    /// PSH.
    pub const PSH: Self = Self(8);
    /// ACK.
    pub const ACK: Self = Self(16);
    /// URG.
    pub const URG: Self = Self(32);
    /// SYN and ACK: a connection is answered.
    pub const SYN_ACK: Self = Self(18);

    const NAMES: [(&'static str, Self); 6] = [
        ("FIN", Self::FIN),
        ("SYN", Self::SYN),
        ("RST", Self::RST),
        ("PSH", Self::PSH),
        ("ACK", Self::ACK),
        ("URG", Self::URG),
    ];

    /// Reads `SYN,ACK`, `ALL` or `NONE`, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        let flag = |name: &str| match name.to_ascii_uppercase().as_str() {
            "ALL" => Some(0x3f),
            "NONE" => Some(0),
            name => {
                let known = Self::NAMES.iter().find(|(known, _)| *known == name);
                known.map(|(_, flag)| flag.0)
            }
        };
        text.split(',')
            .try_fold(0, |all, name| Some(all | flag(name)?))
            .map(Self)
    }

    /// Whether all of these are set.
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(_, flag)| self.has(*flag));
        let names: Vec<&str> = set.map(|(name, _)| *name).collect();
        f.pad(&if names.is_empty() {
            "no flags".to_owned()
        } else {
            names.join(",")
        })
    }
}

/// What conntrack makes of a packet, as `--ctstate` and `ct state` have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tracking {
    /// Its connection has seen no answer yet, or there is none.
    New,
    /// Its connection was answered, or this is the answer.
    Established,
    /// It begins something, or tells an error, of another connection.
    Related,
    /// It belongs to no connection and cannot begin one.
    Invalid,
    /// Conntrack was told not to look at it.
    Untracked,
}

impl Tracking {
    /// As rules name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Established => "ESTABLISHED",
            Self::Related => "RELATED",
            Self::Invalid => "INVALID",
            Self::Untracked => "UNTRACKED",
        }
    }
}

impl fmt::Display for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A packet as it comes to a node, or as a program on the node makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Packet {
    /// What it carries.
    pub protocol: Protocol,
    /// From.
    pub src: IpAddr,
    /// To; of the same family.
    pub dst: IpAddr,
    /// From which port; 0 where the protocol has none. Of ICMP its identifier.
    #[serde(default)]
    pub sport: u16,
    /// To which port; 0 where the protocol has none.
    #[serde(default)]
    pub dport: u16,
    /// The interface that it comes in by; none when it is made on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Its mark (`SO_MARK`, or of a program that has seen it before).
    #[serde(default)]
    pub mark: u32,
    /// TCP's flags.
    #[serde(default)]
    pub flags: TcpFlags,
    /// ICMP's type: 8 and 128 ask for an echo.
    #[serde(default)]
    pub icmp: u8,
    /// What conntrack makes of it, where that is to be assumed instead of found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking: Option<Tracking>,
}

impl Packet {
    /// The first packet of a TCP connection, made on the node.
    pub fn syn(from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            flags: TcpFlags::SYN,
            ..Self::new(Protocol::TCP, from, to)
        }
    }

    /// A packet without flags, mark or state, made on the node.
    pub fn new(protocol: Protocol, from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            protocol,
            src: from.ip(),
            dst: to.ip(),
            sport: from.port(),
            dport: to.port(),
            input: None,
            mark: 0,
            flags: TcpFlags::default(),
            icmp: if from.is_ipv4() { 8 } else { 128 },
            tracking: None,
        }
    }

    /// The same, received by an interface.
    #[must_use]
    pub fn by(mut self, interface: impl Into<String>) -> Self {
        self.input = Some(interface.into());
        self
    }

    /// Its family.
    pub fn family(&self) -> Family {
        if self.dst.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        }
    }
}

/// `tcp 10.0.0.1:40000 → 10.96.0.10:53 SYN`.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, src, dst) = (self.protocol, self.src, self.dst);
        if !protocol.has_ports() {
            return write!(f, "{protocol} {src} → {dst}");
        }
        let end = SocketAddr::new;
        let (from, to) = (end(src, self.sport), end(dst, self.dport));
        write!(f, "{protocol} {from} → {to}")?;
        if protocol == Protocol::TCP {
            write!(f, " {}", self.flags)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_protocols_are_read_as_iptables_prints_them() {
        assert_eq!(TcpFlags::parse("SYN,ACK"), Some(TcpFlags::SYN_ACK));
        assert_eq!(TcpFlags::parse("NONE"), Some(TcpFlags(0)));
        assert_eq!(TcpFlags::parse("SYN,XYZ"), None);
        assert_eq!(Protocol::parse("ipencap"), Some(Protocol(4)));
        assert_eq!(Protocol::parse("253"), Some(Protocol(253)));
        assert_eq!(Protocol::parse("nonsense"), None);
    }
}
