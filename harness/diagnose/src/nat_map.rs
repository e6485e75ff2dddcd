//! Where Felix's eBPF programs lead requests: its NAT maps, as `calico-node -bpf nat dump` prints them (read in Calico's sources, v3.28 to v3.32:
//! felix/cmd/calico-bpf/commands/nat.go), and as JSON (`--json`, from v3.32 on). In a world without its programs a table of nftables stands in for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_netfilter::{Rule, names::Protocol, nft::NftTable};
use serde_json::Value;

/// The table that stands in for the programs (harness/agents/src/felix/programs.rs), and its chain that is the map.
const TABLE: &str = "felix-programs";
const FRONTENDS: &str = "frontends";

/// A Service's address, protocol and port.
pub(crate) type At = (IpAddr, Protocol, u16);

/// Where requests to a Service's port are led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Backends {
    /// To these, or to nobody.
    To(BTreeSet<SocketAddr>),
    /// The map lacks some of them, as it was being written; or the Service is left to others.
    Unknown,
}

/// The maps of a node, as they were dumped: one of each family, or of several moments.
#[derive(Debug, Clone, Default)]
pub(crate) struct NatMap(BTreeMap<At, Backends>);

impl NatMap {
    /// Takes in a text: whether it has any of a map. What was dumped later counts.
    pub(crate) fn add(&mut self, text: &str) -> bool {
        let mut dump = Dump::default();
        if text.trim_start().starts_with('[') && text.contains("\"frontend") {
            dump.add_json(text);
        } else {
            text.lines().for_each(|line| dump.add_line(line));
        }
        let has_any = !dump.frontends.is_empty();
        self.0.extend(dump.led());
        has_any
    }

    /// Where requests are led, by address, protocol and port: as dumps say, else as the table of a model does.
    pub(crate) fn led(&self, tables: &[NftTable]) -> BTreeMap<At, Backends> {
        if self.0.is_empty() {
            return tables.iter().flat_map(of_table).collect();
        }
        self.0.clone()
    }
}

/// By what a frontend's backends are found: of both families the numbers begin anew.
type Id = (bool, u64);

/// A map in a text.
#[derive(Debug, Default)]
struct Dump {
    /// With the number of their backends, where that is known.
    frontends: BTreeMap<At, (Id, Option<u64>)>,
    backends: BTreeMap<Id, BTreeMap<u64, SocketAddr>>,
}

