//! What a command changes: the answer to "who deleted KUBE-SVC-X".

use serde::{Deserialize, Serialize};

use crate::{
    command::{Command, Family, Invocation},
    error::NetfilterError,
    restore::{Section, sections},
    rule::Rule,
    transaction,
};

/// One change of a ruleset that a command was told to make.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Change {
    /// Whose tables.
    pub family: Family,
    /// The table.
    pub table: String,
    /// The chain; empty when every chain of the table is meant.
    pub chain: String,
    /// What happens to it.
    pub kind: ChangeKind,
}

/// What happens to a chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// A restore without `--noflush`: every rule and every user chain of the table goes first.
    TableReplaced,
    /// `:CHAIN …` in a restore: a user chain is there and empty afterwards, whatever it was before. A
    /// built-in chain only gets its policy, with `--noflush`.
    ChainDeclared,
    /// `-N`: the chain is made.
    ChainCreated,
    /// `-F`: all its rules go.
    ChainFlushed,
    /// `-X`: it goes.
    ChainDeleted,
    /// `-E`: it gets another name.
    ChainRenamed {
        /// Its new name.
        to: String,
    },
    /// `-P`, or `:CHAIN DROP`: the policy is set.
    PolicySet {
        /// `ACCEPT` or `DROP`.
        policy: String,
    },
    /// `-A`, `-I`: a rule comes.
    RuleAdded {
        /// The rule, quoted as iptables-save quotes.
        text: String,
        /// Where it jumps.
        target: Option<String>,
    },
    /// `-D` by value: a rule goes.
    RuleDeleted {
        /// The rule, quoted as iptables-save quotes.
        text: String,
        /// Where it jumps.
        target: Option<String>,
    },
    /// `-D` by number: a rule goes.
    RuleDeletedAt {
        /// Which, from 1.
        number: usize,
    },
    /// `-R`: a rule takes the place of another.
    RuleReplaced {
        /// Which, from 1.
        number: usize,
        /// The new rule, quoted as iptables-save quotes.
        text: String,
        /// Where it jumps.
        target: Option<String>,
    },
    /// The same rules stand in another order. Only [`crate::diff`] says so.
    RulesReordered,
}

impl Change {
    /// Whether the chain is gone or empty through this change (a later one may fill it again).
    pub fn empties(&self, table: &str, chain: &str) -> bool {
        let all = self.chain.is_empty();
        self.table == table
            && (all || self.chain == chain)
            && matches!(
                self.kind,
                ChangeKind::TableReplaced
                    | ChangeKind::ChainDeclared
                    | ChangeKind::ChainFlushed
                    | ChangeKind::ChainDeleted
                    | ChangeKind::ChainRenamed { .. }
            )
    }

    /// Whether this change deletes a rule of the chain that jumps to `jump`.
    pub fn unlinks(&self, table: &str, chain: &str, jump: &str) -> bool {
        let deletes = matches!(&self.kind, ChangeKind::RuleDeleted { target: Some(target), .. } if target == jump);
        deletes && self.table == table && self.chain == chain
    }
}

/// What the command was told to change, in order, whether or not it succeeded. Commands that only look
/// change nothing. Parts of a restore input without `COMMIT` change nothing.
pub fn changes<S: AsRef<str>>(argv: &[S], input: &str) -> Result<Vec<Change>, NetfilterError> {
    if let Some(changes) = transaction::changes(argv, input) {
        return Ok(changes);
    }
    collect(argv, input, |section| section.commit.is_some())
}

/// What the command did change, given how it ended. A failed restore keeps the tables committed before
/// the failing line, which its standard error names (legacy: the line itself, nft: its table's `COMMIT`);
/// when it names none, nothing is claimed. A failed `nft` changed nothing.
pub fn committed<S: AsRef<str>>(
    argv: &[S],
    input: &str,
    exit: i32,
    stderr: &str,
) -> Result<Vec<Change>, NetfilterError> {
    if exit == 0 {
        return changes(argv, input);
    }
    if transaction::changes(argv, input).is_some() {
        return Ok(Vec::new());
    }
    let failed = failed_line(stderr).unwrap_or(0);
    match Invocation::parse(argv)? {
        Invocation::Restore { .. } => collect(argv, input, |section| {
            section.commit.is_some_and(|commit| commit < failed)
        }),
        Invocation::Single { .. } | Invocation::NoChange => Ok(Vec::new()),
    }
}

