//! The rules of a node, rebuilt from the commands that ran there: what each made of them, given how it ended. What a command made
//! that cannot be followed is not guessed: it is a [`Doubt`].

mod nft;
mod sets;

use crate::{
    Family, Invocation, Ruleset,
    change::{Change, ChangeKind, failed_line},
    command::base_name,
    diff::{Order, diff},
    dumps::{Dumps, Save},
    nft::{NftTable, Tables},
    restore::sections,
    save::{Chain, Table},
};

use self::sets::Sets;

/// Whose tables a program writes: those of legacy iptables are the kernel's other ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// `iptables-legacy`.
    Legacy,
    /// `iptables-nft`.
    Nft,
}

/// A command that ended, as it was seen.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    /// Program and arguments.
    pub argv: &'a [String],
    /// What it was given on standard input.
    pub input: &'a str,
    /// Exit code; 128 + n for signal n.
    pub exit: i32,
    /// What it wrote on standard error.
    pub stderr: &'a str,
    /// When it ended, in microseconds of any clock.
    pub ended_us: u64,
}

/// A table that a command of legacy iptables read when its input named it, to put back what it read, with its own changes, at the
/// `COMMIT`. Whatever others wrote meanwhile is lost with that, which a lock is there to prevent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldCopy {
    /// When it read the table.
    pub read_us: u64,
    /// When it ended.
    pub ended_us: u64,
    /// Of which family's tables.
    pub family: Family,
    /// Which table.
    pub table: String,
}

/// What a command made is not known. The rules are as without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Doubt(String);

/// The rules that commands leave, from none on.
#[derive(Debug, Clone)]
pub struct Replay {
    own: Backend,
    /// Those that were written first come first.
    tables: Vec<Saved>,
    nft: Tables,
    sets: Sets,
    /// Those that are to come, and those that were read, with what was read.
    copies: Vec<(OldCopy, Option<Table>)>,
}

/// A table of iptables.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Saved {
    backend: Backend,
    family: Family,
    name: String,
    table: Table,
}

/// What is to be put back is no rule yet.
impl PartialEq for Replay {
    fn eq(&self, other: &Self) -> bool {
        (self.own, &self.tables, &self.nft, &self.sets)
            == (other.own, &other.tables, &other.nft, &other.sets)
    }
}

impl Replay {
    /// A node on which nothing ran. `own` is what `iptables` without a backend in its name means there.
    pub fn new(own: Backend) -> Self {
        Self {
            own,
            tables: Vec::new(),
            nft: Tables::default(),
            sets: Sets::default(),
            copies: Vec::new(),
        }
    }

    /// The same, where commands put back what they read earlier.
    #[must_use]
    pub fn with(self, copies: impl IntoIterator<Item = OldCopy>) -> Self {
        let copies = copies.into_iter().map(|it| (it, None)).collect();
        Self { copies, ..self }
    }

    /// Takes in what a command made of the rules.
    pub fn take(&mut self, ran: Ran<'_>) -> Result<(), Doubt> {
        self.read_until(ran.ended_us);
        let Some(program) = ran.argv.first() else {
            return Ok(());
        };
        match base_name(program) {
            name if name.starts_with("iptables")
                || name.starts_with("ip6tables")
                || name.starts_with("xtables-") =>
            {
                self.iptables(ran)
            }
            "nft" => self.nft(ran),
            "ipset" => self.sets.take(ran),
            _ => Ok(()),
        }
    }

    /// What `iptables-save` of a backend and family would print, without counters.
    pub fn ruleset(&self, backend: Backend, family: Family) -> Ruleset {
        let of = |it: &&Saved| it.backend == backend && it.family == family;
        let tables = self.tables.iter().filter(of);
        Ruleset {
            tables: tables
                .map(|it| (it.name.clone(), it.table.clone()))
                .collect(),
        }
    }

    /// A table of iptables, without counters; `None` where no command made anything of it.
    pub fn table(&self, backend: Option<Backend>, family: Family, name: &str) -> Option<NftTable> {
        let backend = backend.unwrap_or(self.own);
        let is_it = |it: &&Saved| it.backend == backend && it.family == family && it.name == name;
        let saved = self.tables.iter().find(is_it)?;
        Some(NftTable {
            table: saved.table.clone(),
            ..NftTable::default()
        })
    }

    /// A table of nft's own.
    pub fn nft_table(&self, family: &str, name: &str) -> Option<NftTable> {
        self.nft.listed_table(family, name)
    }

    /// What is known of the node by its rules alone. Of tables that are asked at one moment the kernel asks the younger one first.
    pub fn dumps(&self) -> Dumps {
        let tables = self.tables.iter().rev();
        let saves = tables.map(|it| {
            let one = [(it.name.clone(), it.table.clone())];
            Save {
                family: it.family,
                backend: Some(it.backend),
                ruleset: Ruleset { tables: one.into() },
                is_listed: false,
            }
        });
        Dumps::rebuilt(saves.collect(), self.nft.listed(), self.sets.to_string())
    }

