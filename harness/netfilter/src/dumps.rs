//! What people attach of a node, recognised by what is in it: `iptables-save`, `nft list ruleset`, `conntrack -L`,
//! `ip route`, `ip rule`, `ip addr`, `sysctl`, `ipset save`, one after the other or all in one file, with whatever stands
//! between them.

mod rebuilt;

use std::{collections::BTreeSet, fmt, net::IpAddr};

use crate::{
    Family,
    conntrack::Flow,
    error::NetfilterError,
    nft::{self, NftTable},
    save::Ruleset,
    walk::{Routing, State},
    words::is_number,
};

/// What is known of a node by its dumps.
#[derive(Debug, Clone, Default)]
pub struct Dumps {
    saves: Vec<(Family, Ruleset)>,
    nft: Vec<NftTable>,
    flows: Vec<Flow>,
    rules: String,
    routes: String,
    addresses: String,
    sysctls: Vec<(String, String)>,
    ipsets: String,
    own: Option<BTreeSet<IpAddr>>,
    found: BTreeSet<Kind>,
}

/// What a dump is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `iptables-save` or `ip6tables-save`.
    Save,
    /// `nft list ruleset` or `nft list table`.
    Nft,
    /// `conntrack -L`.
    Flows,
    /// `ip route`.
    Routes,
    /// `ip rule`.
    Rules,
    /// `ip addr`.
    Addresses,
    /// `sysctl -a`.
    Sysctls,
    /// `ipset save`.
    Sets,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Save => "iptables-save",
            Self::Nft => "nft list ruleset",
            Self::Flows => "conntrack -L",
            Self::Routes => "ip route show table all",
            Self::Rules => "ip rule",
            Self::Addresses => "ip addr",
            Self::Sysctls => "sysctl -a",
            Self::Sets => "ipset save",
        })
    }
}

impl Dumps {
    /// Takes in a text, and says what it found there; nothing where it knows nothing of it. Rules that break off, or that
    /// no tool prints, are an error, as a walk through them would be wrong.
    pub fn add(&mut self, text: &str) -> Result<BTreeSet<Kind>, NetfilterError> {
        let mut found = BTreeSet::new();
        let rest = self.add_rules(text, &mut found)?;
        for line in rest.lines() {
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
        for Save {
            first,
            family,
            text,
        } in saves
        {
            let ruleset = Ruleset::parse(&text).map_err(|error| error.further_down(first))?;
            found.insert(Kind::Save);
            let family = family.unwrap_or_else(|| family_of_save(&text));
            self.saves.push((family, ruleset));
        }
        let tables = nft::listing(&listing)?;
        if !tables.is_empty() {
            found.insert(Kind::Nft);
            self.nft.extend(tables);
        }
        Ok(rest)
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
        rules.into_iter().chain(rest).chain(sets).collect()
    }

    fn asks_sets(&self) -> bool {
        let tables = self.saves.iter().flat_map(|(_, save)| save.tables.values());
        let mut rules = tables.flat_map(|table| table.chains.values().flat_map(|it| &it.rules));
        rules.any(|rule| rule.text.contains("--match-set "))
    }

    /// Where packets of a family go; none where no route and no address is known.
    pub fn routing(&self, family: Family) -> Option<Routing> {
        let known = !self.routes.is_empty() || !self.addresses.is_empty();
        known.then(|| Routing::read(family, &self.rules, &self.routes, &self.addresses))
    }

    /// What is known of one family, to walk through.
    pub fn state(&self, family: Family) -> State {
        let mut state = State::new(family);
        for (of, save) in &self.saves {
            if *of == family {
                state.add_save(save);
            }
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
    saves: Vec<Save>,
    listing: String,
    /// The tables of the last save.
    seen: BTreeSet<String>,
    /// What the last head of a save said.
    head: Option<Family>,
    at: At,
}

/// The lines of a save.
#[derive(Debug)]
struct Save {
    /// How many lines stand before it.
    first: usize,
    /// As its head says.
    family: Option<Family>,
    text: String,
}

/// What is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Rest,
    Save,
    Nft,
}

impl Parts {
    fn take(&mut self, line: &str, number: usize) {
        if self.at == At::Rest {
            self.begin(line, number);
        }
        let (save, nft, rest) = match self.at {
            At::Save => (line, "", ""),
            At::Nft => ("", line, ""),
            At::Rest => ("", "", line),
        };
        // What is another's is a blank line, so that lines keep their numbers.
        if let Some(last) = self.saves.last_mut() {
            last.text.extend([save, "\n"]);
        }
        self.listing.extend([nft, "\n"]);
        self.rest.extend([rest, "\n"]);
        if self.at == At::Save && line == "COMMIT" || self.at == At::Nft && line == "}" {
            self.at = At::Rest;
        }
    }

    /// Whether rules begin here. A table that comes again is another program's or another family's.
    fn begin(&mut self, line: &str, number: usize) {
        if is_nft_table(line) {
            self.at = At::Nft;
        } else if is_table(line) {
            let again = !self.seen.insert(line.to_owned());
            let other = self
                .saves
                .last()
                .is_none_or(|save| save.family != self.head);
            if again || other {
                self.saves.push(Save {
                    first: number,
                    family: self.head,
                    text: String::new(),
                });
                self.seen = BTreeSet::from([line.to_owned()]);
            }
            self.at = At::Save;
        } else if line.starts_with("# Generated by ip") {
            let v6 = line.contains(" ip6tables");
            self.head = Some(if v6 { Family::V6 } else { Family::V4 });
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

/// What a line is of that stands by itself.
fn kind(line: &str) -> Option<Kind> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_net = |text: &str| address(text).is_some();
    match *words.as_slice() {
        ["create" | "add", _, _, ..] if line.starts_with("create ") || line.starts_with("add ") => {
            Some(Kind::Sets)
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
        ["default", _, ..] => Some(Kind::Routes),
        [net, "dev" | "via" | "proto" | "metric" | "nhid", ..] if is_net(net) => Some(Kind::Routes),
        _ => Flow::parse(line.trim()).map(|_| Kind::Flows),
    }
}

#[cfg(test)]
mod tests;
