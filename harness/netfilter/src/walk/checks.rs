//! What the kernel asks of a received packet before it goes on, by its settings (Linux 6.18, `route.c`,
//! `fib_frontend.c`).

use std::net::IpAddr;

use super::{
    matches::Kind,
    packet::Packet,
    route::{Found, Query},
    state::State,
};
use crate::Family;

impl State {
    /// Why a packet's addresses are those of no packet from outside.
    pub(super) fn martian(&self, packet: &Packet) -> Option<String> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) else {
            return None;
        };
        let input = packet.input.as_deref()?;
        if src.is_multicast() || src.is_broadcast() {
            return Some(format!("no packet comes from {src}"));
        }
        let looped = src.is_loopback() || dst.is_loopback();
        let lets = self.largest(input, "route_localnet") == Some(1);
        (looped && !lets && input != "lo")
            .then(|| format!("127.0.0.0/8 from outside, and route_localnet of {input} is off"))
    }

    /// Why the source is not one that comes by this interface: it is the node's own, or `rp_filter` says so.
    pub(super) fn wrong_source(&self, packet: &Packet) -> Option<String> {
        let (Family::V4, Some(input)) = (self.family, packet.input.as_deref()) else {
            return None;
        };
        let routing = self.routing.as_ref()?;
        let src = packet.src;
        if src.is_unspecified() || input == "lo" {
            return None;
        }
        let filter = self.largest(input, "rp_filter").unwrap_or(0);
        let marked = self.largest(input, "src_valid_mark") == Some(1);
        let found = routing.look(Query::back(packet, marked));
        let back = |kind: &str| Some(format!("rp_filter={filter} of {input}: {src} {kind}"));
        match found {
            Found::Route(Kind::Local, ..) => {
                let accepts = self.largest(input, "accept_local") == Some(1);
                (!accepts).then(|| format!("{src} is the node's own address, but comes by {input}"))
            }
            Found::Route(Kind::Unicast, hops, _) => {
                let strict = filter == 1;
                let here = hops.iter().any(|hop| hop.interface == input);
                if here || !strict {
                    return None;
                }
                let others: Vec<&str> = hops.iter().map(|hop| hop.interface.as_str()).collect();
                back(&format!("is reached by {}", others.join(" or ")))
            }
            Found::Route(kind, ..) if kind == Kind::Broadcast || kind == Kind::Multicast => {
                Some(format!("no packet comes from {src}"))
            }
            Found::Route(..) | Found::Nothing if filter > 0 => back("is not reached"),
            Found::Route(..) | Found::Nothing | Found::Open(_) => None,
        }
    }

    /// Whether what comes by this interface may go on. Without any setting known it may.
    pub(super) fn forwards(&self, input: &str) -> bool {
        let names = match self.family {
            Family::V4 => [
                format!("net.ipv4.conf.{input}.forwarding"),
                "net.ipv4.conf.all.forwarding".to_owned(),
                "net.ipv4.ip_forward".to_owned(),
            ],
            // Linux 6.18, `ip6_output.c`: only `all` counts.
            Family::V6 => std::array::from_fn(|_| "net.ipv6.conf.all.forwarding".to_owned()),
        };
        let known = names.iter().find_map(|name| self.sysctl(name));
        known.is_none_or(|it| it != 0)
    }

    /// The larger one of an interface's setting and that of all; none where neither is known.
    fn largest(&self, interface: &str, setting: &str) -> Option<u32> {
        let of = |name: &str| self.sysctl(&format!("net.ipv4.conf.{name}.{setting}"));
        of(interface).max(of("all"))
    }
}
