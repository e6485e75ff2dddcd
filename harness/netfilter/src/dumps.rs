//! What people attach of a node, recognised by what is in it: `iptables-save`, `iptables -nvL`, `nft list ruleset`, `conntrack -L`,
//! `ip route`, `ip rule`, `ip addr`, `sysctl`, `ipset save` or `ipset list`, Felix's maps of NAT, flows and routes, one after the other or all in one file, with
//! whatever stands between them.

mod felix_maps;
mod felix_sets;
mod front;
mod head;
mod kinds;
mod line;
mod listed;
mod nat_map;
mod programs;
mod rebuilt;
mod sets;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, OnceLock},
};

pub(crate) use self::felix_maps::{FelixMaps, Known};
use self::{head::Head, line::kind};
pub use self::{
    kinds::Kind,
    nat_map::{At, Backends},
};
use crate::{
    Family,
    conntrack::{self, Flow},
    error::NetfilterError,
    nft::{self, NftTable},
    replay::Backend,
    save::Ruleset,
    walk::{Routing, State},
};

/// What is known of a node by its dumps.
#[derive(Debug, Clone, Default)]
pub struct Dumps {
    saves: Vec<Save>,
    nft: Vec<NftTable>,
    /// What nft alone has of iptables' rules, as soon as somebody asked.
    printed: OnceLock<Vec<Save>>,
    flows: Vec<Flow>,
    rules: String,
    routes: String,
    addresses: String,
    sysctls: Vec<(String, String)>,
    statistics: BTreeMap<String, u64>,
    ipsets: String,
    own: Option<BTreeSet<IpAddr>>,
    nat_map: BTreeMap<At, Backends>,
    felix_maps: Arc<FelixMaps>,
    /// Whether its tables come as the kernel asks them.
    is_ordered: bool,
    /// Whether Felix's eBPF programs are on a packet's way.
    has_programs: bool,
    found: BTreeSet<Kind>,
}

/// Rules of iptables, as they were printed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Save {
    /// Of which packets.
    pub family: Family,
    /// In whose tables they are, where that is said.
    pub backend: Option<Backend>,
    /// The tables.
    pub ruleset: Ruleset,
    /// Whether it was listed by `iptables -nvL`, table by table.
    pub(crate) is_listed: bool,
}

