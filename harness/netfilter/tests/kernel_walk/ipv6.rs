//! A world in IPv6: the same rules and packets, each address of IPv4 in the place of one of IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use chainbreak_netfilter::{
    Family,
    walk::{Packet, Protocol},
};
use ipnet::Ipv4Net;

use crate::world::World;

/// `fd0a:1:2::9` for `10.1.2.9`.
pub(crate) fn of(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets().map(u16::from);
    Ipv6Addr::new(0xfd00 | a, b, c, 0, 0, 0, 0, d)
}

/// The address of IPv4 that an address stands for; itself where it is one.
pub(crate) fn back(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => {
            let octet = |at: usize| address.segments()[at].to_be_bytes()[1];
            Ipv4Addr::new(octet(0), octet(1), octet(2), octet(7))
        }
    }
}

/// How long the prefix of a network is that stands for one of IPv4.
fn length(length: u8) -> u8 {
    match length {
        8 => 16,
        16 => 32,
        24 => 48,
        _ => 128,
    }
}

/// A word of a rule: addresses, networks, addresses with ports, and what a sender is told.
fn word(word: &str) -> String {
    if let Ok(net) = word.parse::<Ipv4Net>() {
        return format!("{}/{}", of(net.addr()), length(net.prefix_len()));
    }
    if let Ok(end) = word.parse::<SocketAddrV4>() {
        return format!("[{}]:{}", of(*end.ip()), end.port());
    }
    match word.parse::<Ipv4Addr>() {
        Ok(address) => of(address).to_string(),
        Err(_) => word.replace("icmp-port-unreachable", "icmp6-port-unreachable"),
    }
}

fn packet(packet: &mut Packet) {
    let end = |address: IpAddr, port| SocketAddr::new(of(back(address)).into(), port);
    let protocol = match packet.protocol {
        Protocol::ICMP => Protocol::ICMPV6,
        other => other,
    };
    let (from, to) = (end(packet.src, packet.sport), end(packet.dst, packet.dport));
    *packet = Packet {
        input: packet.input.take(),
        mark: packet.mark,
        flags: packet.flags,
        ..Packet::new(protocol, from, to)
    };
}

impl World {
    /// The same in IPv6.
    pub(crate) fn in_ipv6(mut self) -> Self {
        self.family = Family::V6;
        for (_, _, rule) in &mut self.rules {
            let words: Vec<String> = rule.split(' ').map(word).collect();
            *rule = words.join(" ");
        }
        for sent in &mut self.packets {
            packet(&mut sent.packet);
        }
        self
    }
}
