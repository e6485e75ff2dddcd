//! What Felix's eBPF programs know beside the NAT map, as `calico-node -bpf conntrack dump`, `routes dump` and `ipsets dump` print it (read in
//! Calico's sources, v3.28 and v3.32: felix/cmd/calico-bpf/commands/conntrack.go and ipsets.go, felix/bpf/routes/map.go; seen of v3.32.1), and the
//! policies that it notes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use serde_json::Value;

use super::{Kind, felix_sets::FelixSets};
use crate::{
    Family,
    walk::{Policies, Protocol},
};

/// Flags of a route's addresses, and the others with which one may begin.
const FLAGS: [&str; 7] = [
    "local",
    "host",
    "workload",
    "in-pool",
    "nat-out",
    "blackhole-drop",
    "blackhole-reject",
];
const OTHER_FLAG: &str = "remote";

/// Their maps, of each family for itself: a dump is of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FelixMaps {
    flows: BTreeMap<Tuple, Known>,
    /// By the length of their prefix: the longest counts.
    routes: BTreeMap<u8, BTreeMap<IpNet, BTreeSet<&'static str>>>,
    sets: FelixSets,
    policies: Policies,
    dumped: BTreeSet<(Kind, Family)>,
    /// Of which something was not understood.
    unknown: BTreeSet<Kind>,
}

/// What the programs make of a packet of a connection that they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It goes on to there.
    To {
        /// Where.
        dst: SocketAddr,
        /// Whether both ends' policies have let it pass: of a TCP connection that is established.
        is_approved: bool,
    },
    /// It is an answer, which the client gets as from there.
    From(SocketAddr),
    /// It is of one of which the dump does not tell the whole way: in a tunnel, or with another source port.
    Elsewhere,
    /// It is of none that they know.
    Nothing,
    /// The flows of its protocol and family were not dumped.
    NotDumped,
}

/// A packet's protocol and ends.
pub(crate) type Tuple = (Protocol, SocketAddr, SocketAddr);

impl FelixMaps {
    /// Takes in a line of theirs; nothing where it is none.
    pub(super) fn take(&mut self, line: &str) -> Option<Kind> {
        if self.sets.take(line).is_some() {
            return Some(Kind::FelixSets);
        }
        if self.policies.take(line).is_some() {
            return Some(Kind::FelixPolicies);
        }
        let (kind, ip) = self.take_flow(line).or_else(|| self.take_route(line))?;
        self.dumped.insert((kind, family(ip)));
        Some(kind)
    }

    /// Takes in one of them as JSON (`--json`, from v3.32 on, as `calicoctl cluster diags` keeps them); nothing where the text is none.
    pub(super) fn take_json(&mut self, text: &str) -> Option<Kind> {
        // Messages may stand in front, and of several families there are several lists.
        let begins = |text: &str| {
            text.starts_with("[\n") || text.starts_with("[{") || text.starts_with("[ ")
        };
        let at = if begins(text) {
            0
        } else {
            text.find("\n[")
                .filter(|at| text.get(at + 1..).is_some_and(begins))?
                + 1
        };
        let values = serde_json::Deserializer::from_str(text.get(at..)?).into_iter::<Vec<Value>>();
        let mut found = None;
        for entries in values.map_while(Result::ok) {
            for entry in &entries {
                if self.sets.take_json(entry).is_some() {
                    found = Some(Kind::FelixSets);
                    continue;
                }
                let line = flow_line(entry).or_else(|| route_line(entry));
                match line.and_then(|line| self.take(&line)) {
                    Some(kind) => found = Some(kind),
                    // What is not understood may be what is asked for.
                    None if entry.get("proto").is_some() => {
                        self.unknown.insert(Kind::FelixFlows);
                    }
                    None if entry.get("dest").is_some() => {
                        self.unknown.insert(Kind::FelixRoutes);
                    }
                    None => {}
                }
            }
        }
        found
    }

