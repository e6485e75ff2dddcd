//! What a command makes of a ruleset, as far as text shows: chains, jumps and rule numbers are checked as
//! the kernel checks them; whether a match or its values exist is not.

use std::collections::BTreeSet;

use crate::{
    command::{Command, Invocation},
    error::NetfilterError,
    restore::{Section, sections},
    rule::Rule,
    save::{Chain, Ruleset, Table},
};

/// Why a command would fail. Tables that a restore committed before stay applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The text itself is wrong.
    #[error(transparent)]
    Text(#[from] NetfilterError),
    /// A rule jumps to a chain that is not there.
    #[error("line {line}: chain {chain} jumps to {target}, which does not exist")]
    MissingTarget {
        /// Which line of the input, from 1.
        line: usize,
        /// The chain that holds the rule.
        chain: String,
        /// The missing chain.
        target: String,
    },
    /// A command about a chain that is not there.
    #[error("line {line}: chain {chain} does not exist")]
    MissingChain {
        /// Which line of the input, from 1.
        line: usize,
        /// The missing chain.
        chain: String,
    },
    /// A rule to delete or replace is not there.
    #[error("line {line}: chain {chain} has no such rule")]
    MissingRule {
        /// Which line of the input, from 1.
        line: usize,
        /// The chain.
        chain: String,
    },
    /// A chain to create or to rename to is there already.
    #[error("line {line}: chain {chain} already exists")]
    Exists {
        /// Which line of the input, from 1.
        line: usize,
        /// The chain.
        chain: String,
    },
    /// A chain to delete that is built in, has rules, or is jumped to.
    #[error("line {line}: chain {chain} is in use")]
    InUse {
        /// Which line of the input, from 1.
        line: usize,
        /// The chain.
        chain: String,
    },
}

/// Applies the command to the ruleset of its protocol. On failure the ruleset is as the kernel would leave
/// it: each table all or nothing.
pub fn apply<S: AsRef<str>>(ruleset: &mut Ruleset, argv: &[S], input: &str) -> Result<(), Refusal> {
    let (noflush, only, parts) = match Invocation::parse(argv)? {
        Invocation::NoChange | Invocation::Restore { test: true, .. } => return Ok(()),
        Invocation::Single { table, command, .. } => {
            let part = Section {
                table,
                commands: vec![(1, command)],
                commit: Some(1),
            };
            (true, None, vec![part])
        }
        Invocation::Restore { noflush, only, .. } => (noflush, only, sections(input)?),
    };
    for part in parts {
        let skipped = only.as_ref().is_some_and(|only| *only != part.table);
        if part.commit.is_none() || skipped {
            continue;
        }
        let mut table = match ruleset.tables.get(&part.table) {
            Some(table) => table.clone(),
            None => Table::built_in(&part.table),
        };
        if !noflush {
            table.chains.retain(|_, chain| chain.policy.is_some());
            table
                .chains
                .values_mut()
                .for_each(|chain| chain.rules.clear());
        }
        for (line, command) in part.commands {
            table.take(line, command)?;
        }
        ruleset.tables.insert(part.table, table);
    }
    Ok(())
}

impl Table {
    /// A table as the kernel makes it on first use.
    pub fn built_in(name: &str) -> Self {
        let chains: &[&str] = match name {
            "raw" => &["PREROUTING", "OUTPUT"],
            "mangle" => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
            "nat" => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
            _ => &["INPUT", "FORWARD", "OUTPUT"],
        };
        let chain = || Chain {
            policy: Some("ACCEPT".to_owned()),
            ..Chain::default()
        };
        let chains = chains
            .iter()
            .map(|&name| (name.to_owned(), chain()))
            .collect();
        Self { chains }
    }

