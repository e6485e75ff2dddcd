//! What commands come to, as values: so many chains and jumps of each table, the telling ones by name.

use std::fmt;

use serde::Serialize;

use crate::text::count;

/// What one command, or some that belong together, come to. Never nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Deeds(pub Vec<Deed>);

/// One kind of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// Chains and jumps were written or taken away.
    Done {
        /// What was done to them.
        verb: Verb,
        /// In which tables, nat first.
        tables: Vec<InTable>,
    },
    /// Rules of so many chains were changed, and nothing else.
    ChangedRules {
        /// How many chains.
        chains: usize,
    },
}

/// What is done to chains and jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// They are gone.
    Deleted,
    /// Chains are there without rules.
    Emptied,
    /// Chains are there with other rules.
    Wrote,
    /// Jumps were added to chains that stay as they are otherwise; or what was not to be there was made.
    Added,
}

/// The chains and jumps of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InTable {
    /// Which table.
    pub table: String,
    /// All that is in it.
    pub whole: bool,
    /// How many chains.
    pub chains: usize,
    /// How many jumps.
    pub jumps: usize,
    /// The telling ones.
    pub named: Vec<Named>,
    /// Whether there are more to name.
    pub more: bool,
}

/// What is called by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Named {
    /// A jump from a built-in chain.
    Jump {
        /// Where it stands.
        chain: String,
        /// Where it leads.
        target: String,
    },
    /// A chain.
    Chain(String),
    /// Chains of services or endpoints, one each.
    Chains {
        /// What their names begin with.
        prefix: String,
        /// How many.
        count: usize,
    },
}

impl fmt::Display for Deeds {
    /// `deleted 9 chains and 2 jumps in nat (KUBE-SERVICES, KUBE-SVC-… ×3, …); added 1 jump in nat`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deeds: Vec<String> = self.0.iter().map(Deed::to_string).collect();
        f.write_str(&deeds.join("; "))
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { verb, tables } => {
                let tables: Vec<String> = tables.iter().map(InTable::to_string).collect();
                write!(f, "{verb} {}", tables.join(", "))
            }
            Self::ChangedRules { chains } => {
                write!(f, "changed rules of {}", count(*chains, "chain"))
            }
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "deleted",
            Self::Emptied => "emptied",
            Self::Wrote => "wrote",
            Self::Added => "added",
        })
    }
}

impl fmt::Display for InTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = [(self.chains, "chain"), (self.jumps, "jump")];
        let counted = counted.iter().filter(|(n, _)| *n > 0);
        let counted: Vec<String> = counted.map(|(n, what)| count(*n, what)).collect();
        let counted = if self.whole {
            "everything".to_owned()
        } else {
            counted.join(" and ")
        };
        write!(f, "{counted} in {}", self.table)?;
        if self.named.is_empty() {
            return Ok(());
        }
        let mut names: Vec<String> = self.named.iter().map(Named::to_string).collect();
        names.extend(self.more.then(|| "…".to_owned()));
        write!(f, " ({})", names.join(", "))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jump { chain, target } => write!(f, "{chain} → {target}"),
            Self::Chain(name) => f.write_str(name),
            Self::Chains { prefix, count } => write!(f, "{prefix}… ×{count}"),
        }
    }
}
