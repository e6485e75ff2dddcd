//! Where a packet goes: rules (`ip rule`), tables (`ip route`) and addresses of a node (Linux 6.18, `fib_rules.c`,
//! `fib_trie.c`, `devinet.c`).

mod read;

use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{
    matches::{Kind, Masked},
    packet::Packet,
};
use crate::Family;

/// The routing of a node in one family.
#[derive(Debug, Clone, Default)]
pub struct Routing {
    rules: Vec<PolicyRule>,
    /// By name (`local`, `main`, `default`) or number.
    tables: BTreeMap<String, Vec<Route>>,
    addresses: Vec<Address>,
}

/// A line of `ip rule`.
#[derive(Debug, Clone, Default)]
struct PolicyRule {
    preference: u32,
    not: bool,
    from: Option<IpNet>,
    to: Option<IpNet>,
    mark: Option<Masked>,
    input: Option<String>,
    output: Option<String>,
    /// Routes of at most this length are passed over.
    suppress: Option<u8>,
    action: Decision,
    /// Words that are not known here.
    unknown: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Decision {
    Table(String),
    Fails(Kind),
    #[default]
    Nothing,
}

/// A line of `ip route`.
#[derive(Debug, Clone)]
struct Route {
    /// None is `throw`: the next rule is asked.
    kind: Option<Kind>,
    net: IpNet,
    hops: Vec<Hop>,
    metric: u32,
    src: Option<IpAddr>,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) interface: String,
    pub(super) via: Option<IpAddr>,
}

/// A line of `ip addr`.
#[derive(Debug, Clone)]
struct Address {
    net: IpNet,
    interface: String,
    /// Of the host or the link only.
    narrow: bool,
    /// Taken for what has no other one (IPv6).
    deprecated: bool,
}

/// Where a packet comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A program on the node.
    Here,
    /// What is behind this interface.
    By(String),
}

/// What is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) dst: IpAddr,
    pub(super) src: IpAddr,
    pub(super) mark: u32,
    pub(super) input: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Where a packet goes.
    pub(super) fn of(packet: &'a Packet) -> Self {
        Self {
            dst: packet.dst,
            src: packet.src,
            mark: packet.mark,
            input: packet.input.as_deref(),
        }
    }

    /// Where an answer to a packet would go, with the packet's mark or without.
    pub(super) fn back(packet: &Packet, marked: bool) -> Self {
        Self {
            dst: packet.src,
            src: packet.dst,
            mark: if marked { packet.mark } else { 0 },
            input: None,
        }
    }
}

/// What is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// For the node itself (`Local`, `Broadcast`), on to one of several hops (`Unicast`), or refused by a route.
    Route(Kind, Vec<Hop>, IpNet),
    /// No route.
    Nothing,
    /// A rule that is not understood comes first.
    Open(String),
}

impl Routing {
    /// Reads what `ip rule`, `ip route` (or `ip route show table all`) and `ip addr` printed for a family; a text that
    /// is not there is empty. Without rules the kernel's own three are taken; without a table `local` one is made of
    /// the addresses, and of the source addresses of the interfaces' own routes.
    pub fn read(family: Family, rules: &str, routes: &str, addresses: &str) -> Self {
        let mut routing = Self {
            rules: read::rules(rules),
            tables: read::routes(family, routes),
            addresses: read::addresses(family, addresses),
        };
        if routing.rules.is_empty() {
            routing.rules = read::rules("0: from all lookup local\n32766: from all lookup main");
        }
        routing.complete(family);
        routing
    }

    fn complete(&mut self, family: Family) {
        if self.addresses.is_empty() {
            self.addresses = self.sources();
        }
        if self.tables.contains_key("local") {
            return;
        }
        let lo = match family {
            Family::V4 => "127.0.0.0/8",
            Family::V6 => "::1/128",
        };
        let lo = lo.parse().ok().map(|net| Route::local(net, "lo"));
        let hosts = self.addresses.iter();
        let hosts = hosts.map(|it| Route::local(IpNet::from(it.net.addr()), &it.interface));
        let table = lo.into_iter().chain(hosts).collect();
        self.tables.insert("local".to_owned(), table);
    }

    /// The addresses that routes tell.
    fn sources(&self) -> Vec<Address> {
        let local =
            |route: &&Route| route.kind == Some(Kind::Local) && route.net.addr() != LOOPBACK;
        let of_local = self.tables.get("local").into_iter().flatten().filter(local);
        let of_local = of_local.map(|route| (route.net.addr(), route));
        let of_main = self.tables.get("main").into_iter().flatten();
        let of_main = of_main.filter_map(|route| Some((route.src?, route)));
        let address = |(address, route): (IpAddr, &Route)| {
            let interface = route.hops.first()?.interface.clone();
            let narrow = interface == "lo";
            Some(Address {
                net: IpNet::from(address),
                interface,
                narrow: narrow || is_of_a_link(address),
                deprecated: false,
            })
        };
        of_local.chain(of_main).filter_map(address).collect()
    }

    /// Where what an address sends comes from; none when it has no route.
    pub fn origin(&self, address: IpAddr) -> Option<Origin> {
        if self.kind(address, None) == Kind::Local {
            return Some(Origin::Here);
        }
        let found = self.look(Query {
            dst: address,
            src: address,
            mark: 0,
            input: None,
        });
        match found {
            Found::Route(Kind::Unicast, hops, _) => {
                let hop = hops.into_iter().next()?;
                Some(Origin::By(hop.interface))
            }
            _ => None,
        }
    }