    fn take(&mut self, line: usize, command: Command) -> Result<(), Refusal> {
        match command {
            Command::NoChange => {}
            Command::Declare { chain, policy, .. } => self.declare(chain, policy),
            Command::Append { chain, rule } => {
                let end = self.get(&chain, line)?.rules.len() + 1;
                self.insert(&chain, end, rule, line)?;
            }
            Command::Insert {
                chain,
                number,
                rule,
            } => self.insert(&chain, number, rule, line)?,
            Command::Replace {
                chain,
                number,
                rule,
            } => {
                self.remove(&chain, number, line)?;
                self.insert(&chain, number, rule, line)?;
            }
            Command::Delete { chain, rule } => {
                let rules = &self.get(&chain, line)?.rules;
                let index = rules.iter().position(|other| other.same(&rule));
                self.remove(&chain, index.map_or(0, |index| index + 1), line)?;
            }
            Command::DeleteNumber { chain, number } => self.remove(&chain, number, line)?,
            Command::Flush { chain: Some(chain) } => self.get(&chain, line)?.rules.clear(),
            Command::Flush { chain: None } => {
                self.chains
                    .values_mut()
                    .for_each(|chain| chain.rules.clear());
            }
            Command::NewChain { chain } => {
                self.must_be_free(&chain, line)?;
                self.chains.insert(chain, Chain::default());
            }
            Command::DeleteChain { chain: Some(chain) } => self.delete(&chain, line)?,
            Command::DeleteChain { chain: None } => self.delete_unused(),
            Command::Policy { chain, policy } => self.get(&chain, line)?.policy = Some(policy),
            Command::Rename { chain, to } => self.rename(&chain, to, line)?,
        }
        Ok(())
    }

    fn get(&mut self, chain: &str, line: usize) -> Result<&mut Chain, Refusal> {
        let missing = || Refusal::MissingChain {
            line,
            chain: chain.to_owned(),
        };
        self.chains.get_mut(chain).ok_or_else(missing)
    }

    fn must_be_free(&self, chain: &str, line: usize) -> Result<(), Refusal> {
        if self.chains.contains_key(chain) {
            let chain = chain.to_owned();
            return Err(Refusal::Exists { line, chain });
        }
        Ok(())
    }

    fn declare(&mut self, chain: String, policy: Option<String>) {
        let entry = self.chains.entry(chain).or_default();
        match &entry.policy {
            Some(_) => entry.policy = policy.or(entry.policy.take()),
            None => entry.rules.clear(),
        }
    }

    fn insert(
        &mut self,
        chain: &str,
        number: usize,
        rule: Rule,
        line: usize,
    ) -> Result<(), Refusal> {
        if let Some(target) = rule.target()
            && is_chain_name(&target)
            && !self.chains.contains_key(&*target)
        {
            return Err(Refusal::MissingTarget {
                line,
                chain: chain.to_owned(),
                target: target.into_owned(),
            });
        }
        let rules = &mut self.get(chain, line)?.rules;
        match number.checked_sub(1) {
            Some(index) if index <= rules.len() => rules.insert(index, rule),
            _ => return Err(missing_rule(chain, line)),
        }
        Ok(())
    }

    fn remove(&mut self, chain: &str, number: usize, line: usize) -> Result<(), Refusal> {
        let rules = &mut self.get(chain, line)?.rules;
        match number.checked_sub(1) {
            Some(index) if index < rules.len() => drop(rules.remove(index)),
            _ => return Err(missing_rule(chain, line)),
        }
        Ok(())
    }

    fn targets(&self) -> BTreeSet<String> {
        let rules = self.chains.values().flat_map(|chain| &chain.rules);
        rules
            .filter_map(|rule| rule.target().map(std::borrow::Cow::into_owned))
            .collect()
    }

    fn delete(&mut self, chain: &str, line: usize) -> Result<(), Refusal> {
        let found = self.get(chain, line)?;
        let busy = found.policy.is_some() || !found.rules.is_empty();
        if busy || self.targets().contains(chain) {
            return Err(Refusal::InUse {
                line,
                chain: chain.to_owned(),
            });
        }
        self.chains.shift_remove(chain);
        Ok(())
    }

    fn delete_unused(&mut self) {
        let used = self.targets();
        self.chains.retain(|name, chain| {
            chain.policy.is_some() || !chain.rules.is_empty() || used.contains(name)
        });
    }

    fn rename(&mut self, chain: &str, to: String, line: usize) -> Result<(), Refusal> {
        self.must_be_free(&to, line)?;
        let moved = std::mem::take(self.get(chain, line)?);
        self.chains.shift_remove(chain);
        self.chains.insert(to, moved);
        Ok(())
    }
}

/// Targets are spelled in capitals without a hyphen or digit (`DROP`, `MARK`, `MASQUERADE`, `NFQUEUE`);
/// Kubernetes' and Calico's chains always have a hyphen.
fn is_chain_name(target: &str) -> bool {
    !target.chars().all(|c| c.is_ascii_uppercase())
}

fn missing_rule(chain: &str, line: usize) -> Refusal {
    Refusal::MissingRule {
        line,
        chain: chain.to_owned(),
    }
}
