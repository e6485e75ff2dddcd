//! The text that `iptables-restore` is given: two tables, each with its chain lines before its
//! rules, written side by side.

use std::fmt::{self, Display, Write as _};

/// Lines of text, counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Lines {
    text: String,
    count: usize,
}

impl Lines {
    /// Adds a line.
    pub(crate) fn add(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes everything");
        self.count += 1;
    }

    /// Adds the line that declares a chain and, without `--flush`, empties it.
    ///
    /// 1.20 repeats the line that `iptables-save` gave, "retaining counters if possible"; chains of
    /// one's own have none, so it is the same text.
    pub(crate) fn chain(&mut self, name: impl Display) {
        self.add(format_args!(":{name} - [0:0]"));
    }

    /// How many.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

/// The input for both tables.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) filter_chains: Lines,
    pub(crate) filter_rules: Lines,
    pub(crate) nat_chains: Lines,
    pub(crate) nat_rules: Lines,
}

impl Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, chains, rules) in [
            ("filter", &self.filter_chains, &self.filter_rules),
            ("nat", &self.nat_chains, &self.nat_rules),
        ] {
            write!(f, "*{table}\n{}{}COMMIT\n", chains.text, rules.text)?;
        }
        Ok(())
    }
}
