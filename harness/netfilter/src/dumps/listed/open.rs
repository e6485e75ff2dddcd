//! A table whose listing is being read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{Listed, counters, incomplete, rule};
use crate::{Family, error::NetfilterError, save::Ruleset};

/// Built-in chains, in the order in which most versions list those of a table.
pub(in crate::dumps) const BUILT_IN: [&str; 5] =
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// Which of them a table has. Up to Linux 2.6.35 nat had no INPUT.
const TABLES: [(&str, &[&str]); 5] = [
    ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
    ("nat", &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]),
    ("nat", &["PREROUTING", "OUTPUT", "POSTROUTING"]),
    ("mangle", &BUILT_IN),
    ("raw", &["PREROUTING", "OUTPUT"]),
];
/// What rules do that is no chain.
const TARGETS: [&str; 35] = [
    "ACCEPT",
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CONNMARK",
    "CONNSECMARK",
    "CT",
    "DNAT",
    "DROP",
    "DSCP",
    "HL",
    "HMARK",
    "LOG",
    "MARK",
    "MASQUERADE",
    "NETMAP",
    "NFLOG",
    "NFQUEUE",
    "NOTRACK",
    "QUEUE",
    "REDIRECT",
    "REJECT",
    "RETURN",
    "SECMARK",
    "SET",
    "SNAT",
    "SYNPROXY",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TEE",
    "TOS",
    "TPROXY",
    "TRACE",
    "TTL",
    "ULOG",
];

/// A listing that is being read.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// The line at which it begins.
    first: usize,
    built_in: BTreeSet<&'static str>,
    /// Whether a built-in chain drops what no rule decides.
    drops: bool,
    /// How often rules are said to lead to each chain of somebody's.
    references: BTreeMap<String, usize>,
    /// How often they do.
    leads: BTreeMap<String, usize>,
    /// Declarations of chains, and rules.
    chains: String,
    rules: String,
    /// The chain whose rules come.
    pub(super) chain: Option<String>,
    family: Option<Family>,
}

/// `Chain FORWARD (policy ACCEPT 0 packets, 0 bytes)`, `Chain KUBE-SERVICES (2 references)`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain<'a> {
    name: &'a str,
    kind: Kind<'a>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind<'a> {
    BuiltIn { policy: &'a str, counters: String },
    Own { references: usize },
}

impl<'a> Chain<'a> {
    pub(super) fn read(line: &'a str) -> Option<Self> {
        let (name, about) = line.strip_prefix("Chain ")?.split_once(" (")?;
        let about: Vec<&str> = about.strip_suffix(')')?.split(' ').collect();
        let kind = match *about.as_slice() {
            [
                "policy",
                policy @ ("ACCEPT" | "DROP"),
                packets,
                "packets,",
                bytes,
                "bytes",
            ] => Kind::BuiltIn {
                policy,
                counters: counters(packets, bytes)?,
            },
            [references, "references"] => Kind::Own {
                references: references.parse().ok()?,
            },
            _ => return None,
        };
        let is_one = !name.contains(char::is_whitespace) && !name.contains('"');
        is_one.then_some(Self { name, kind })
    }
}

impl Open {
    /// One that begins at that line.
    pub(super) fn at(first: usize) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }

    /// Whether that chain is another table's: built-in chains come first, and each once.
    pub(super) fn ends_before(&self, chain: &Chain<'_>) -> bool {
        if self.references.contains_key(chain.name) || self.built_in.contains(chain.name) {
            return true;
        }
        let Kind::BuiltIn { .. } = chain.kind else {
            return false;
        };
        let place = |name: &str| BUILT_IN.iter().position(|it| *it == name);
        let last = self.built_in.iter().filter_map(|it| place(it)).max();
        // nat of iptables-nft 1.8.4 has OUTPUT behind POSTROUTING.
        let is_behind = place(chain.name) > last;
        !self.references.is_empty() || (!is_behind && self.table().is_some())
    }

    pub(super) fn begin(&mut self, chain: &Chain<'_>) {
        let name = chain.name;
        let (policy, counters) = match &chain.kind {
            Kind::BuiltIn { policy, counters } => {
                let built_in = BUILT_IN.into_iter().find(|it| *it == name);
                self.built_in.extend(built_in);
                self.drops |= *policy == "DROP";
                (*policy, counters.as_str())
            }
            Kind::Own { references } => {
                self.references.insert(name.to_owned(), *references);
                ("-", "[0:0]")
            }
        };
        self.chains
            .extend([":", name, " ", policy, " ", counters, "\n"]);
        self.chain = Some(name.to_owned());
    }

    /// Takes in a rule of the chain that is open, if it is one.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let (Some(chain), Some(fields)) = (&self.chain, rule::Fields::read(line)) else {
            return false;
        };
        let Some(counters) = counters(fields.packets, fields.bytes) else {
            return false;
        };
        let of_one = *self.family.get_or_insert(fields.family) == fields.family;
        if let Some(target) = fields.target {
            *self.leads.entry(target.to_owned()).or_default() += 1;
        }
        // Writing into a string does not fail.
        let _written = writeln!(self.rules, "{counters} -A {chain} {}", fields.save());
        of_one
    }

    fn table(&self) -> Option<&'static str> {
        let mut tables = TABLES.iter();
        let is_it = |chains: &[&str]| {
            let chains: BTreeSet<&str> = chains.iter().copied().collect();
            self.built_in.iter().copied().eq(chains)
        };
        tables
            .find(|(_, chains)| is_it(chains))
            .map(|(name, _)| *name)
    }

    /// Without a rule nobody knows of which family it is, and nothing is known but that there is none.
    pub(super) fn ended(self) -> Result<Option<Listed>, NetfilterError> {
        let first = self.first;
        let table = self.table();
        let table = table.ok_or_else(|| incomplete(first, "has not the chains of one table"))?;
        let Some(family) = self.family else {
            let why = "drops by a policy, and does not say packets of which family";
            return if self.drops {
                Err(incomplete(first, why))
            } else {
                Ok(None)
            };
        };
        let is_known =
            |target: &str| TARGETS.contains(&target) || self.references.contains_key(target);
        if !self.leads.keys().all(|target| is_known(target)) {
            return Err(incomplete(first, "lacks a chain that a rule leads to"));
        }
        let mut references = self.references.iter();
        if !references.all(|(name, count)| self.leads.get(name).unwrap_or(&0) == count) {
            return Err(incomplete(first, "lacks rules that lead to its chains"));
        }
        let Self { chains, rules, .. } = self;
        let ruleset = Ruleset::parse(&format!("*{table}\n{chains}{rules}COMMIT\n"));
        let read = ruleset
            .ok()
            .and_then(|mut it| it.tables.shift_remove(table));
        let unread = || incomplete(first, "has a rule that is not read");
        Ok(Some(Listed {
            first,
            family,
            table,
            rules: read.ok_or_else(unread)?,
        }))
    }
}