impl Dumps {
    /// Takes in a text, and says what it found there; nothing where it knows nothing of it. Rules that break off, or that
    /// no tool prints, are an error, as a walk through them would be wrong.
    pub fn add(&mut self, text: &str) -> Result<BTreeSet<Kind>, NetfilterError> {
        let mut found = BTreeSet::new();
        let rest = self.add_rules(text, &mut found)?;
        for (at, backends) in nat_map::read(&rest) {
            // What was dumped later counts.
            found.insert(Kind::NatMap);
            self.nat_map.insert(at, backends);
        }
        found.extend(Arc::make_mut(&mut self.felix_maps).take_json(&rest));
        let (sets, rest) = sets::of_listing(&rest);
        if !sets.is_empty() {
            found.insert(Kind::Sets);
            self.ipsets.push_str(&sets);
        }
        for line in rest.lines() {
            if let Some(kind) = Arc::make_mut(&mut self.felix_maps).take(line) {
                found.insert(kind);
                continue;
            }
            let Some(kind) = kind(line) else {
                continue;
            };
            found.insert(kind);
            let into = match kind {
                Kind::Rules => &mut self.rules,
                Kind::Routes => &mut self.routes,
                Kind::Addresses => &mut self.addresses,
                Kind::Sets => &mut self.ipsets,
                Kind::Flows => {
                    self.flows.extend(Flow::parse(line.trim()));
                    continue;
                }
                Kind::Statistics => {
                    for (name, counted) in conntrack::statistics(line) {
                        let sum = self.statistics.entry(name).or_default();
                        *sum = sum.saturating_add(counted);
                    }
                    continue;
                }
                _ => {
                    let pair = line
                        .split_once('=')
                        .map(|(name, value)| (name.trim(), value.trim()));
                    self.sysctls
                        .extend(pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
                    continue;
                }
            };
            into.extend([line, "\n"]);
        }
        self.found.extend(&found);
        Ok(found)
    }

    /// Takes in the rules of a text; what is left are the lines that are none.
    fn add_rules(
        &mut self,
        text: &str,
        found: &mut BTreeSet<Kind>,
    ) -> Result<String, NetfilterError> {
        let mut parts = Parts::default();
        for (line, number) in text.lines().zip(0..) {
            parts.take(line.trim_end_matches('\r'), number);
        }
        let Parts {
            rest,
            saves,
            listing,
            ..
        } = parts;
        let mut read = Vec::new();
        for Printed { first, head, text } in saves {
            let ruleset = Ruleset::parse(&text).map_err(|error| error.further_down(first))?;
            let family = head.and_then(|head| head.family);
            read.push(Save {
                family: family.unwrap_or_else(|| family_of_save(&text)),
                backend: head.and_then(|head| head.backend),
                ruleset,
                is_listed: false,
            });
        }
        let mut tables = nft::listing(&listing)?;
        // What this program lists itself has names: looks at rules need no second reading.
        tables.iter_mut().for_each(NftTable::name_numbers);
        let (listed, rest) = listed::read(rest)?;
        let has_saves = !read.is_empty() || !listed.is_empty();
        let was_listed = self.saves.iter().any(|it| it.is_listed);
        if listed.is_empty() && !was_listed {
            self.saves.extend(read);
        } else {
            self.saves = listed::beside(&self.saves, read, listed)?;
        }
        // Of a text that breaks off nothing is taken in.
        found.extend(has_saves.then_some(Kind::Save));
        found.extend((!tables.is_empty()).then_some(Kind::Nft));
        self.nft.extend(tables);
        self.printed = OnceLock::new();
        Ok(rest)
    }

    /// What was found.
    pub fn found(&self) -> &BTreeSet<Kind> {
        &self.found
    }

    /// The rules of iptables, in the order in which they came.
    pub fn saves(&self) -> &[Save] {
        &self.saves
    }

    /// The tables of nft, among them those of iptables' nft front end, as nft prints them.
    pub fn nft_tables(&self) -> &[NftTable] {
        &self.nft
    }

    /// conntrack's entries.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// What conntrack has counted on all processors, by name; nothing where that was not listed.
    pub fn statistics(&self) -> &BTreeMap<String, u64> {
        &self.statistics
    }

    /// Where Felix's eBPF programs lead requests; nothing where that was not dumped.
    pub fn nat_map(&self) -> &BTreeMap<At, Backends> {
        &self.nat_map
    }

    /// A kernel setting, as `net.ipv4.ip_forward`.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        let mut of_it = self.sysctls.iter().rev().filter(|(known, _)| known == name);
        of_it.next().map(|(_, value)| value.as_str())
    }

    /// What is not there, and would be asked for.
    pub fn missing(&self) -> Vec<Kind> {
        let has = |kind| self.found.contains(&kind);
        let asked = [
            Kind::Flows,
            Kind::Routes,
            Kind::Rules,
            Kind::Addresses,
            Kind::Sysctls,
        ];
        let rules = (!has(Kind::Save) && !has(Kind::Nft)).then_some(Kind::Save);
        let sets = (self.asks_sets() && !has(Kind::Sets)).then_some(Kind::Sets);
        let rest = asked.into_iter().filter(|kind| !has(*kind));
        let maps = [
            Kind::NatMap,
            Kind::FelixFlows,
            Kind::FelixRoutes,
            Kind::FelixPolicies,
        ];
        let maps = maps.into_iter();
        let maps = maps.filter(|map| self.has_programs && !has(*map));
        let all = rules.into_iter().chain(rest);
        all.chain(sets).chain(maps).collect()
    }

    fn asks_sets(&self) -> bool {
        let tables = self.saves.iter().flat_map(|it| it.ruleset.tables.values());
        let mut rules = tables.flat_map(|table| table.chains.values().flat_map(|it| &it.rules));
        rules.any(|rule| rule.text.contains("--match-set "))
    }

    /// Where packets of a family go; none where no route and no address is known.
    pub fn routing(&self, family: Family) -> Option<Routing> {
        let known = !self.routes.is_empty() || !self.addresses.is_empty();
        known.then(|| Routing::read(family, &self.rules, &self.routes, &self.addresses))
    }

