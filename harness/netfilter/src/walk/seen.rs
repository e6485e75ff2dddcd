//! What the kernel was seen to do with packets, to be put beside a walk: rules whose counters grew between two listings, and those that
//! nft's trace names.

use std::collections::{BTreeMap, BTreeSet};

use super::path::{Path, Step, Walk};
use crate::{
    Family,
    counters::{RuleCounters, Site, Tally},
    dumps::Dumps,
    nft::{self, NftTable},
};

/// The rules that packets were seen to match, and those of which it would have been seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    matched: BTreeMap<Site, u64>,
    counting: BTreeSet<Site>,
    /// Tables of nft whose rules are all told, `inet filter`: a trace was read.
    traced: BTreeSet<String>,
}

impl Seen {
    /// What counted between two listings of a node. Rules that were written again in between begin at nothing.
    pub fn between(before: &Dumps, after: &Dumps, family: Family) -> Self {
        let (before, after) = (counters(before, family), counters(after, family));
        let counting = after.keys().cloned().collect();
        let mut tally = Tally::default();
        tally.see(before);
        let grown = tally.see(after);
        Self {
            matched: grown
                .into_iter()
                .map(|(site, counters)| (site, counters.packets))
                .collect(),
            counting,
            traced: BTreeSet::new(),
        }
    }

    /// Whether something of a node has no counters, and only a trace tells of it: tables of nft that are no front end's.
    pub fn needs_trace(dumps: &Dumps, family: Family) -> bool {
        native(dumps, family).next().is_some()
    }

    /// Takes in what `nft monitor trace` printed while these were the node's tables. Of tables that `iptables-save` lists, too, its counters
    /// tell.
    pub fn add_trace(&mut self, printed: &str, tables: &Dumps, family: Family) {
        self.traced.extend(native(tables, family).map(name));
        for site in printed.lines().filter_map(traced) {
            if self.traced.contains(&site.table) && !self.counting.contains(&site) {
                *self.matched.entry(site).or_default() += 1;
            }
        }
    }

    /// How many packets each rule was seen to match.
    pub fn matched(&self) -> &BTreeMap<Site, u64> {
        &self.matched
    }

    /// The way of a walk that the rules tell of, the longest of several; none where on each a rule did not match that would have been seen.
    pub fn way<'a>(&self, walk: &'a Walk) -> Option<&'a Path> {
        let agree = walk.paths.iter().filter(|path| self.lacks(path).is_empty());
        // Of two the first, as they are told.
        agree.rev().max_by_key(|path| self.seen_of(path).len())
    }

    /// The rules of a way that were seen to match, in its order.
    pub fn seen_of<'a>(&self, path: &'a Path) -> Vec<&'a Site> {
        sites(path, |site| self.matched.contains_key(site))
    }

    /// The rules of a way that did not match, though that would have been seen.
    pub fn lacks<'a>(&self, path: &'a Path) -> Vec<&'a Site> {
        sites(path, |site| {
            let is_told = self.counting.contains(site) || self.traced.contains(&site.table);
            is_told && !self.matched.contains_key(site)
        })
    }
}

/// The rules of a way, each once.
fn sites(path: &Path, is_asked: impl Fn(&Site) -> bool) -> Vec<&Site> {
    let mut found: Vec<&Site> = Vec::new();
    for step in &path.steps {
        if let Step::Rule { site, .. } = step
            && is_asked(site)
            && !found.contains(&site)
        {
            found.push(site);
        }
    }
    found
}

/// The counters of all rules that see a family, by the names that a walk has for their tables.
fn counters(dumps: &Dumps, family: Family) -> RuleCounters {
    let mut all = RuleCounters::new();
    let mut add = |counted: RuleCounters| {
        for (site, counters) in counted {
            all.entry(site).or_default().add(counters);
        }
    };
    for save in dumps.of_iptables(family) {
        add(save.ruleset.counted());
    }
    for table in native(dumps, family) {
        add(table.table.counted(&name(table)));
    }
    all
}

/// The tables of nft that see a family and are no front end's: those `iptables-save` lists, too.
fn native(dumps: &Dumps, family: Family) -> impl Iterator<Item = &NftTable> {
    let own = family.of_nft();
    let of_family = move |table: &&NftTable| table.family == own || table.family == "inet";
    let is_as_save = move |table: &NftTable| {
        dumps.of_iptables(family).any(|save| {
            let known = save.ruleset.tables.get(&table.name);
            known.is_some_and(|known| {
                let mut chains = table.table.chains.keys();
                chains.all(|chain| known.chains.contains_key(chain))
            })
        })
    };
    let tables = dumps.nft_tables().iter().filter(of_family);
    tables.filter(move |table| !is_as_save(table))
}

fn name(table: &NftTable) -> String {
    format!("{} {}", table.family, table.name)
}

