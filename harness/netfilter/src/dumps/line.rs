//! What a line is of that stands by itself.

use super::{Kind, address};
use crate::{conntrack::Flow, words::is_number};

/// States of neighbours as `ip neigh` prints them (iproute2, `ip/ipneigh.c`).
const NEIGHBOURS: [&str; 9] = [
    "REACHABLE",
    "STALE",
    "DELAY",
    "PROBE",
    "FAILED",
    "INCOMPLETE",
    "PERMANENT",
    "NOARP",
    "NONE",
];

/// What it is of; none where it is of nothing that is known, or of the node's neighbours, which begin as routes do.
pub(super) fn kind(line: &str) -> Option<Kind> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_net = |text: &str| address(text).is_some();
    match *words.as_slice() {
        ["create" | "add", _, _, ..] if line.starts_with("create ") || line.starts_with("add ") => {
            Some(Kind::Sets)
        }
        [cpu, _, ..] if line.starts_with("cpu=") && is_number(cpu.trim_start_matches("cpu=")) => {
            Some(Kind::Statistics)
        }
        ["nexthop", "via" | "dev", ..] => Some(Kind::Routes),
        ["inet" | "inet6", address, ..] if is_net(address) => Some(Kind::Addresses),
        [number, "from", ..] | [number, "not", "from", ..] if number.ends_with(':') => {
            Some(Kind::Rules)
        }
        [number, name, ..]
            if number.strip_suffix(':').is_some_and(is_number)
                && (name.ends_with(':') || words.contains(&"inet") || words.contains(&"inet6")) =>
        {
            Some(Kind::Addresses)
        }
        [name, "=", ..] if name.starts_with("net.") || name.starts_with("net/") => {
            Some(Kind::Sysctls)
        }
        [
            "local" | "broadcast" | "anycast" | "multicast" | "blackhole" | "unreachable"
            | "prohibit" | "throw" | "unicast",
            net,
            ..,
        ] if is_net(net) || net == "default" => Some(Kind::Routes),
        [
            "default",
            "via" | "dev" | "nhid" | "proto" | "metric" | "scope" | "table",
            ..,
        ] => Some(Kind::Routes),
        [_, "dev", ..] if words.iter().any(|it| NEIGHBOURS.contains(it)) => None,
        [net, "dev" | "via" | "proto" | "metric" | "nhid", ..] if is_net(net) => Some(Kind::Routes),
        _ => Flow::parse(line.trim()).map(|_| Kind::Flows),
    }
}
