//! Where Felix's eBPF programs lead requests: its NAT maps, as `calico-node -bpf nat dump` prints them (read in Calico's sources, v3.28 to v3.32:
//! felix/cmd/calico-bpf/commands/nat.go), and as JSON (`--json`, from v3.32 on).

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    net::{IpAddr, SocketAddr},
};

use serde_json::Value;

use crate::names::Protocol;

/// A Service's address, protocol and port.
pub type At = (IpAddr, Protocol, u16);

/// Where requests to a Service's port are led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backends {
    /// To these, or to nobody.
    To(BTreeSet<SocketAddr>),
    /// To these, and of some clients to those alone that are on the node.
    Local(BTreeSet<SocketAddr>),
    /// The map lacks some of them, as it was being written; or the Service is left to others.
    Unknown,
}

/// Where a text says that requests are led.
pub(super) fn read(text: &str) -> impl Iterator<Item = (At, Backends)> {
    let mut dump = Dump::default();
    if text.trim_start().starts_with('[') && text.contains("\"frontend") {
        dump.add_json(text);
    } else {
        text.lines().for_each(|line| dump.add_line(line));
    }
    dump.led()
}

/// By what a frontend's backends are found: of both families the numbers begin anew.
type Id = (bool, u64);

/// What a line says of a frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frontend {
    id: Id,
    /// How many backends it has; none where it does not lead to them.
    count: Option<u64>,
    /// Whether some clients are led to fewer of them.
    is_partly_local: bool,
}

/// A map in a text.
#[derive(Debug, Default)]
struct Dump {
    frontends: BTreeMap<At, Frontend>,
    backends: BTreeMap<Id, BTreeMap<u64, SocketAddr>>,
}

impl Dump {
    fn led(self) -> impl Iterator<Item = (At, Backends)> {
        let Self {
            frontends,
            backends,
        } = self;
        frontends.into_iter().map(move |(at, it)| {
            let known = backends.get(&it.id).into_iter().flatten();
            let known =
                known.filter(|(ordinal, _)| it.count.is_some_and(|count| **ordinal < count));
            let known: Vec<SocketAddr> = known.map(|(_, at)| *at).collect();
            let is_whole = it
                .count
                .is_some_and(|count| usize::try_from(count) == Ok(known.len()));
            let known = known.into_iter().collect();
            let backends = match (is_whole, it.is_partly_local) {
                (true, false) => Backends::To(known),
                (true, true) => Backends::Local(known),
                (false, _) => Backends::Unknown,
            };
            (at, backends)
        })
    }

    /// One that comes again and says something else has load balancers' source ranges, of which v3.28 does not say which line is whose.
    fn add_frontend(&mut self, at: At, frontend: Frontend) {
        match self.frontends.entry(at) {
            Entry::Vacant(new) => {
                new.insert(frontend);
            }
            Entry::Occupied(mut known) if *known.get() != frontend => {
                known.get_mut().count = None;
            }
            Entry::Occupied(_) => {}
        }
    }

    /// `10.96.0.1 port 443 proto 6 id 1 count 1 local 0`, maybe with flags, and below it, indented, `1:0 10.0.0.1:6443`.
    fn add_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            [
                address,
                "port",
                port,
                "proto",
                protocol,
                "id",
                id,
                "count",
                count,
                "local",
                local,
                ref rest @ ..,
            ] => {
                let number = |text: &str| text.parse().ok();
                let frontend = || {
                    let ip: IpAddr = address.parse().ok()?;
                    let at = (ip, of_number(number(protocol)?)?, port.parse().ok()?);
                    let id = (ip.is_ipv6(), number(id)?);
                    let (count, local) = (number(count), number(local));
                    Some((at, Frontend::new(id, count, local, &rest.join(" "))))
                };
                // Of clients from somewhere alone.
                if !rest.contains(&"src")
                    && let Some((at, frontend)) = frontend()
                {
                    self.add_frontend(at, frontend);
                }
            }
            [key, at] => {
                let backend = || {
                    let (id, ordinal) = key.split_once(':')?;
                    Some((id.parse().ok()?, ordinal.parse().ok()?, at.parse().ok()?))
                };
                if let Some((id, ordinal, at)) = backend() {
                    self.add_backend(id, ordinal, at);
                }
            }
            _ => {}
        }
    }

    /// A list of frontends with their backends, or, where these are grouped by Service, of several frontends.
    fn add_json(&mut self, text: &str) {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let Some(Ok(Value::Array(services))) = values.next() else {
            return;
        };
        for service in &services {
            let several = service["frontends"].as_array().into_iter().flatten();
            let mut ids = BTreeSet::new();
            for frontend in several.chain(service.get("frontend")) {
                let Some((at, found)) = of_json(frontend) else {
                    continue;
                };
                ids.insert(found.id.1);
                if frontend.get("src_cidr").is_none() {
                    self.add_frontend(at, found);
                }
            }
            let backends = service["backends"].as_array().into_iter().flatten();
            for (backend, ordinal) in backends.zip(0..) {
                if let Some(at) = address_of(backend) {
                    for id in &ids {
                        self.add_backend(*id, ordinal, at);
                    }
                }
            }
        }
    }

    fn add_backend(&mut self, id: u64, ordinal: u64, at: SocketAddr) {
        let id = (at.is_ipv6(), id);
        self.backends.entry(id).or_default().insert(ordinal, at);
    }
}

fn of_number(protocol: u64) -> Option<Protocol> {
    match protocol {
        6 => Some(Protocol::Tcp),
        17 => Some(Protocol::Udp),
        132 => Some(Protocol::Sctp),
        _ => None,
    }
}