/// The rule that a line of `nft monitor trace` names (nft 1.0): `trace id ID FAMILY TABLE CHAIN rule TEXT (verdict …)`.
fn traced(line: &str) -> Option<Site> {
    let (_id, at) = line.strip_prefix("trace id ")?.split_once(' ')?;
    let (at, rule) = at.split_once(" rule ")?;
    let (rule, _verdict) = rule.rsplit_once(" (verdict ")?;
    let [family, table, chain] = *at.split(' ').collect::<Vec<_>>().as_slice() else {
        return None;
    };
    // Read as a listing is, its text is the same as there.
    let listed = format!("table {family} {table} {{\n\tchain {chain} {{\n\t\t{rule}\n\t}}\n}}\n");
    let table = nft::listing(&listed).ok()?.pop()?;
    let rule = table.table.chains.get(chain)?.rules.first()?;
    Some(Site {
        table: name(&table),
        chain: chain.to_owned(),
        rule: rule.text.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::{Packet, Protocol, TcpFlags, walk};

    fn dumps(text: &str) -> Dumps {
        let mut dumps = Dumps::default();
        dumps.add(text).unwrap();
        dumps
    }

    fn packet() -> Packet {
        let end = |it: &str| it.parse().unwrap();
        let mut packet = Packet::new(Protocol::TCP, end("10.20.1.2:40000"), end("10.96.0.10:80"));
        packet.input = Some("eth0".to_owned());
        packet.flags = TcpFlags::SYN;
        packet
    }

    /// A service of two endpoints as iptables has it, and the packets that each rule has counted.
    fn save([service, first, second]: [u64; 3]) -> Dumps {
        dumps(&format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:SVC - [0:0]\n\
             [{service}:0] -A PREROUTING -d 10.96.0.10/32 -j SVC\n\
             [{first}:0] -A SVC -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.20.1.3:80\n\
             [{second}:0] -A SVC -p tcp -j DNAT --to-destination 10.20.1.4:80\nCOMMIT\n"
        ))
    }

    #[test]
    fn the_way_is_the_one_whose_rules_counted() {
        let before = save([7, 3, 4]);
        let walk = walk(&before.state(Family::V4), &packet());
        let way = |after| {
            let seen = Seen::between(&before, &save(after), Family::V4);
            seen.way(&walk).map(|path| path.packet.dst.to_string())
        };
        assert_eq!(way([8, 4, 4]).as_deref(), Some("10.20.1.3"));
        assert_eq!(way([8, 3, 5]).as_deref(), Some("10.20.1.4"));
        assert_eq!(way([8, 3, 4]), None, "no endpoint was chosen");
        assert_eq!(way([7, 3, 4]), None, "nothing came by");
        let seen = Seen::between(&before, &save([9, 3, 4]), Family::V4);
        assert_eq!(seen.matched().values().copied().collect::<Vec<_>>(), [2]);
        assert_eq!(seen.seen_of(&walk.paths[0]).len(), 1);
        assert_eq!(seen.lacks(&walk.paths[0]).len(), 1);
    }

    /// As nft 1.0.6 prints them.
    const TABLE: &str = "table ip kube-proxy {\n\tchain one {\n\t\tcounter packets 1 bytes 31 meta l4proto tcp dnat to 10.20.1.3:80\n\t}\n\n\t\
        chain two {\n\t\tmeta l4proto tcp dnat to 10.20.1.4:80\n\t}\n\n\t\
        chain out {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\t\
        ip daddr 10.96.0.10 numgen random mod 2 vmap { 0 : goto one, 1 : goto two }\n\t}\n}\n";
    const TRACE: &str = "trace id e49ca795 ip kube-proxy out packet: iif \"eth0\" ip saddr 10.20.1.2 ip daddr 10.96.0.10 tcp dport 80\n\
        trace id e49ca795 ip kube-proxy out rule ip daddr 10.96.0.10 numgen random mod 2 vmap { 0 : goto one, 1 : goto two } (verdict goto two)\n\
        trace id e49ca795 ip kube-proxy two rule meta l4proto tcp dnat to 10.20.1.4:80 (verdict accept)\n";

    #[test]
    fn what_has_no_counter_is_told_by_the_trace() {
        let listed = dumps(TABLE);
        let walk = walk(&listed.state(Family::V4), &packet());
        let mut seen = Seen::between(&listed, &listed, Family::V4);
        let destination = |seen: &Seen| seen.way(&walk).map(|path| path.packet.dst.to_string());
        assert_eq!(
            destination(&seen).as_deref(),
            Some("10.20.1.4"),
            "by its counter it was not the other one"
        );
        seen.add_trace("", &listed, Family::V4);
        assert_eq!(destination(&seen), None, "neither was traced");
        seen.add_trace(TRACE, &listed, Family::V4);
        assert_eq!(destination(&seen).as_deref(), Some("10.20.1.4"));
        let path = seen.way(&walk).unwrap();
        assert_eq!(seen.seen_of(path).len(), 2);
    }

    #[test]
    fn tables_that_iptables_lists_are_told_by_its_counters_alone() {
        let listed = "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\t\
            ip daddr 10.96.0.10 counter packets 1 bytes 60 jump SVC\n\t}\n\n\tchain SVC {\n\t}\n}\n";
        let mut both = save([1, 0, 0]);
        both.add(listed).unwrap();
        let mut seen = Seen::between(&both, &both, Family::V4);
        seen.add_trace(
            "trace id 1 ip nat PREROUTING rule ip daddr 10.96.0.10 counter packets 1 bytes 60 jump SVC (verdict jump SVC)\n",
            &both,
            Family::V4,
        );
        assert!(seen.matched().is_empty(), "{seen:?}");
    }
}
