//! A ruleset as `iptables-save` prints it.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::{
    error::NetfilterError,
    rule::{Counters, Rule},
    words::is_closed,
};

/// All tables of one protocol, in the order in which they were printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruleset {
    /// By name.
    pub tables: IndexMap<String, Table>,
}

/// One table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// By name.
    pub chains: IndexMap<String, Chain>,
}

/// One chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// `ACCEPT` or `DROP` of a built-in chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What the policy was applied to.
    pub counters: Counters,
    /// In order.
    pub rules: Vec<Rule>,
}

/// A place where packets end: a rule or a policy that drops or rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropSite<'a> {
    /// The table.
    pub table: &'a str,
    /// The chain.
    pub chain: &'a str,
    /// Which rule, from 1; 0 for the chain's policy.
    pub number: usize,
    /// The rule; none for the policy.
    pub rule: Option<&'a Rule>,
    /// How many packets ended here, where counters were asked for.
    pub counters: Counters,
}

impl Ruleset {
    /// Parses what `iptables-save`, with or without `-c` and `-t`, printed. Counters in front of a rule
    /// and comment lines are optional.
    pub fn parse(save: &str) -> Result<Self, NetfilterError> {
        let mut ruleset = Self::default();
        let mut table: Option<(&str, Table)> = None;
        // A carriage return is no part of a line's end: nothing here prints one.
        for (line, number) in save.split('\n').zip(1..) {
            if let Some(comment) = line.strip_prefix('#') {
                complain_of_incompatible(comment)?;
            } else if let Some(name) = line.strip_prefix('*') {
                table = Some((name, ruleset.tables.shift_remove(name).unwrap_or_default()));
            } else if line == "COMMIT" {
                let (name, table) = table.take().ok_or_else(|| no_table(line, number))?;
                ruleset.tables.insert(name.to_owned(), table);
            } else if !line.is_empty() {
                let (name, table) = table.as_mut().ok_or_else(|| no_table(line, number))?;
                table.read_line(name, line, number)?;
            }
        }
        match table {
            // The end of the text is missing, so rules may be, too.
            Some((name, _)) => Err(NetfilterError::Line {
                line: save.lines().count(),
                text: format!("*{name} has no COMMIT"),
            }),
            None => Ok(ruleset),
        }
    }

    /// A chain of a table.
    pub fn chain(&self, table: &str, chain: &str) -> Option<&Chain> {
        self.tables.get(table)?.chains.get(chain)
    }

    /// How many rules of the chain jump (or go) to `jump`; without it, 1 when the chain is there, else 0.
    pub fn count(&self, table: &str, chain: &str, jump: Option<&str>) -> usize {
        match (self.chain(table, chain), jump) {
            (None, _) => 0,
            (Some(_), None) => 1,
            (Some(chain), Some(jump)) => {
                let jumps = |rule: &&Rule| rule.target().as_deref() == Some(jump);
                chain.rules.iter().filter(jumps).count()
            }
        }
    }

    /// How many rules there are in all tables.
    pub fn rules(&self) -> usize {
        let chains = self.tables.values().flat_map(|table| table.chains.values());
        chains.map(|chain| chain.rules.len()).sum()
    }

    /// Every rule and every policy that drops or rejects, in order.
    pub fn drops(&self) -> Vec<DropSite<'_>> {
        let mut drops = Vec::new();
        for (table, Table { chains }) in &self.tables {
            for (name, chain) in chains {
                drops.extend(chain.drops(table, name));
            }
        }
        drops
    }
}

impl Table {
    fn read_line(&mut self, table: &str, line: &str, number: usize) -> Result<(), NetfilterError> {
        let bad = || NetfilterError::Line {
            line: number,
            text: line.to_owned(),
        };
        if let Some(declaration) = line.strip_prefix(':') {
            let (name, chain) = read_chain(declaration).ok_or_else(bad)?;
            self.chains.insert(name, chain);
            return Ok(());
        }
        let (counters, rest) = match line.split_once(' ') {
            Some((first, rest)) if first.starts_with('[') => {
                (Some(Counters::parse(first).ok_or_else(bad)?), rest)
            }
            _ => (None, line),
        };
        let rule = rest.strip_prefix("-A ").ok_or_else(bad)?;
        let (name, text) = rule.split_once(' ').unwrap_or((rule, ""));
        if !is_closed(text) {
            return Err(NetfilterError::OpenQuote {
                line: number,
                text: line.to_owned(),
            });
        }
        let chain = self
            .chains
            .get_mut(name)
            .ok_or_else(|| NetfilterError::NoChain {
                line: number,
                table: table.to_owned(),
                chain: name.to_owned(),
            })?;
        let text = text.to_owned();
        chain.rules.push(Rule { text, counters });
        Ok(())
    }
}

impl Chain {
    fn drops<'a>(&'a self, table: &'a str, chain: &'a str) -> impl Iterator<Item = DropSite<'a>> {
        let ends = |rule: &Rule| matches!(rule.target().as_deref(), Some("DROP" | "REJECT"));
        let rules = self
            .rules
            .iter()
            .zip(1..)
            .filter(move |(rule, _)| ends(rule));
        let rules = rules.map(move |(rule, number)| DropSite {
            table,
            chain,
            number,
            rule: Some(rule),
            counters: rule.counters.unwrap_or_default(),
        });
        let policy = (self.policy.as_deref() == Some("DROP")).then_some(DropSite {
            table,
            chain,
            number: 0,
            rule: None,
            counters: self.counters,
        });
        rules.chain(policy)
    }
}

fn read_chain(declaration: &str) -> Option<(String, Chain)> {
    let mut words = declaration.split(' ');
    let (name, policy, counters) = (words.next()?, words.next()?, words.next()?);
    let chain = Chain {
        policy: (policy != "-").then(|| policy.to_owned()),
        counters: Counters::parse(counters)?,
        rules: Vec::new(),
    };
    Some((name.to_owned(), chain))
}

fn no_table(line: &str, number: usize) -> NetfilterError {
    NetfilterError::NoTable {
        line: number,
        text: line.to_owned(),
    }
}

/// iptables-nft exits 0 and prints only this comment for a table that it cannot express.
fn complain_of_incompatible(comment: &str) -> Result<(), NetfilterError> {
    let table = comment
        .strip_prefix(" Table `")
        .and_then(|rest| rest.split_once("' is incompatible"));
    match table {
        Some((table, _)) => Err(NetfilterError::Incompatible {
            table: table.to_owned(),
        }),
        None => Ok(()),
    }
}

impl fmt::Display for Ruleset {
    /// As `iptables-save` prints it, without its comment lines; with counters where rules have them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Table { chains }) in &self.tables {
            writeln!(f, "*{name}")?;
            for (name, chain) in chains {
                let policy = chain.policy.as_deref().unwrap_or("-");
                writeln!(f, ":{name} {policy} {}", chain.counters)?;
            }
            for (name, rule) in chains
                .iter()
                .flat_map(|(name, chain)| chain.rules.iter().map(move |rule| (name, rule)))
            {
                if let Some(counters) = rule.counters {
                    write!(f, "{counters} ")?;
                }
                let space = if rule.text.is_empty() { "" } else { " " };
                writeln!(f, "-A {name}{space}{}", rule.text)?;
            }
            writeln!(f, "COMMIT")?;
        }
        Ok(())
    }
}
