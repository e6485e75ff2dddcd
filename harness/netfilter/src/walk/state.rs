//! What is known of a node: tables, connections, routing and settings, indexed once for many walks.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    Order,
    conntrack::{Connections, Settings},
    flight::Flight,
    matches::{Answer, Kind, Side},
    nft,
    packet::Protocol,
    parse::net,
    path::Hook,
    program::{self, Base, Program},
    programs::Programs,
    route::{Found, Query, Routing},
};
use crate::{
    Family,
    conntrack::Flow,
    dumps::{At, Backends, FelixMaps},
    nft::NftTable,
    save::Ruleset,
};

/// What is known of a node in one family of addresses.
#[derive(Debug, Clone)]
pub struct State {
    pub(super) family: Family,
    pub(super) programs: Vec<Program>,
    pub(super) connections: Connections,
    pub(super) routing: Option<Routing>,
    /// Felix's, where they are on the way.
    pub(super) felix: Option<Programs>,
    /// Whether tables were added as the kernel asks them.
    is_ordered: bool,
    /// Its addresses, where these are known without its routing.
    own: Option<BTreeSet<IpAddr>>,
    sysctls: BTreeMap<String, String>,
    sets: BTreeMap<String, IpSet>,
}

/// An ipset's type and elements.
#[derive(Debug, Clone, Default)]
struct IpSet {
    kind: String,
    elements: Vec<IpSetElement>,
}

/// Addresses, and the protocol with its first and last port where the set's type has them.
type IpSetElement = (IpNet, Option<(Protocol, u16, u16)>);

impl State {
    /// Nothing is known: no rules, no connections, no routes.
    pub fn new(family: Family) -> Self {
        Self {
            family,
            programs: Vec::new(),
            connections: Connections::default(),
            routing: None,
            felix: None,
            is_ordered: true,
            own: None,
            sysctls: BTreeMap::new(),
            sets: BTreeMap::new(),
        }
    }

    /// Adds the tables of an `iptables-save` (or `ip6tables-save`) of either front end. Where two bases of one hook have
    /// one priority, the one that was added first is asked first, unless [`State::set_unordered`] says otherwise.
    pub fn add_save(&mut self, save: &Ruleset) {
        let tables = save.tables.iter();
        let programs = tables.map(|(name, table)| Program::of_table(name, table));
        self.programs.extend(programs);
    }

    /// Adds the tables of `nft list ruleset` that see this family. Those that are a front end's, and are there as
    /// `iptables-save` prints them, are left out.
    pub fn add_nft(&mut self, tables: &[NftTable]) {
        for table in tables {
            let seen = table.family == self.family.of_nft() || table.family == "inet";
            if seen && !self.has_as_save(table) {
                self.programs.push(nft::program(table));
            }
        }
    }

    /// Whether an added save has all of the table's chains that a front end would show.
    fn has_as_save(&self, table: &NftTable) -> bool {
        // There may be a table of that name in either front end.
        let mut known = self.programs.iter().filter(|it| it.table == table.name);
        let shown = |name: &String, known: &Program| known.chains.iter().any(|it| it.name == *name);
        known.any(|known| table.table.chains.keys().all(|name| shown(name, known)))
    }

    /// Adds an entry of `conntrack -L`.
    pub fn add_flow(&mut self, flow: Flow) {
        self.connections.add(flow);
    }

    /// Says where packets go.
    pub fn set_routing(&mut self, routing: Routing) {
        self.routing = Some(routing);
    }

    /// Says which addresses it has: these and no others. It matters where no routing is known.
    pub fn set_own(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.own = Some(addresses.into_iter().collect());
    }

    /// Has Felix's eBPF programs on each packet's way: where they lead, of which nothing is known of a family without an entry, and what Felix's rules
    /// say of them: the mark with its mask of what is masqueraded, and whether pods may reach their own node.
    pub(crate) fn set_programs(
        &mut self,
        map: &BTreeMap<At, Backends>,
        maps: Arc<FelixMaps>,
        (outgoing, accepts_to_node): (Option<(u32, u32)>, bool),
    ) {
        let is_v6 = self.family == Family::V6;
        let own = map.iter().filter(|((ip, ..), _)| ip.is_ipv6() == is_v6);
        let own = own.map(|(at, backends)| (*at, backends.clone()));
        self.felix = Some(Programs {
            map: own.collect(),
            maps,
            outgoing,
            accepts_to_node,
        });
    }

    /// Whether an address is the node's own, where its addresses are known without its routing.
    pub(super) fn owns(&self, address: IpAddr) -> Option<bool> {
        if address.is_loopback() {
            return Some(true);
        }
        self.own.as_ref().map(|own| own.contains(&address))
    }

    /// Says what a setting is: `net.ipv4.ip_forward`, `1`.
    pub fn set_sysctl(&mut self, name: &str, value: &str) {
        let name = name.trim().replace('/', ".");
        self.sysctls.insert(name, value.trim().to_owned());
    }