    /// `TCP 10.0.1.1:34918 -> 10.96.0.1:443 -> 10.0.1.2:6443  Active ago 4m18.6s ESTABLISHED`; of what was not translated the middle is not there.
    fn take_flow(&mut self, line: &str) -> Option<(Kind, IpAddr)> {
        let mut words = line.split_whitespace();
        let (protocol, src, _) = (
            words.next()?,
            end(words.next()?)?,
            words.next().filter(|it| *it == "->")?,
        );
        let mut dst = end(words.next()?)?;
        let about: Vec<&str> = words.collect();
        about.contains(&"Active").then_some(())?;
        let protocol = match protocol {
            "TCP" => Protocol::TCP,
            "UDP" => Protocol::UDP,
            _ => return Some((Kind::FelixFlows, src.ip())),
        };
        let asked = dst;
        if let ["->", backend, ..] = about.as_slice() {
            dst = end(backend)?;
        }
        let mut knows = |src, dst, known| {
            self.flows.insert((protocol, src, dst), known);
        };
        let before = changed_from(&about).map(|port| SocketAddr::new(src.ip(), port));
        if before.is_some() || about.contains(&"external") {
            for src in [Some(src), before].into_iter().flatten() {
                knows(src, asked, Known::Elsewhere);
                knows(src, dst, Known::Elsewhere);
                knows(dst, src, Known::Elsewhere);
            }
        } else {
            let is_approved = about.contains(&"ESTABLISHED");
            knows(src, asked, Known::To { dst, is_approved });
            knows(src, dst, Known::To { dst, is_approved });
            knows(dst, src, Known::From(asked));
        }
        Some((Kind::FelixFlows, src.ip()))
    }

    /// `10.20.0.0/16: remote in-pool nat-out`
    fn take_route(&mut self, line: &str) -> Option<(Kind, IpAddr)> {
        let (net, flags) = line.trim().split_once(": ")?;
        let net: IpNet = net.contains('/').then(|| net.parse().ok())??;
        let words: Vec<&str> = flags.split_whitespace().collect();
        let first = words.first()?;
        (FLAGS.contains(first) || *first == OTHER_FLAG).then_some(())?;
        let flags = FLAGS.into_iter().filter(|flag| words.contains(flag));
        let of_length = self.routes.entry(net.prefix_len()).or_default();
        of_length.insert(net.trunc(), flags.collect());
        Some((Kind::FelixRoutes, net.addr()))
    }

    /// The policies that were noted.
    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The sets for which policies of a family ask, as `ipset save` would print them.
    pub(super) fn asked_sets(&self, family: Family) -> String {
        self.sets.save(family, self.policies.sets(family))
    }

    /// Whether a map was dumped whole, in that address's family.
    fn has(&self, map: Kind, ip: IpAddr) -> bool {
        self.dumped.contains(&(map, family(ip))) && !self.unknown.contains(&map)
    }

    /// What they make of a packet, by the flow that it is of.
    pub(crate) fn flow(&self, tuple: Tuple) -> Known {
        let (protocol, src, _) = tuple;
        let is_read = [Protocol::TCP, Protocol::UDP].contains(&protocol);
        if !is_read || !self.has(Kind::FelixFlows, src.ip()) {
            return Known::NotDumped;
        }
        self.flows.get(&tuple).copied().unwrap_or(Known::Nothing)
    }

    /// Whether an address has a flag by the longest network that holds it. None where the routes of its family were not dumped.
    pub(crate) fn has_flag(&self, address: IpAddr, flag: &str) -> Option<bool> {
        let is_known = self.has(Kind::FelixRoutes, address);
        is_known.then(|| {
            let longest = self.routes.iter().rev().find_map(|(length, routes)| {
                let net = IpNet::new(address, *length).ok()?.trunc();
                routes.get(&net)
            });
            longest.is_some_and(|flags| flags.contains(flag))
        })
    }
}