    /// The interface by which the main table's default route leaves. None where there is no such route, or several interfaces.
    pub fn default_interface(&self) -> Option<&str> {
        let of_main = self.tables.get("main")?.iter();
        let of_all = of_main.filter(|it| it.net.prefix_len() == 0);
        let mut ways = of_all.flat_map(|it| it.hops.iter().map(|hop| hop.interface.as_str()));
        let first = ways.next()?;
        ways.all(|it| it == first).then_some(first)
    }

    /// The interfaces that have an address at which others reach the node.
    pub fn reachable_by(&self) -> impl Iterator<Item = &str> {
        let wide = self.addresses.iter().filter(|it| !it.narrow);
        wide.map(|it| it.interface.as_str())
    }

    /// What the rules and tables say.
    pub(super) fn look(&self, query: Query<'_>) -> Found {
        for rule in &self.rules {
            if let Some(words) = &rule.unknown {
                return Found::Open(format!("an ip rule: {words}"));
            }
            if !rule.fits(query) {
                continue;
            }
            match &rule.action {
                Decision::Fails(kind) => {
                    return Found::Route(*kind, Vec::new(), any_like(query.dst));
                }
                Decision::Nothing => {}
                Decision::Table(table) => {
                    let best = self.best(table, query.dst);
                    let long = |it: &&Route| {
                        rule.suppress
                            .is_none_or(|length| it.net.prefix_len() > length)
                    };
                    if let Some(Route {
                        kind: Some(kind),
                        hops,
                        net,
                        ..
                    }) = best.filter(long)
                    {
                        return Found::Route(*kind, hops.clone(), *net);
                    }
                }
            }
        }
        Found::Nothing
    }

    /// The longest, then the cheapest route to a destination.
    fn best(&self, table: &str, dst: IpAddr) -> Option<&Route> {
        let routes = self.tables.get(table)?.iter();
        let routes = routes.filter(|it| it.net.contains(&dst));
        routes.min_by_key(|it| (u8::MAX - it.net.prefix_len(), it.metric))
    }

    /// What kind of address it is, on this interface or on any: only table `local` is asked.
    pub(super) fn kind(&self, address: IpAddr, interface: Option<&str>) -> Kind {
        if address.is_multicast() {
            return Kind::Multicast;
        }
        let broadcast = matches!(address, IpAddr::V4(it) if it.is_broadcast());
        if broadcast || address.is_unspecified() {
            return Kind::Broadcast;
        }
        let on = |it: &Route| interface.is_none_or(|name| it.leads_to(name));
        let found = self.best("local", address).filter(|it| on(it));
        found.and_then(|it| it.kind).unwrap_or(Kind::Unicast)
    }

    /// The first address of an interface.
    pub(super) fn address_on(&self, interface: &str) -> Option<IpAddr> {
        let mut own = self.addresses.iter();
        let own = own.find(|it| !it.narrow && it.interface == interface);
        own.map(|it| it.net.addr())
    }

    /// The address that an interface gives to what it sends to `dst` by way of `next`. Of IPv4 one of `next`'s network,
    /// else its first; else another interface's (`inet_select_addr`). Of IPv6 `dst` itself, else the interface's own,
    /// else any, deprecated ones last; of several the one that has most in common with `dst` (`ipv6_get_saddr_eval`, without
    /// its table of labels).
    pub(super) fn address_of(&self, interface: &str, next: IpAddr, dst: IpAddr) -> Option<IpAddr> {
        let wide = || self.addresses.iter().filter(|it| !it.narrow);
        let own = || wide().filter(|it| it.interface == interface);
        if dst.is_ipv4() {
            let near = own().find(|it| it.net.contains(&next));
            let found = near.or_else(|| own().next()).or_else(|| wide().next());
            return found.map(|it| it.net.addr());
        }
        let mut all = self.addresses.iter();
        if all.any(|it| it.net.addr() == dst) {
            return Some(dst);
        }
        let of_the_link = |it: &&Address| it.interface == interface && is_of_a_link(it.net.addr());
        if is_of_a_link(dst)
            && let Some(own) = self.addresses.iter().find(of_the_link)
        {
            return Some(own.net.addr());
        }
        let best = wide().min_by_key(|it| {
            let is_own = it.interface == interface;
            Reverse((!it.deprecated, is_own, in_common(it.net, dst)))
        });
        best.map(|it| it.net.addr())
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn is_of_a_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// How many bits an address of a network has in common with another, the network's at most.
fn in_common(net: IpNet, other: IpAddr) -> u32 {
    let (IpAddr::V6(own), IpAddr::V6(other)) = (net.addr(), other) else {
        return 0;
    };
    let same = (own.to_bits() ^ other.to_bits()).leading_zeros();
    same.min(u32::from(net.prefix_len()))
}

fn any_like(address: IpAddr) -> IpNet {
    let host = IpNet::from(address);
    host.supernet().unwrap_or(host)
}

impl PolicyRule {
    fn fits(&self, query: Query<'_>) -> bool {
        let within = |net: Option<IpNet>, address| net.is_none_or(|net| net.contains(&address));
        let by = |name: &Option<String>, is: Option<&str>| {
            name.as_deref()
                .is_none_or(|name| is.unwrap_or("lo") == name)
        };
        let fits = within(self.from, query.src)
            && within(self.to, query.dst)
            && self.mark.is_none_or(|mark| mark.has(query.mark))
            && by(&self.input, query.input)
            // Nobody here asks for an output interface.
            && self.output.is_none();
        fits != self.not
    }
}

impl Route {
    fn local(net: IpNet, interface: &str) -> Self {
        Self {
            kind: Some(Kind::Local),
            net,
            hops: vec![Hop {
                interface: interface.to_owned(),
                via: None,
            }],
            metric: 0,
            src: None,
        }
    }

    fn leads_to(&self, interface: &str) -> bool {
        self.hops.iter().any(|hop| hop.interface == interface)
    }
}

#[cfg(test)]
mod tests;
