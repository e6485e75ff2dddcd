//! The packet that a command line asks about.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use chainbreak_netfilter::{
    Family,
    dumps::Dumps,
    walk::{Origin, Packet, Protocol, TcpFlags},
};

use crate::{args::Explain, cases::invalid};

/// A port that clients have (Linux's `ip_local_port_range` begins at 32768).
const CLIENT_PORT: u16 = 40_000;
/// As which interface the node itself is given.
const NODE: &str = "node";

/// Between whom a packet goes.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) src: End,
    pub(super) dst: End,
    pub(super) input: Input,
}

/// Where a packet comes from, as seen from the node.
#[derive(Debug, Clone)]
pub(super) enum Input {
    /// It is made on the node.
    Here,
    /// By this interface.
    By(String),
    /// As the node's routes lead to its source.
    AsRoutesLead,
}

/// An address, with or without a port.
pub(super) type End = (IpAddr, Option<u16>);

pub(super) fn packet(args: &Explain, ends: &Ends, dumps: &Dumps) -> Result<Packet> {
    let protocol = protocol(args)?;
    let ((src, sport), (dst, dport)) = (ends.src, ends.dst);
    if src.is_ipv4() != dst.is_ipv4() {
        return Err(invalid(format!("{src} and {dst} are of two families")));
    }
    if protocol.has_ports() && dport.is_none() {
        return Err(invalid(format!(
            "TO:PORT: {protocol} has ports: {}",
            with_port(dst)
        )));
    }
    let (sport, dport) = match protocol {
        it if it.has_ports() => (sport.unwrap_or(CLIENT_PORT), dport.unwrap_or(0)),
        // An echo's identifier.
        it if it.is_icmp() => (sport.unwrap_or(0), 0),
        _ => (0, 0),
    };
    let (from, to) = (SocketAddr::new(src, sport), SocketAddr::new(dst, dport));
    let mut packet = Packet::new(protocol, from, to);
    if protocol == Protocol::TCP {
        packet.flags = flags(args)?;
    }
    packet.mark = args.mark.unwrap_or_default();
    packet.tracking = args.state.map(Into::into);
    packet.input = match &ends.input {
        Input::Here if args.input.is_none() => None,
        Input::By(name) if args.input.is_none() => Some(name.clone()),
        _ => input(args, dumps, src)?,
    };
    Ok(packet)
}

pub(super) fn protocol(args: &Explain) -> Result<Protocol> {
    Protocol::parse(&args.protocol).ok_or_else(|| {
        invalid(format!(
            "--protocol: {:?} is none; tcp, udp, sctp, icmp or a number",
            args.protocol
        ))
    })
}

fn flags(args: &Explain) -> Result<TcpFlags> {
    let Some(given) = &args.flags else {
        return Ok(TcpFlags::SYN);
    };
    TcpFlags::parse(given).ok_or_else(|| {
        invalid(format!(
            "--flags: {given:?} is none; as SYN, SYN,ACK or FIN,ACK"
        ))
    })
}

/// By which interface it comes: as said, else as the node's routes lead to its source.
fn input(args: &Explain, dumps: &Dumps, src: IpAddr) -> Result<Option<String>> {
    match args.input.as_deref() {
        Some(NODE) => return Ok(None),
        Some(name) => return Ok(Some(name.to_owned())),
        None => {}
    }
    let family = if src.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    let say = "say by which interface it comes with --in, as --in eth0, or --in node for what a program on the node sends";
    let Some(routing) = dumps.routing(family) else {
        return Err(invalid(format!("no `ip route` is among the dumps: {say}")));
    };
    match routing.origin(src) {
        Some(Origin::Here) => Ok(None),
        Some(Origin::By(name)) => Ok(Some(name)),
        None => Err(invalid(format!("the node has no route to {src}: {say}"))),
    }
}

/// Reads an end that is given by its address.
pub(super) fn end(text: &str, name: &str) -> Result<End> {
    address(text).ok_or_else(|| {
        invalid(format!(
            "{name}: {text:?} is no address; as 10.96.0.10:53 or [fd00::a]:53. Names are not looked up in dumps"
        ))
    })
}

/// An address as it is written, with or without a port.
pub(super) fn address(text: &str) -> Option<End> {
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Some((end.ip(), Some(end.port())));
    }
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    Some((bare.unwrap_or(text).parse().ok()?, None))
}

fn with_port(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 80)
}
