//! The rules of iptables, by front end and family, wherever in the dumps they stand.

use std::fmt;

use chainbreak_netfilter::{Chain, Family, Owner, Rule, Ruleset, dumps::Dumps, replay::Backend};

/// The tables of one front end and family.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) family: Family,
    pub(crate) backend: Option<Backend>,
    pub(crate) ruleset: Ruleset,
}

impl fmt::Display for Tables {
    /// `legacy, IPv4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        match self.backend {
            Some(Backend::Legacy) => write!(f, "legacy, {family}"),
            Some(Backend::Nft) => write!(f, "nft, {family}"),
            None => f.write_str(family),
        }
    }
}

impl Tables {
    /// All of a node. Of a table that was attached twice the later one counts.
    pub(crate) fn of(dumps: &Dumps) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for save in dumps.saves() {
            let is_it = |it: &&mut Self| it.family == save.family && it.backend == save.backend;
            let tables = save.ruleset.tables.clone();
            match all.iter_mut().find(is_it) {
                Some(known) => known.ruleset.tables.extend(tables),
                None => all.push(Self {
                    family: save.family,
                    backend: save.backend,
                    ruleset: Ruleset { tables },
                }),
            }
        }
        all
    }

    pub(crate) fn chain(&self, table: &str, chain: &str) -> Option<&Chain> {
        self.ruleset.chain(table, chain)
    }

    /// The rules of a chain; none of one that is not there.
    pub(crate) fn rules(&self, table: &str, chain: &str) -> &[Rule] {
        self.chain(table, chain).map_or(&[], |chain| &chain.rules)
    }

    /// Every chain of every table.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (&str, &str, &Chain)> {
        self.ruleset.tables.iter().flat_map(|(table, it)| {
            let chains = it.chains.iter();
            chains.map(move |(name, chain)| (table.as_str(), name.as_str(), chain))
        })
    }

    /// Whether an owner has a chain here.
    pub(crate) fn has(&self, owner: Owner) -> bool {
        self.chains()
            .any(|(_, name, _)| Owner::of_chain(name) == owner)
    }

    /// Whether Felix wrote here what it writes in eBPF mode only: rules about the marks of its programs (measured with v3.28.1 and v3.32.1; in
    /// iptables mode there is none).
    pub(crate) fn are_beside_ebpf(&self) -> bool {
        let of_felix = self
            .chains()
            .filter(|(_, name, _)| Owner::of_chain(name) == Owner::Felix);
        let mut rules = of_felix.flat_map(|(_, _, chain)| &chain.rules);
        rules.any(|rule| {
            rule.text.contains("--mark 0x1000000/0x1000000")
                || rule.text.contains("--mark 0x3000000")
        })
    }
}