impl Frontend {
    /// The count of what is dropped outside of a load balancer's source ranges is -1, which a dump by Service says of all its frontends; what is
    /// excluded is not translated.
    fn new(id: Id, count: Option<u64>, local: Option<u64>, flags: &str) -> Self {
        Self {
            id,
            count: count.filter(|_| !flags.contains("nat-exclude")),
            is_partly_local: flags.contains("-local") && local != count,
        }
    }
}

fn of_json(frontend: &Value) -> Option<(At, Frontend)> {
    let at = address_of(frontend)?;
    let protocol = of_number(frontend["proto"].as_u64()?)?;
    let number = |name: &str| frontend[name].as_u64();
    let flags = frontend["flags"].as_str().unwrap_or_default();
    let id = (at.is_ipv6(), number("id")?);
    let found = Frontend::new(id, number("count"), number("local"), flags);
    Some(((at.ip(), protocol, at.port()), found))
}

fn address_of(value: &Value) -> Option<SocketAddr> {
    let ip = value["addr"].as_str()?.parse().ok()?;
    let port = u16::try_from(value["port"].as_u64()?).ok()?;
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the source prints it, in the addresses of these tests.
    const DUMP: &str = include_str!("../../tests/data/felix.nat");

    fn told(text: &str) -> Vec<String> {
        let led: BTreeMap<At, Backends> = read(text).collect();
        assert!(!led.is_empty(), "{text}");
        lines(&led)
    }

    fn lines(led: &BTreeMap<At, Backends>) -> Vec<String> {
        let lines = led.iter().map(|((ip, protocol, port), to)| match to {
            Backends::To(to) => {
                let to: Vec<String> = to.iter().map(ToString::to_string).collect();
                format!("{ip} {protocol} {port}: {}", to.join(" "))
            }
            Backends::Local(to) => format!("{ip} {protocol} {port}: {} or fewer", to.len()),
            Backends::Unknown => format!("{ip} {protocol} {port}: ?"),
        });
        lines.collect()
    }

    #[test]
    fn a_dump_says_where_each_port_is_led() {
        let all = [
            "10.96.0.1 tcp 443: 1 or fewer",
            "10.96.0.7 tcp 80: ?",
            "10.96.0.8 tcp 80: ?",
            "10.96.0.9 udp 53: ?",
            "10.96.1.0 tcp 80: 10.20.1.2:80 10.20.1.3:80",
        ];
        assert_eq!(told(DUMP), all);
        // As a terminal has it.
        assert_eq!(told(&DUMP.replace('\n', "\r\n")), all);
    }

    #[test]
    fn frontends_of_one_service_share_their_backends_however_they_are_grouped() {
        let text = "10.96.1.0 port 80 proto 6 id 4 count 1 local 0\n10.0.0.1 port 30080 proto 6 id 4 count 1 local 0\n\t4:0\t 10.20.1.2:80\n";
        let all = [
            "10.0.0.1 tcp 30080: 10.20.1.2:80",
            "10.96.1.0 tcp 80: 10.20.1.2:80",
        ];
        assert_eq!(told(text), all);
        let frontend = |ip: &str, port: u16| {
            format!(
                "{{\"addr\": \"{ip}\", \"port\": {port}, \"proto\": 6, \"id\": 4, \"count\": 1, \"local\": 0}}"
            )
        };
        let backends = "\"backends\": [{\"addr\": \"10.20.1.2\", \"port\": 80}]";
        let (one, other) = (frontend("10.96.1.0", 80), frontend("10.0.0.1", 30080));
        assert_eq!(
            told(&format!(
                "[{{\"id\": 4, \"frontends\": [{one}, {other}], {backends}}}]"
            )),
            all
        );
        assert_eq!(
            told(&format!(
                "[{{\"frontend\": {one}, {backends}}}, {{\"frontend\": {other}, {backends}}}]\n"
            )),
            all
        );
        let missing = "\"backends\": [{\"addr\": \"missing\", \"port\": 0}]";
        assert_eq!(
            told(&format!("[{{\"frontend\": {one}, {missing}}}]")),
            ["10.96.1.0 tcp 80: ?"]
        );
    }

    #[test]
    fn what_comes_twice_and_differs_is_not_known() {
        let twice = "203.0.113.5 port 80 proto 6 id 4 count 1 local 0\n\t4:0\t 10.20.1.2:80\n203.0.113.5 port 80 proto 6 id 4 count -1 local 0\n";
        assert_eq!(told(twice), ["203.0.113.5 tcp 80: ?"]);
        let same = twice.replace("-1", "1");
        assert_eq!(told(&same), ["203.0.113.5 tcp 80: 10.20.1.2:80"]);
    }

    #[test]
    fn of_both_families_the_same_numbers_are_two_services() {
        let v4 = "10.96.1.0 port 80 proto 6 id 1 count 1 local 0\n\t1:0\t 10.20.1.2:80\n";
        let v6 = "fd00:96::1 port 443 proto 6 id 1 count 1 local 0\n\t1:0\t [fd00::1]:6443\n";
        let all = [
            "10.96.1.0 tcp 80: 10.20.1.2:80",
            "fd00:96::1 tcp 443: [fd00::1]:6443",
        ];
        assert_eq!(told(&[v4, v6].concat()), all);
    }

    #[test]
    fn what_is_no_dump_has_none() {
        for text in [
            "*nat\nCOMMIT\n",
            "[1, \"frontend\"]",
            "[\"frontend",
            "a port 80 proto 6 id 1 count 1 local 0\n",
            "4:0 10.0.0.1:80\n",
        ] {
            assert_eq!(read(text).count(), 0, "{text}");
        }
    }
}
