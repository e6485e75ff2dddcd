//! Rules of iptables as `iptables -t TABLE -nvL` lists them, as sosreports have them: made what `iptables-save -c` prints. What is listed in words
//! that are not known here becomes a match that nobody knows, at which a walk is undecided. (Listed by 1.8.9. Other versions have a
//! protocol's name in place of its number, and no dashes where a rule is not about fragments.)

mod behind;
mod rule;

use std::fmt::Write;

use super::Save;
use crate::{Family, error::NetfilterError, save::Ruleset};

/// Built-in chains in the order of a table's listing.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// Which of them a table has. Up to Linux 2.6.35 nat had no INPUT.
const TABLES: [(&str, &[&str]); 5] = [
    ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
    ("nat", &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]),
    ("nat", &["PREROUTING", "OUTPUT", "POSTROUTING"]),
    ("mangle", &BUILT_IN),
    ("raw", &["PREROUTING", "OUTPUT"]),
];

/// A table that was listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) family: Family,
    pub(super) table: &'static str,
    /// As `iptables-save -c` prints it.
    pub(super) save: String,
}

/// Takes the tables that are listed in a text into those that are known, each once: whether there are any, and the lines that are none of theirs.
pub(super) fn add(saves: &mut Vec<Save>, text: &str) -> Result<(bool, String), NetfilterError> {
    let (listed, rest) = read(text);
    let has_listed = !listed.is_empty();
    for Listed {
        family,
        table,
        save,
    } in listed
    {
        let mut of_family = saves.iter().filter(|it| it.family == family);
        if of_family.any(|it| it.ruleset.tables.contains_key(table)) {
            continue;
        }
        let ruleset = Ruleset::parse(&save)?;
        let mut known = saves.iter_mut();
        match known.find(|it| it.is_listed && it.family == family) {
            Some(known) => known.ruleset.tables.extend(ruleset.tables),
            None => saves.push(Save {
                family,
                backend: None,
                ruleset,
                is_listed: true,
            }),
        }
    }
    Ok((has_listed, rest))
}

/// Forgets what was listed of tables that these have: they say more.
pub(super) fn give_way(saves: &mut Vec<Save>, to: &[Save]) {
    for listed in saves.iter_mut().filter(|it| it.is_listed) {
        let saved = to.iter().filter(|it| it.family == listed.family);
        let saved: Vec<&String> = saved.flat_map(|it| it.ruleset.tables.keys()).collect();
        let tables = &mut listed.ruleset.tables;
        tables.retain(|name, _| !saved.contains(&name));
    }
    saves.retain(|it| !it.is_listed || !it.ruleset.tables.is_empty());
}

/// A listing that is being read.
#[derive(Debug, Default)]
struct Open {
    built_in: Vec<&'static str>,
    /// How many chains there are, built in or not.
    count: usize,
    /// Declarations of chains, and rules.
    chains: String,
    rules: String,
    /// The chain whose rules come.
    chain: Option<String>,
    family: Option<Family>,
}

/// The tables that are listed in a text, and the lines of it that are none of theirs.
pub(super) fn read(text: &str) -> (Vec<Listed>, String) {
    if !text.contains(HEAD) {
        return (Vec::new(), text.to_owned());
    }
    let (mut listed, mut rest) = (Vec::new(), String::new());
    let mut open = Open::default();
    for line in text.lines() {
        if let Some((name, about)) = chain(line) {
            if open.ends_before(name, about) {
                listed.extend(std::mem::take(&mut open).ended());
            }
            open.begin(name, about);
        } else if !open.take(line) {
            rest.extend([line, "\n"]);
        }
    }
    listed.extend(open.ended());
    (listed, rest)
}

/// What stands above the rules of a chain that were listed with counters and interfaces.
const HEAD: &str = " pkts bytes target ";

/// `Chain FORWARD (policy ACCEPT 0 packets, 0 bytes)`, `Chain KUBE-SERVICES (2 references)`.
fn chain(line: &str) -> Option<(&str, &str)> {
    let (name, about) = line.strip_prefix("Chain ")?.split_once(" (")?;
    Some((name, about.strip_suffix(')')?))
}