pub(super) fn family(ip: IpAddr) -> Family {
    if ip.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// An entry of JSON as the line that the other form has.
fn flow_line(entry: &Value) -> Option<String> {
    let text = |name: &str| entry[name].as_str();
    let (protocol, src, dst) = (text("proto")?, text("src")?, text("dst")?);
    let asked = text("orig_dst").map_or_else(String::new, |it| format!("{it} -> "));
    let forwarded = text("tunnel_ip").map_or("", |_| "external client");
    let changed = entry["orig_src_port"].as_u64();
    let changed = changed.map_or_else(String::new, |it| format!("source port changed from {it}"));
    let (ago, state) = (text("active_ago")?, text("tcp_state").unwrap_or_default());
    Some(format!(
        "{protocol} {src} -> {asked}{dst} {forwarded} {changed} Active ago {ago} {state}"
    ))
}

fn route_line(entry: &Value) -> Option<String> {
    let flags = entry["flags"].as_array()?.iter().filter_map(Value::as_str);
    let flags: Vec<&str> = flags.collect();
    Some(format!("{}: {}", entry["dest"].as_str()?, flags.join(" ")))
}

/// Of either family the port stands behind the last colon; in JSON an address of IPv6 has brackets.
fn end(text: &str) -> Option<SocketAddr> {
    if let Ok(end) = text.parse() {
        return Some(end);
    }
    let (ip, port) = text.rsplit_once(':')?;
    Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
}

/// `… source port changed from 40000 …`
fn changed_from(about: &[&str]) -> Option<u16> {
    let at = about.iter().position(|word| *word == "changed")?;
    about.get(at + 2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn maps(lines: &[&str]) -> FelixMaps {
        let mut maps = FelixMaps::default();
        for line in lines {
            assert!(maps.take(line).is_some(), "{line}");
        }
        maps
    }

    #[test]
    fn a_packet_of_a_known_flow_goes_on_to_the_backend_and_its_answer_comes_from_the_service() {
        let maps = maps(&[
            "TCP 10.0.1.1:34918 -> 10.96.0.1:443 -> 10.0.1.2:6443  Active ago 4m18.638909936s ESTABLISHED",
            "UDP 10.20.1.2:40000 -> 10.20.1.3:53  Age: 3s Active ago 1.5s",
            "ICMP 10.20.1.2:0 -> 10.20.1.3:0  Active ago 1.5s",
        ]);
        let of = |protocol, src, dst| maps.flow((protocol, at(src), at(dst)));
        let (client, backend, service) = ("10.0.1.1:34918", "10.0.1.2:6443", "10.96.0.1:443");
        let tcp = Protocol::TCP;
        let (dst, is_approved) = (at(backend), true);
        let to = Known::To { dst, is_approved };
        assert_eq!(of(tcp, client, service), to);
        // Behind the programs of the pod.
        assert_eq!(of(tcp, client, backend), to);
        assert_eq!(of(tcp, backend, client), Known::From(at(service)));
        assert_eq!(of(Protocol::UDP, client, service), Known::Nothing);
        let (asks, answers) = ("10.20.1.2:40000", "10.20.1.3:53");
        let (dst, is_approved) = (at(answers), false);
        assert_eq!(
            of(Protocol::UDP, asks, answers),
            Known::To { dst, is_approved }
        );
        assert_eq!(of(tcp, "10.0.1.1:34919", service), Known::Nothing);
        // Of these a dump says nothing that is read.
        assert_eq!(
            of(Protocol::ICMP, "10.20.1.2:0", "10.20.1.3:0"),
            Known::NotDumped
        );
        assert_eq!(of(tcp, "[fd00::1]:40000", "[fd00::2]:80"), Known::NotDumped);
        assert_eq!(
            FelixMaps::default().flow((tcp, at(client), at(service))),
            Known::NotDumped
        );
    }

    #[test]
    fn of_a_flow_in_a_tunnel_or_with_another_source_port_it_is_known_that_there_is_more() {
        let maps = maps(&[
            "TCP 10.20.1.2:50001 -> 10.96.0.1:443 -> 10.0.1.2:6443 source port changed from 40001  Active ago 1s ESTABLISHED",
            "TCP 192.0.2.1:40002 -> 10.0.1.1:30080 -> 10.20.2.2:80 external client, service forwarded to/from 10.0.1.2  Active ago 1s ESTABLISHED",
        ]);
        for (src, dst) in [
            ("10.20.1.2:40001", "10.96.0.1:443"),
            ("10.20.1.2:50001", "10.0.1.2:6443"),
            ("192.0.2.1:40002", "10.0.1.1:30080"),
            ("10.20.2.2:80", "192.0.2.1:40002"),
        ] {
            let of = maps.flow((Protocol::TCP, at(src), at(dst)));
            assert_eq!(of, Known::Elsewhere, "{src} {dst}");
        }
    }

    #[test]
    fn an_addresses_flags_are_those_of_the_longest_network() {
        let maps = maps(&[
            "   10.20.0.0/16: remote in-pool nat-out",
            " 10.20.217.0/26: remote workload in-pool nat-out nh 10.0.1.2",
            "  10.0.1.1/32: local host",
        ]);
        let has = |address: &str, flag| maps.has_flag(address.parse().unwrap(), flag);
        let [yes, no] = [true, false].map(Some);
        assert_eq!(
            (has("10.20.9.1", "in-pool"), has("10.20.9.1", "workload")),
            (yes, no)
        );
        assert_eq!(has("10.20.217.3", "workload"), yes);
        assert_eq!(
            (has("10.0.1.1", "local"), has("10.0.1.1", "in-pool")),
            (yes, no)
        );
        assert_eq!(has("192.0.2.1", "host"), no);
        assert_eq!(has("fd00::1", "host"), None);
    }

    #[test]
    fn flows_and_routes_in_json_are_those_in_lines() {
        let flows = r#"[
            { "type": "nat", "proto": "TCP", "src": "10.0.1.1:34918", "dst": "10.0.1.2:6443", "orig_dst": "10.96.0.1:443",
              "flags": [], "active_ago": "4m18.638909936s", "tcp_state": "ESTABLISHED" },
            { "type": "nat", "proto": "TCP", "src": "10.20.1.2:50001", "dst": "10.0.1.2:6443", "orig_dst": "10.96.0.1:443",
              "orig_src_port": 40001, "flags": ["host-psnat"], "active_ago": "1s", "tcp_state": "ESTABLISHED" },
            { "type": "nat", "proto": "TCP", "src": "192.0.2.1:40002", "dst": "10.20.2.2:80", "orig_dst": "10.0.1.1:30080",
              "tunnel_ip": "10.0.1.2", "flags": [], "active_ago": "1s", "tcp_state": "ESTABLISHED" },
            { "type": "normal", "proto": "UDP", "src": "[fd00::1]:40000", "dst": "[fd00::2]:53", "flags": [], "active_ago": "1s" }
        ]"#;
        let routes = r#"[
            { "dest": "10.20.0.0/16", "flags": ["remote", "in-pool", "nat-out"] },
            { "dest": "10.20.217.3/32", "flags": ["local", "workload", "in-pool"], "ifindex": 7 }
        ]"#;
        let mut of_json = FelixMaps::default();
        assert_eq!(of_json.take_json(flows), Some(Kind::FelixFlows));
        assert_eq!(of_json.take_json(routes), Some(Kind::FelixRoutes));
        let of_lines = maps(&[
            "TCP 10.0.1.1:34918 -> 10.96.0.1:443 -> 10.0.1.2:6443  Active ago 4m18.638909936s ESTABLISHED",
            "TCP 10.20.1.2:50001 -> 10.96.0.1:443 -> 10.0.1.2:6443 source port changed from 40001  Active ago 1s ESTABLISHED",
            "TCP 192.0.2.1:40002 -> 10.0.1.1:30080 -> 10.20.2.2:80 external client, service forwarded to/from 10.0.1.2  Active ago 1s ESTABLISHED",
            "UDP fd00::1:40000 -> fd00::2:53  Active ago 1s",
            "10.20.0.0/16: remote in-pool nat-out",
            "10.20.217.3/32: local workload in-pool idx 7",
        ]);
        assert_eq!(of_json, of_lines);
        let two = format!("a message\n{}\n{}", flows.trim(), routes.trim());
        let mut of_both = FelixMaps::default();
        assert_eq!(of_both.take_json(&two), Some(Kind::FelixRoutes));
        assert_eq!(of_both, of_lines);
        let strange = r#"[ { "proto": "TCP", "src": "somewhere", "dst": "10.0.1.2:6443", "active_ago": "1s" } ]"#;
        of_both.take_json(strange);
        let tuple = (Protocol::TCP, at("10.9.9.9:1"), at("10.9.9.8:2"));
        assert_eq!(of_lines.flow(tuple), Known::Nothing);
        assert_eq!(of_both.flow(tuple), Known::NotDumped);
        for other in ["[]", "[{\"frontend\": {}}]", "[1", "{}", ""] {
            assert_eq!(of_json.take_json(other), None, "{other}");
        }
    }

    #[test]
    fn other_lines_are_none_of_theirs() {
        let mut maps = FelixMaps::default();
        for line in [
            "TCP 10.0.1.1:34918 -> 10.0.1.2:6443",
            "TCP 10.0.1.1 -> 10.0.1.2  Active ago 1s",
            "2: eth0    inet 10.0.1.1/24 scope global eth0",
            "32766: from all lookup main",
            "10.0.0.0/8: see below",
            "local: remote",
        ] {
            assert_eq!(maps.take(line), None, "{line}");
        }
        assert_eq!(maps, FelixMaps::default());
    }
}