/// `Error occurred at line: 24`, `line 3 failed`, `line 3: CHAIN_DEL failed`.
pub(crate) fn failed_line(stderr: &str) -> Option<usize> {
    stderr.lines().find_map(|line| {
        let (_, number) = line
            .rsplit_once("line: ")
            .or_else(|| line.split_once("line "))?;
        let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    })
}

fn collect<S: AsRef<str>>(
    argv: &[S],
    input: &str,
    takes: impl Fn(&Section) -> bool,
) -> Result<Vec<Change>, NetfilterError> {
    let (family, noflush, only) = match Invocation::parse(argv)? {
        Invocation::NoChange | Invocation::Restore { test: true, .. } => return Ok(Vec::new()),
        Invocation::Single {
            family,
            table,
            command,
        } => return Ok(of_command(family, &table, &command).collect()),
        Invocation::Restore {
            family,
            noflush,
            only,
            test: false,
        } => (family, noflush, only),
    };
    let mut changes = Vec::new();
    for section in sections(input)? {
        if !takes(&section) || only.as_ref().is_some_and(|only| *only != section.table) {
            continue;
        }
        if !noflush {
            changes.push(Change {
                family,
                table: section.table.clone(),
                chain: String::new(),
                kind: ChangeKind::TableReplaced,
            });
        }
        for (_, command) in &section.commands {
            changes.extend(of_command(family, &section.table, command));
        }
    }
    Ok(changes)
}

fn of_command(family: Family, table: &str, command: &Command) -> impl Iterator<Item = Change> {
    let change = |(chain, kind): (&str, ChangeKind)| Change {
        family,
        table: table.to_owned(),
        chain: chain.to_owned(),
        kind,
    };
    kinds(command)
        .into_iter()
        .map(change)
        .collect::<Vec<_>>()
        .into_iter()
}

fn kinds(command: &Command) -> Vec<(&str, ChangeKind)> {
    let target = |rule: &Rule| rule.target().map(std::borrow::Cow::into_owned);
    let one = match command {
        Command::NoChange => return Vec::new(),
        Command::Declare { chain, policy, .. } => {
            let set = policy.iter().map(|policy| {
                let policy = policy.clone();
                (chain.as_str(), ChangeKind::PolicySet { policy })
            });
            return std::iter::once((chain.as_str(), ChangeKind::ChainDeclared))
                .chain(set)
                .collect();
        }
        Command::Append { chain, rule } | Command::Insert { chain, rule, .. } => {
            let (text, target) = (rule.text.clone(), target(rule));
            (chain, ChangeKind::RuleAdded { text, target })
        }
        Command::Replace {
            chain,
            number,
            rule,
        } => {
            let (number, text, target) = (*number, rule.text.clone(), target(rule));
            (
                chain,
                ChangeKind::RuleReplaced {
                    number,
                    text,
                    target,
                },
            )
        }
        Command::Delete { chain, rule } => {
            let (text, target) = (rule.text.clone(), target(rule));
            (chain, ChangeKind::RuleDeleted { text, target })
        }
        Command::DeleteNumber { chain, number } => {
            (chain, ChangeKind::RuleDeletedAt { number: *number })
        }
        Command::NewChain { chain } => (chain, ChangeKind::ChainCreated),
        Command::Policy { chain, policy } => {
            let policy = policy.clone();
            (chain, ChangeKind::PolicySet { policy })
        }
        Command::Rename { chain, to } => (chain, ChangeKind::ChainRenamed { to: to.clone() }),
        Command::Flush { chain } => return vec![(all(chain.as_deref()), ChangeKind::ChainFlushed)],
        Command::DeleteChain { chain } => {
            return vec![(all(chain.as_deref()), ChangeKind::ChainDeleted)];
        }
    };
    vec![(one.0.as_str(), one.1)]
}

fn all(chain: Option<&str>) -> &str {
    chain.unwrap_or_default()
}