    /// Adds the sets of an `ipset save`.
    pub fn add_ipsets(&mut self, save: &str) {
        for line in save.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match *words.as_slice() {
                ["create", name, kind, ..] => {
                    let set = self.sets.entry(name.to_owned()).or_default();
                    kind.clone_into(&mut set.kind);
                }
                ["add", name, element, ..] => {
                    let set = self.sets.entry(name.to_owned()).or_default();
                    set.elements.extend(ip_set_element(element));
                }
                _ => {}
            }
        }
    }

    /// A setting's number; none when it is not known.
    pub(super) fn sysctl(&self, name: &str) -> Option<u32> {
        self.sysctls.get(name)?.parse().ok()
    }

    pub(super) fn settings(&self) -> Settings {
        let loose = self.sysctl("net.netfilter.nf_conntrack_tcp_loose");
        Settings {
            loose: loose != Some(0),
        }
    }

    /// The base chains of a hook in the order in which they are asked.
    pub(super) fn bases(&self, hook: Hook, order: Order) -> Vec<(&Program, &Base)> {
        let all = self.programs.iter();
        let all = all.flat_map(|program| program.bases.iter().map(move |base| (program, base)));
        let mut bases: Vec<_> = all.filter(|(_, base)| base.hook == hook).collect();
        if order == Order::Reversed {
            bases.reverse();
        }
        bases.sort_by_key(|(_, base)| base.priority);
        bases
    }

    /// What is not known where nat chains of several tables have one hook and priority. The kernel asks the younger one first (Linux 6.18,
    /// `nf_hook_entries_grow`), and the others only where that does not translate.
    pub(super) fn tie(&self) -> Option<String> {
        if self.is_ordered {
            return None;
        }
        let (one, other) = Hook::ALL.into_iter().find_map(|hook| {
            let mut bases = self.bases(hook, Order::AsAdded);
            bases.retain(|(_, base)| base.kind == program::Kind::Nat);
            let mut pairs = bases.iter().zip(bases.iter().skip(1));
            let is_tied = |((one, a), (other, b)): &(&(&Program, &Base), &(&Program, &Base))| {
                a.priority == b.priority && !std::ptr::eq(*one, *other)
            };
            let ((one, _), (other, _)) = pairs.find(is_tied)?;
            Some((&one.table, &other.table))
        })?;
        let tables = if one == other {
            format!("two tables {one}")
        } else {
            format!("tables {one} and {other}")
        };
        Some(format!(
            "which of the {tables} is asked first: the younger one, and no listing tells which that is"
        ))
    }

    /// Says that which of its tables are the younger ones is not known: nothing that lists them tells.
    pub fn set_unordered(&mut self) {
        self.is_ordered = false;
    }

    /// `-m addrtype`.
    pub(super) fn kind_of(
        &self,
        flight: &Flight,
        address: IpAddr,
        kinds: &[Kind],
        only_of_input: bool,
    ) -> Answer {
        let Some(routing) = &self.routing else {
            return match self.owns(address) {
                // On which of its interfaces one is, and what a broadcast is, no list of addresses tells.
                Some(true) if !only_of_input => kinds.contains(&Kind::Local).into(),
                Some(false) if kinds == [Kind::Local] => Answer::No,
                _ => Answer::Open(format!(
                    "whether {address} is the node's: no addresses are known"
                )),
            };
        };
        let interface = if only_of_input { flight.input() } else { None };
        kinds.contains(&routing.kind(address, interface)).into()
    }

    /// `-m rpfilter` (Linux 6.18, `ipt_rpfilter.c`).
    pub(super) fn reverse_route(
        &self,
        flight: &Flight,
        loose: bool,
        with_mark: bool,
        accept_local: bool,
    ) -> Answer {
        let Some(input) = flight.input().filter(|it| *it != "lo") else {
            return Answer::Yes;
        };
        let Some(routing) = &self.routing else {
            return Answer::Open("the way back to the source: no routes are known".to_owned());
        };
        match routing.look(Query::back(&flight.packet, with_mark)) {
            Found::Route(Kind::Unicast, hops, _) => {
                (loose || hops.iter().any(|hop| hop.interface == input)).into()
            }
            Found::Route(Kind::Local, hops, _) => {
                let here = hops.iter().any(|hop| hop.interface == input);
                (accept_local && (loose || here)).into()
            }
            Found::Open(words) => Answer::Open(words),
            Found::Route(..) | Found::Nothing => Answer::No,
        }
    }

    /// `-m set`.
    pub(super) fn in_set(&self, flight: &Flight, name: &str, keys: &[Side]) -> Answer {
        let open = |why: &str| Answer::Open(format!("whether it is in the ipset {name}: {why}"));
        let Some(set) = self.sets.get(name) else {
            return open("its elements are not known");
        };
        let ([side] | [side, _], true) = (keys, KINDS.contains(&&*set.kind)) else {
            return open("its type is not known here");
        };
        let address = flight.address(*side);
        let packet = &flight.packet;
        let port = match keys.get(1) {
            Some(Side::Src) => packet.sport,
            _ => packet.dport,
        };
        let mut elements = set.elements.iter();
        let has = |ports: &Option<(Protocol, u16, u16)>| {
            ports.is_none_or(|(protocol, first, last)| {
                protocol == packet.protocol && (first..=last).contains(&port)
            })
        };
        elements
            .any(|(net, ports)| net.contains(&address) && has(ports))
            .into()
    }
}

/// The types of sets that Felix makes (Calico v3.28, `ipsets/ipsets.go`).
const KINDS: [&str; 4] = ["hash:ip", "hash:net", "hash:ip,port", "hash:net,port"];

/// Reads `10.0.0.1`, `10.0.0.0/8` or `10.0.0.1,tcp:80`.
fn ip_set_element(text: &str) -> Option<IpSetElement> {
    let (address, port) = match text.split_once(',') {
        Some((address, port)) => (address, Some(port)),
        None => (text, None),
    };
    let net = net(address)?;
    let Some(port) = port else {
        return Some((net, None));
    };
    let (protocol, range) = port.split_once(':').unwrap_or(("tcp", port));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let ports = (
        Protocol::parse(protocol)?,
        first.parse().ok()?,
        last.parse().ok()?,
    );
    Some((net, Some(ports)))
}