    /// What lies between the rules and those that `iptables-save` of the node's own backend printed. Chains that are
    /// built in count only with what is in them.
    pub fn differs_from(&self, family: Family, kept: &Ruleset) -> Vec<Change> {
        let known = self.ruleset(self.own, family);
        let mut changes = diff(family, &known, kept, Order::Kept);
        // One that is printed, or not, only because its table was looked at.
        let means_nothing = |change: &Change| {
            let chain = |rules: &Ruleset| rules.chain(&change.table, &change.chain).map(is_idle);
            match &change.kind {
                ChangeKind::ChainCreated | ChangeKind::PolicySet { .. } => {
                    chain(&known).unwrap_or(true) && chain(kept) == Some(true)
                }
                ChangeKind::ChainDeleted => chain(&known) == Some(true),
                _ => false,
            }
        };
        changes.retain(|change| !means_nothing(change));
        changes
    }

    fn iptables(&mut self, ran: Ran<'_>) -> Result<(), Doubt> {
        let doubt = |why: &dyn std::fmt::Display| Doubt(why.to_string());
        let invocation = Invocation::parse(ran.argv).map_err(|why| doubt(&why))?;
        let (family, restores, only) = match invocation {
            Invocation::NoChange | Invocation::Restore { test: true, .. } => return Ok(()),
            Invocation::Single { family, .. } => (family, false, None),
            Invocation::Restore { family, only, .. } => (family, true, only),
        };
        let input = match (ran.exit, restores) {
            (0, _) => ran.input.to_owned(),
            (128.., _) => return Err(Doubt("it was killed at its work".to_owned())),
            (_, false) => return Ok(()),
            // Without a line nothing was begun, as when another holds the lock.
            (_, true) => before(ran.input, failed_line(ran.stderr).unwrap_or(0))?,
        };
        let backend = Backend::of(ran.argv, self.own);
        let mut ruleset = self.ruleset(backend, family);
        let puts_back = |copy: &OldCopy| {
            (copy.ended_us, copy.family, backend) == (ran.ended_us, family, Backend::Legacy)
                && only.as_ref().is_none_or(|only| *only == copy.table)
                && commits(&input, &copy.table)
        };
        let old = self.copies.iter().filter(|(copy, _)| puts_back(copy));
        let old = old.filter_map(|(copy, table)| Some((copy.table.clone(), table.clone()?)));
        let old: Vec<(String, Table)> = old.collect();
        ruleset.tables.extend(old.iter().cloned());
        let done = crate::apply(&mut ruleset, ran.argv, &input);
        // What was committed before a refusal stays.
        for (name, table) in ruleset.tables {
            if done.is_ok() || old.iter().all(|(old, _)| *old != name) {
                self.put(backend, family, name, table);
            }
        }
        self.copies
            .retain(|(copy, _)| copy.ended_us != ran.ended_us);
        done.map_err(|why| Doubt(format!("the rules that are known do not allow it: {why}")))
    }

    /// Reads what was read before a command ended.
    fn read_until(&mut self, us: u64) {
        let due =
            |(copy, table): &&mut (OldCopy, Option<Table>)| table.is_none() && copy.read_us < us;
        for (copy, table) in self.copies.iter_mut().filter(due) {
            let is_it = |it: &&Saved| {
                (it.backend, it.family) == (Backend::Legacy, copy.family) && it.name == copy.table
            };
            let read = self.tables.iter().find(is_it);
            let there = read.map(|it| it.table.clone());
            *table = Some(there.unwrap_or_else(|| Table::built_in(&copy.table)));
        }
    }

    fn put(&mut self, backend: Backend, family: Family, name: String, table: Table) {
        let is_it =
            |it: &&mut Saved| it.backend == backend && it.family == family && it.name == name;
        match self.tables.iter_mut().find(is_it) {
            Some(known) => known.table = table,
            None => self.tables.push(Saved {
                backend,
                family,
                name,
                table,
            }),
        }
    }
}

impl Backend {
    /// Whose tables a program of iptables writes, where one without a backend in its name writes those of `own`.
    pub fn of(argv: &[String], own: Self) -> Self {
        let name = argv.first().map_or("", |it| base_name(it));
        if name.contains("-legacy") {
            Self::Legacy
        } else if name.contains("-nft") {
            Self::Nft
        } else {
            own
        }
    }
}

/// Whether a chain that is built in does nothing.
fn is_idle(chain: &Chain) -> bool {
    chain.policy.as_deref() == Some("ACCEPT") && chain.rules.is_empty()
}

/// Whether an input has a table replaced.
fn commits(input: &str, table: &str) -> bool {
    let parts = sections(input).unwrap_or_default();
    let mut committed = parts.iter().filter(|it| it.commit.is_some());
    committed.any(|it| it.table == table)
}

/// The tables of an input that were committed before a line.
fn before(input: &str, line: usize) -> Result<String, Doubt> {
    let parts = sections(input).map_err(|why| Doubt(why.to_string()))?;
    let commits = parts.iter().filter_map(|it| it.commit);
    let last = commits.filter(|commit| *commit < line).max().unwrap_or(0);
    Ok(input.split_inclusive('\n').take(last).collect())
}