impl Open {
    /// Whether that chain is another table's.
    fn ends_before(&self, name: &str, about: &str) -> bool {
        let place = |name: &str| BUILT_IN.iter().position(|it| *it == name);
        if !about.starts_with("policy ") {
            return false;
        }
        let last = self.built_in.last().and_then(|last| place(last));
        let has_own = self.count > self.built_in.len();
        has_own || (last.is_some() && place(name) <= last)
    }

    fn begin(&mut self, name: &str, about: &str) {
        let mut words = about.split(' ');
        let policy = words.next().filter(|it| *it == "policy");
        let policy = policy.and_then(|_| words.next());
        if policy.is_some() {
            self.built_in
                .extend(BUILT_IN.iter().find(|it| **it == name));
        }
        let counted: Vec<&str> = words.collect();
        let counters = match counted.as_slice() {
            [packets, "packets,", bytes, "bytes"] => counters(packets, bytes),
            _ => counters("0", "0"),
        };
        // Writing into a string does not fail.
        let _written = writeln!(
            self.chains,
            ":{name} {} {}",
            policy.unwrap_or("-"),
            counters.unwrap_or_default()
        );
        self.count += 1;
        self.chain = Some(name.to_owned());
    }

    /// Takes in a line below a chain's head: whether it is a rule, or nothing that counts.
    fn take(&mut self, line: &str) -> bool {
        let Some(chain) = &self.chain else {
            return false;
        };
        if line.trim().is_empty() {
            return true;
        }
        if line.starts_with(HEAD) {
            return true;
        }
        let Some(fields) = rule::Fields::read(line) else {
            self.chain = None;
            return false;
        };
        self.family.get_or_insert(fields.family);
        let counters = counters(fields.packets, fields.bytes).unwrap_or_default();
        let _written = writeln!(self.rules, "{counters} -A {chain} {}", fields.save());
        true
    }

    /// Without a rule nobody knows of which family it is.
    fn ended(self) -> Option<Listed> {
        let mut tables = TABLES.iter();
        let table = tables.find(|(_, chains)| *chains == self.built_in)?.0;
        let Self { chains, rules, .. } = self;
        Some(Listed {
            family: self.family?,
            table,
            save: format!("*{table}\n{chains}{rules}COMMIT\n"),
        })
    }
}

/// `[12000:1440000]` of `12K` packets and `1440K` bytes.
fn counters(packets: &str, bytes: &str) -> Option<String> {
    Some(format!("[{}:{}]", count(packets)?, count(bytes)?))
}

