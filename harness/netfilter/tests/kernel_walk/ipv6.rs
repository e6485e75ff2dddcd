//! A world in IPv6: the same rules and packets, each address of IPv4 in the place of one of IPv6.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use chainbreak_netfilter::{
    Family,
    walk::{Packet, Protocol},
};
use ipnet::Ipv4Net;

use crate::{places::in_ipv6 as of, world::World};

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
    let end = |address: IpAddr, port| match address {
        IpAddr::V4(address) => SocketAddr::new(of(address).into(), port),
        IpAddr::V6(_) => SocketAddr::new(address, port),
    };
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
        self.front.family = Family::V6;
        let line = |line: &str| {
            let words: Vec<String> = line.split(' ').map(word).collect();
            words.join(" ") + "\n"
        };
        self.rules = self.rules.lines().map(line).collect();
        for sent in &mut self.packets {
            packet(&mut sent.packet);
        }
        self
    }
}