    /// Whether an interface has others as its parts, as a bridge or a bond has (`master br0` of `ip addr`).
    pub fn has_parts(&self, interface: &str) -> bool {
        self.addresses.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.any(|it| it == "master") && words.next() == Some(interface)
        })
    }

    /// What is known of one family, to walk through.
    pub fn state(&self, family: Family) -> State {
        let mut state = State::new(family);
        if !self.is_ordered {
            state.set_unordered();
        }
        for save in self.of_iptables(family) {
            state.add_save(&save.ruleset);
        }
        state.add_nft(&self.nft);
        for flow in &self.flows {
            state.add_flow(flow.clone());
        }
        if let Some(routing) = self.routing(family) {
            state.set_routing(routing);
        }
        for (name, value) in &self.sysctls {
            state.set_sysctl(name, value);
        }
        state.add_ipsets(&self.ipsets);
        if self.has_programs {
            let maps = Arc::clone(&self.felix_maps);
            state.add_ipsets(&maps.asked_sets(family));
            let says = (self.outgoing(family), self.accepts_to_node(family));
            state.set_programs(&self.nat_map, maps, says);
        }
        if let Some(own) = &self.own {
            state.set_own(own.iter().copied());
        }
        state
    }
}

/// A text divided into the rules of each program and the rest.
#[derive(Debug, Default)]
struct Parts {
    rest: String,
    saves: Vec<Printed>,
    listing: String,
    /// The tables of the last save.
    seen: BTreeSet<String>,
    /// The last head of a save.
    head: Option<Head>,
    at: Reads,
}

/// The lines of a save.
#[derive(Debug)]
struct Printed {
    /// How many lines stand before it.
    first: usize,
    head: Option<Head>,
    text: String,
}

/// What is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reads {
    #[default]
    Rest,
    Save,
    Nft,
}

impl Parts {
    fn take(&mut self, line: &str, number: usize) {
        if self.at == Reads::Rest {
            self.begin(line, number);
        }
        let (save, nft, rest) = match self.at {
            Reads::Save => (line, "", ""),
            Reads::Nft => ("", line, ""),
            Reads::Rest => ("", "", line),
        };
        // What is another's is a blank line, so that lines keep their numbers.
        if let Some(last) = self.saves.last_mut() {
            last.text.extend([save, "\n"]);
        }
        self.listing.extend([nft, "\n"]);
        self.rest.extend([rest, "\n"]);
        if self.at == Reads::Save && line == "COMMIT" || self.at == Reads::Nft && line == "}" {
            self.at = Reads::Rest;
        }
    }

    /// Whether rules begin here. A table that comes again is another program's or another family's.
    fn begin(&mut self, line: &str, number: usize) {
        if is_nft_table(line) {
            self.at = Reads::Nft;
        } else if is_table(line) {
            let again = !self.seen.insert(line.to_owned());
            let other = self.saves.last().is_none_or(|save| save.head != self.head);
            if again || other {
                self.saves.push(Printed {
                    first: number,
                    head: self.head,
                    text: String::new(),
                });
                self.seen = BTreeSet::from([line.to_owned()]);
            }
            self.at = Reads::Save;
        } else if let Some(head) = Head::read(line) {
            self.head = Some(head);
        }
    }
}

fn is_table(line: &str) -> bool {
    matches!(line, "*raw" | "*mangle" | "*nat" | "*filter" | "*security")
}

fn is_nft_table(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    matches!(words.as_slice(), ["table", of, _, "{", ..] if nft::FAMILIES.contains(of))
}

/// Of a save without a head: as its addresses say.
fn family_of_save(save: &str) -> Family {
    let is_v6 = |word: &str| address(word).is_some_and(|it| it.is_ipv6());
    let says = save.contains("icmp6") || save.contains("ipv6-icmp");
    if says || save.split_whitespace().any(is_v6) {
        Family::V6
    } else {
        Family::V4
    }
}

/// The address that stands alone or before the length of a network.
fn address(word: &str) -> Option<IpAddr> {
    word.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests;
