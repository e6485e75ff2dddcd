//! One rule of a listing.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{
    behind::{Behind, turned, word},
    counters,
};
use crate::Family;

/// Whether a line begins as a rule does: with how often it matched.
pub(super) fn has_counters(line: &str) -> bool {
    let Some((packets, rest)) = word(line) else {
        return false;
    };
    let bytes = word(rest).map_or("", |(bytes, _)| bytes);
    counters(packets, bytes).is_some()
}

/// What a listing has of a rule in columns, and behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    pub(super) packets: &'a str,
    pub(super) bytes: &'a str,
    pub(super) family: Family,
    pub(super) target: Option<&'a str>,
    protocol: &'a str,
    of_fragments: Option<&'a str>,
    interfaces: [&'a str; 2],
    addresses: [&'a str; 2],
    /// Matches and the target's options.
    rest: &'a str,
}

impl<'a> Fields<'a> {
    /// `0 0 DNAT 6 -- * * 0.0.0.0/0 0.0.0.0/0 /* test/web */ tcp to:10.20.1.3:80`. A rule may have no target, and of IPv6, in old versions, no
    /// third column of options: the addresses say where they end.
    pub(super) fn read(line: &'a str) -> Option<Self> {
        let (mut words, mut rest) = (Vec::new(), line);
        loop {
            let (next, behind) = word(rest)?;
            words.push(next);
            rest = behind;
            if let [.., source, destination] = words.as_slice()
                && family(source).is_some()
                && family(source) == family(destination)
            {
                break;
            }
            // Nine columns at most.
            (words.len() < 9).then_some(())?;
        }
        let (packets, bytes) = (*words.first()?, *words.get(1)?);
        let [.., input, output, source, destination] = *words.as_slice() else {
            return None;
        };
        let middle = words.get(2..words.len().checked_sub(4)?)?;
        let options = ["--", "-f", "!f"];
        let (options, middle) = match middle {
            [middle @ .., last] if options.contains(last) => (Some(*last), middle),
            _ => (None, middle),
        };
        let (target, protocol) = match *middle {
            [target, protocol] => (Some(target), protocol),
            [protocol] => (None, protocol),
            _ => return None,
        };
        // Listed without `-n`, where names stand for addresses and ports, too.
        let is_named = [input, output].contains(&"any");
        (!is_named).then_some(Self {
            packets,
            bytes,
            family: family(source)?,
            target,
            protocol,
            of_fragments: options.filter(|it| *it != "--"),
            interfaces: [input, output],
            addresses: [source, destination],
            rest,
        })
    }

    /// As `iptables-save` prints it, behind its chain.
    pub(super) fn save(&self) -> String {
        let mut words = Vec::new();
        for (option, address) in ["-s", "-d"].into_iter().zip(self.addresses) {
            let (not, address) = turned(address);
            if address != "0.0.0.0/0" && address != "::/0" || !not.is_empty() {
                words.extend([format!("{not}{option}"), whole(address)]);
            }
        }
        for (option, interface) in ["-i", "-o"].into_iter().zip(self.interfaces) {
            let (not, interface) = turned(interface);
            if interface != "*" {
                words.extend([format!("{not}{option}"), interface.to_owned()]);
            }
        }
        let (not, protocol) = turned(self.protocol);
        if protocol != "0" && protocol != "all" {
            words.extend([format!("{not}-p"), named(protocol).to_owned()]);
        }
        words.extend(self.of_fragments.map(|it| match it {
            "!f" => "! -f".to_owned(),
            _ => "-f".to_owned(),
        }));
        let Behind {
            matches,
            options,
            goes,
            alias,
        } = Behind::read(self.rest, self.target.unwrap_or_default());
        words.extend(matches);
        if let Some(target) = alias.or(self.target) {
            let how = if goes { "-g" } else { "-j" };
            words.extend([how.to_owned(), target.to_owned()]);
        }
        words.extend(options);
        words.join(" ")
    }
}

/// Of which family an address or a network is, if it is one.
fn family(text: &str) -> Option<Family> {
    let (_, text) = turned(text);
    let ip: IpAddr = match text.parse::<IpNet>() {
        Ok(net) => net.addr(),
        Err(_) => text.parse().ok()?,
    };
    Some(if ip.is_ipv4() { Family::V4 } else { Family::V6 })
}

/// An address with the length that a listing leaves out.
fn whole(address: &str) -> String {
    let net = address.parse::<IpAddr>().map(IpNet::from);
    net.map_or_else(|_| address.to_owned(), |net| net.to_string())
}

/// A protocol's number by the name that `iptables-save` prints.
fn named(protocol: &str) -> &str {
    match protocol {
        "1" => "icmp",
        "4" => "ipencap",
        "6" => "tcp",
        "17" => "udp",
        "47" => "gre",
        "50" => "esp",
        // As ip6tables 1.8.7 lists it.
        "58" | "icmpv6" => "ipv6-icmp",
        "132" => "sctp",
        other => other,
    }
}