impl Dump {
    fn led(self) -> impl Iterator<Item = (At, Backends)> {
        let Self {
            frontends,
            backends,
        } = self;
        frontends.into_iter().map(move |(at, (id, count))| {
            let known = backends.get(&id).into_iter().flatten();
            let known = known.filter(|(ordinal, _)| count.is_some_and(|count| **ordinal < count));
            let known: Vec<SocketAddr> = known.map(|(_, at)| *at).collect();
            let is_whole = count.is_some_and(|count| usize::try_from(count) == Ok(known.len()));
            let backends = if is_whole {
                Backends::To(known.into_iter().collect())
            } else {
                Backends::Unknown
            };
            (at, backends)
        })
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
                _,
                ref rest @ ..,
            ] => {
                let number = |text: &str| text.parse().ok();
                let frontend = || {
                    let ip: IpAddr = address.parse().ok()?;
                    let at = (ip, of_number(number(protocol)?)?, port.parse().ok()?);
                    let count = counted(number(count), &rest.join(" "));
                    Some((at, ((ip.is_ipv6(), number(id)?), count)))
                };
                // Of clients from somewhere alone.
                if !rest.contains(&"src") {
                    self.frontends.extend(frontend());
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
                let Some((at, (id, count))) = of_json(frontend) else {
                    continue;
                };
                ids.insert(id.1);
                if frontend.get("src_cidr").is_none() {
                    self.frontends.insert(at, (id, count));
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

/// How many backends a frontend has. That of what is dropped outside of a load balancer's source ranges is -1, which a dump by Service says of all
/// its frontends; what is excluded is not translated.
fn counted(count: Option<u64>, flags: &str) -> Option<u64> {
    count.filter(|_| !flags.contains("nat-exclude"))
}

fn of_json(frontend: &Value) -> Option<(At, (Id, Option<u64>))> {
    let at = address_of(frontend)?;
    let protocol = of_number(frontend["proto"].as_u64()?)?;
    let flags = frontend["flags"].as_str().unwrap_or_default();
    let count = counted(frontend["count"].as_u64(), flags);
    let id = (at.is_ipv6(), frontend["id"].as_u64()?);
    Some(((at.ip(), protocol, at.port()), (id, count)))
}

fn address_of(value: &Value) -> Option<SocketAddr> {
    let ip = value["addr"].as_str()?.parse().ok()?;
    let port = u16::try_from(value["port"].as_u64()?).ok()?;
    Some(SocketAddr::new(ip, port))
}

/// The ports of a model's table by their names: `test/web:http`.
pub(crate) fn names(tables: &[NftTable]) -> Vec<(String, IpAddr, u16)> {
    let rules = tables.iter().flat_map(rules);
    let named = rules.filter_map(|rule| {
        let (_, comment) = rule.text.split_once(" comment ")?;
        let (ip, _, port) = of_rule(rule)?.0;
        Some((comment.trim_matches('"').to_owned(), ip, port))
    });
    named.collect()
}

/// Where a model's table leads: `ip daddr 10.96.1.0 tcp dport 80 dnat to 10.20.1.2:80 comment "test/web:http"`, or to one of several.
fn of_table(table: &NftTable) -> Vec<(At, Backends)> {
    rules(table).iter().filter_map(of_rule).collect()
}

/// What is in the map of a model's table; nothing of another table.
fn rules(table: &NftTable) -> &[Rule] {
    let chain = table.table.chains.get(FRONTENDS);
    let chain = chain.filter(|_| table.name == TABLE);
    chain.map_or(&[], |chain| &chain.rules)
}

fn of_rule(rule: &Rule) -> Option<(At, Backends)> {
    let words: Vec<&str> = rule.text.split(' ').collect();
    let ["ip", "daddr", ip, protocol, "dport", port, ..] = *words.as_slice() else {
        return None;
    };
    let protocol = Protocol::from_api(Some(&protocol.to_uppercase()))?;
    let to = rule.text.split_once("dnat to ").map_or("", |(_, to)| to);
    let to = to.split_once(" comment ").map_or(to, |(to, _)| to);
    let parts = to.split([',', '{', '}']);
    let backends = parts.filter_map(|part| {
        let part = part.split_once(" : ").map_or(part, |(_, part)| part);
        part.trim().replace(" . ", ":").parse().ok()
    });
    let at = (ip.parse().ok()?, protocol, port.parse().ok()?);
    Some((at, Backends::To(backends.collect())))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As the source prints it, in the addresses of these tests.
    pub(crate) const DUMP: &str = "10.96.1.0 port 80 proto 6 id 4 count 2 local 1\n\t4:0\t 10.20.1.2:80\n\t4:1\t 10.20.1.3:80\n\
        10.96.0.1 port 443 proto 6 id 1 count 1 local 0 flags external-local\n\t1:0\t 10.0.0.1:6443\n\
        10.96.0.9 port 53 proto 17 id 2 count -1 local 0\n\
        10.96.0.8 port 80 proto 6 id 3 count 2 local 0\n\t3:0\t is missing\n\t3:1\t 10.20.1.9:80\n\
        10.96.0.7 port 80 proto 6 id 5 count 0 local 0 flags internal-local, nat-exclude\n\
        203.0.113.5 port 80 proto 6 id 4 count 2 local 0 src 10.0.0.0/8\n\t4:0\t 10.20.1.2:80\n\t4:1\t 10.20.1.3:80\n";

    fn told(text: &str) -> Vec<String> {
        let mut map = NatMap::default();
        assert!(map.add(text), "{text}");
        lines(&map.led(&[]))
    }

    fn lines(led: &BTreeMap<At, Backends>) -> Vec<String> {
        let lines = led.iter().map(|((ip, protocol, port), to)| match to {
            Backends::To(to) => {
                let to: Vec<String> = to.iter().map(ToString::to_string).collect();
                format!("{ip} {protocol} {port}: {}", to.join(" "))
            }
            Backends::Unknown => format!("{ip} {protocol} {port}: ?"),
        });
        lines.collect()
    }

    #[test]
    fn a_dump_says_where_each_port_is_led() {
        let all = [
            "10.96.0.1 tcp 443: 10.0.0.1:6443",
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
    fn of_both_families_the_same_numbers_are_two_services() {
        let v4 = "10.96.1.0 port 80 proto 6 id 1 count 1 local 0\n\t1:0\t 10.20.1.2:80\n";
        let v6 = "fd00:96::1 port 443 proto 6 id 1 count 1 local 0\n\t1:0\t [fd00::1]:6443\n";
        let all = [
            "10.96.1.0 tcp 80: 10.20.1.2:80",
            "fd00:96::1 tcp 443: [fd00::1]:6443",
        ];
        assert_eq!(told(&[v4, v6].concat()), all);
        let mut map = NatMap::default();
        assert!(map.add(v6) && map.add(v4));
        assert_eq!(lines(&map.led(&[])), all);
        // What was dumped later counts.
        assert!(map.add(&v4.replace("10.20.1.2", "10.20.1.9")));
        assert_eq!(lines(&map.led(&[]))[0], "10.96.1.0 tcp 80: 10.20.1.9:80");
    }

    #[test]
    fn a_models_table_is_read_where_there_is_no_dump() {
        let listing = "table ip felix-programs {\n\tchain frontends {\n\
            \t\tip daddr 10.96.1.0 tcp dport 80 dnat to numgen random mod 2 map { 0 : 10.20.1.2 . 80, 1 : 10.20.1.3 . 80 } comment \"test/web:http\"\n\
            \t\tip daddr 10.96.0.1 tcp dport 443 dnat to 10.0.0.1:6443 comment \"default/kubernetes:https\"\n\
            \t\tip daddr 10.96.0.9 udp dport 53 drop comment \"test/dns\"\n\
            \t\tfib daddr type local tcp dport 30080 dnat to 10.20.1.2:80 comment \"test/web:http\"\n\t}\n}\n";
        let tables = chainbreak_netfilter::nft::listing(listing).unwrap();
        let (name, _, port) = &names(&tables)[0];
        assert_eq!((name.as_str(), *port), ("test/web:http", 80));
        assert_eq!(
            lines(&NatMap::default().led(&tables)),
            [
                "10.96.0.1 tcp 443: 10.0.0.1:6443",
                "10.96.0.9 udp 53: ",
                "10.96.1.0 tcp 80: 10.20.1.2:80 10.20.1.3:80"
            ]
        );
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
            let mut map = NatMap::default();
            assert!(!map.add(text), "{text}");
            assert!(map.led(&[]).is_empty(), "{text}");
        }
    }
}