fn count(text: &str) -> Option<u64> {
    let units = [
        ('K', 1_000),
        ('M', 1_000_000),
        ('G', 1_000_000_000),
        ('T', 1_000_000_000_000),
    ];
    let unit = units.into_iter().find(|(unit, _)| text.ends_with(*unit));
    let (unit, times) = unit.map_or((' ', 1), |(unit, times)| (unit, times));
    let number: u64 = text.trim_end_matches(unit).parse().ok()?;
    number.checked_mul(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dumps::Dumps;

    /// Rules of real agents, loaded by iptables 1.8.9 (legacy), listed and saved by it. nfacct's is left out: the kernel has none.
    const REAL: [(&str, &str); 3] = [
        (
            include_str!("../../tests/data/listed/kube-proxy.list"),
            include_str!("../../tests/data/listed/kube-proxy.save"),
        ),
        (
            include_str!("../../tests/data/listed/felix-3.28.1-with-kube-proxy-1.32.3.list"),
            include_str!("../../tests/data/listed/felix-3.28.1-with-kube-proxy-1.32.3.save"),
        ),
        (
            include_str!("../../tests/data/listed/felix-3.28.1-ebpf.list"),
            include_str!("../../tests/data/listed/felix-3.28.1-ebpf.save"),
        ),
    ];
    /// One rule of each form that these do not have, likewise.
    const FORMS: (&str, &str) = (
        include_str!("../../tests/data/listed/forms.list"),
        include_str!("../../tests/data/listed/forms.save"),
    );

    fn rulesets(list: &str, save: &str) -> (Ruleset, Ruleset) {
        let (listed, rest) = read(list);
        assert_eq!(rest.trim(), "", "nothing is left of it");
        let text: String = listed.iter().map(|it| it.save.as_str()).collect();
        let read = |text: &str| Ruleset::parse(text).unwrap_or_else(|it| panic!("{it}\n{text}"));
        (read(&text), read(save))
    }

    #[test]
    fn what_is_listed_are_the_rules_that_are_saved() {
        for (list, save) in REAL.into_iter().chain([FORMS]) {
            let (listed, saved) = rulesets(list, save);
            for (name, table) in &listed.tables {
                let known = &saved.tables[name];
                assert_eq!(table.chains.len(), known.chains.len(), "{name}");
                for (chain, of) in &table.chains {
                    let known = &known.chains[chain];
                    assert_eq!(of.policy, known.policy, "{chain}");
                    let texts = |rules: &[crate::Rule]| {
                        let normal = rules.iter().map(crate::Rule::normal);
                        normal.collect::<Vec<_>>()
                    };
                    assert_eq!(texts(&of.rules), texts(&known.rules), "{name} {chain}");
                }
            }
            let has_rules = saved.tables.values();
            let has_rules =
                has_rules.filter(|it| it.chains.values().any(|it| !it.rules.is_empty()));
            assert_eq!(listed.tables.len(), has_rules.count());
        }
    }

    #[test]
    fn counters_are_numbers_again_and_the_family_is_that_of_addresses() {
        let list = "Chain INPUT (policy DROP 12K packets, 1440K bytes)\n \
            pkts bytes target     prot opt in     out     source               destination         \n \
            3M   1G ACCEPT     6        lo     *       ::/0                 ::/0                 tcp dpt:22\n\n\
            Chain FORWARD (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n\n\
            Chain OUTPUT (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n";
        let (listed, _) = read(list);
        let [listed] = listed.try_into().unwrap();
        assert_eq!((listed.family, listed.table), (Family::V6, "filter"));
        assert!(
            listed.save.contains(":INPUT DROP [12000:1440000]\n"),
            "{}",
            listed.save
        );
        let rule = "[3000000:1000000000] -A INPUT -i lo -p tcp -m tcp --dport 22 -j ACCEPT\n";
        assert!(listed.save.contains(rule), "{}", listed.save);
    }

    #[test]
    fn what_is_listed_in_unknown_words_is_a_match_that_nobody_knows() {
        let line = "    0     0 DROP       0    --  *      *       0.0.0.0/0            0.0.0.0/0            foo bar \"x\" /* c */";
        let rule = rule::Fields::read(line).unwrap().save();
        assert_eq!(
            rule,
            r#"-m as-listed --words "foo bar \"x\" /* c */" -j DROP"#
        );
    }

    #[test]
    fn tables_of_several_files_are_one_save_and_give_way_to_what_was_saved() {
        let (list, save) = REAL[0];
        let (nat, filter) = list.split_at(list.find("Chain INPUT (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination         \n    0     0 KUBE-FIREWALL").unwrap());
        let mut dumps = Dumps::default();
        for text in [filter, nat, filter] {
            dumps.add(text).unwrap();
        }
        let tables = |dumps: &Dumps| {
            let saves = dumps.saves().iter();
            let tables = saves.map(|it| it.ruleset.tables.keys().cloned().collect::<Vec<_>>());
            tables.collect::<Vec<_>>()
        };
        assert_eq!(tables(&dumps), [["filter", "nat"]]);
        dumps.add(save).unwrap();
        assert_eq!(dumps.saves().len(), 1);
        assert!(dumps.saves().iter().all(|it| !it.is_listed));
        dumps.add(nat).unwrap();
        assert_eq!(dumps.saves().len(), 1);
    }

    #[test]
    fn other_texts_and_listings_without_counters_are_left_alone() {
        for text in [
            "Chain INPUT (policy ACCEPT)\ntarget     prot opt source               destination         \n",
            "Chain reaction (2 references)\n",
            "10.20.0.0/16 via 10.0.1.1 dev eth0\n",
        ] {
            assert_eq!(read(text), (Vec::new(), text.to_owned()));
        }
    }
}
