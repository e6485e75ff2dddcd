//! What `ip rule`, `ip route` and `ip addr` print (iproute2 6.1). Lines that are none of theirs are passed over.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{Address, Decision, Hop, PolicyRule, Route};
use crate::{
    Family,
    walk::{
        matches::{Kind, Masked},
        parse::net,
    },
    words::is_number,
};

/// The rules, by preference.
pub(super) fn rules(text: &str) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = text.lines().filter_map(rule).collect();
    rules.sort_by_key(|rule| rule.preference);
    rules
}

fn rule(line: &str) -> Option<PolicyRule> {
    let (preference, words) = line.split_once(':')?;
    let mut rule = PolicyRule {
        preference: preference.trim().parse().ok()?,
        ..PolicyRule::default()
    };
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        if rule.read(word, &mut words).is_none() {
            rule.unknown = Some(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    Some(rule)
}

impl PolicyRule {
    /// Reads one of its clauses; none when it is not known.
    fn read<'a>(&mut self, word: &str, rest: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        match word {
            "not" => self.not = true,
            "unreachable" => self.action = Decision::Fails(Kind::Unreachable),
            "prohibit" => self.action = Decision::Fails(Kind::Prohibit),
            "blackhole" => self.action = Decision::Fails(Kind::Blackhole),
            "nop" | "[detached]" => self.action = Decision::Nothing,
            _ => self.read_value(word, rest.next()?)?,
        }
        Some(())
    }

    fn read_value(&mut self, word: &str, value: &str) -> Option<()> {
        match word {
            "from" | "to" if value == "all" => {}
            "from" => self.from = Some(net(value)?),
            "to" => self.to = Some(net(value)?),
            "fwmark" => self.mark = Some(Masked::parse(value)?),
            "iif" => self.input = Some(value.to_owned()),
            "oif" => self.output = Some(value.to_owned()),
            "lookup" => self.action = Decision::Table(value.to_owned()),
            "suppress_prefixlength" => self.suppress = Some(value.parse().ok()?),
            "proto" | "protocol" => {}
            _ => return None,
        }
        Some(())
    }
}

/// The tables.
pub(super) fn routes(family: Family, text: &str) -> BTreeMap<String, Vec<Route>> {
    let mut tables: BTreeMap<String, Vec<Route>> = BTreeMap::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        if line.trim_start().starts_with("nexthop ") {
            let table = last.as_ref().and_then(|name| tables.get_mut(name));
            if let Some(route) = table.and_then(|table| table.last_mut()) {
                route.hops.extend(hop(&words(line)));
            }
        } else if let Some((table, route)) = route(family, line) {
            last = Some(table.clone());
            tables.entry(table).or_default().push(route);
        }
    }
    tables
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn value<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == name)?;
    words.get(at + 1).copied()
}

fn route(family: Family, line: &str) -> Option<(String, Route)> {
    let words = words(line);
    if words.contains(&"dead") {
        return None;
    }
    let (kind, rest) = kind(&words);
    let net = match *rest.first()? {
        "default" => any(family).filter(|_| is_of(family, rest))?,
        text => net(text).filter(|net| net.addr().is_ipv4() == (family == Family::V4))?,
    };
    let table = value(rest, "table");
    let of_host = matches!(kind, Some(Kind::Local | Kind::Broadcast));
    let table = table.unwrap_or(if of_host { "local" } else { "main" });
    let metric = value(rest, "metric").and_then(|it| it.parse().ok());
    let route = Route {
        kind,
        net,
        hops: hop(rest).into_iter().collect(),
        metric: metric.unwrap_or_default(),
        src: value(rest, "src").and_then(|it| it.parse().ok()),
    };
    Some((table.to_owned(), route))
}

/// Whether a default route is this family's: its gateway says so, or the preference that only routes of IPv6 have.
fn is_of(family: Family, words: &[&str]) -> bool {
    let v6 = match value(words, "via").and_then(|it| it.parse::<IpAddr>().ok()) {
        Some(via) => via.is_ipv6(),
        None => words.contains(&"pref"),
    };
    v6 == (family == Family::V6)
}

/// The kind of a route, and what stands after it; no kind is `throw`.
fn kind<'a, 'b>(words: &'b [&'a str]) -> (Option<Kind>, &'b [&'a str]) {
    let known = match words.first().copied().unwrap_or_default() {
        "unicast" => Some(Kind::Unicast),
        "local" | "anycast" => Some(Kind::Local),
        "broadcast" => Some(Kind::Broadcast),
        "multicast" => Some(Kind::Multicast),
        "blackhole" => Some(Kind::Blackhole),
        "unreachable" => Some(Kind::Unreachable),
        "prohibit" => Some(Kind::Prohibit),
        "throw" => None,
        _ => return (Some(Kind::Unicast), words),
    };
    (known, words.get(1..).unwrap_or_default())
}

fn any(family: Family) -> Option<IpNet> {
    match family {
        Family::V4 => "0.0.0.0/0",
        Family::V6 => "::/0",
    }
    .parse()
    .ok()
}

fn hop(words: &[&str]) -> Option<Hop> {
    let via = value(words, "via");
    // Of another family: `via inet6 fe80::1`.
    let via = via
        .filter(|it| *it != "inet6")
        .or_else(|| value(words, "inet6"));
    Some(Hop {
        interface: value(words, "dev")?.to_owned(),
        via: via.and_then(|it| it.parse().ok()),
    })
}

/// The addresses, from `ip addr` with or without `-o`.
pub(super) fn addresses(family: Family, text: &str) -> Vec<Address> {
    let mut interface = String::new();
    let mut addresses = Vec::new();
    for line in text.lines() {
        let words = words(line);
        let numbered = words
            .first()
            .is_some_and(|it| it.strip_suffix(':').is_some_and(is_number));
        if numbered && let Some(name) = words.get(1) {
            let name = name.trim_end_matches(':');
            name.split_once('@')
                .map_or(name, |(name, _)| name)
                .clone_into(&mut interface);
        }
        let word = match family {
            Family::V4 => "inet",
            Family::V6 => "inet6",
        };
        let Some(net) = value(&words, word).and_then(net) else {
            continue;
        };
        // One that others have, or may have, is none yet.
        if words.contains(&"tentative") || words.contains(&"dadfailed") {
            continue;
        }
        let scope = value(&words, "scope").unwrap_or("global");
        addresses.push(Address {
            net,
            interface: interface.clone(),
            narrow: scope != "global" || words.contains(&"secondary"),
            deprecated: words.contains(&"deprecated"),
        });
    }
    addresses
}
