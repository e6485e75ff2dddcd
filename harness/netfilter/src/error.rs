//! What can be wrong with a text.

/// A text that iptables would not have written, or would not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetfilterError {
    /// A line that is none of the known forms.
    #[error("line {line} is not understood: {text:?}")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A listing of iptables that is not whole, or not of one table.
    #[error("line {line}: the listing {why}; or attach `iptables-save -c`, which says more")]
    Listing {
        /// Where, from 1.
        line: usize,
        /// What is amiss.
        why: &'static str,
    },
    /// A rule or chain line outside of any table.
    #[error("line {line} stands before any table: {text:?}")]
    NoTable {
        /// Which line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A rule of a chain that the table did not declare.
    #[error("line {line} adds a rule to {chain}, which table {table} does not declare")]
    NoChain {
        /// Which line, from 1.
        line: usize,
        /// The table.
        table: String,
        /// The chain.
        chain: String,
    },
    /// A quoted word without its end.
    #[error("line {line} opens a quote and does not close it: {text:?}")]
    OpenQuote {
        /// Which line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// iptables-nft met a table it cannot show (and exits 0).
    #[error("table {table} is incompatible with iptables, use the nft tool")]
    Incompatible {
        /// The table.
        table: String,
    },
    /// An argument list that is not an iptables command.
    #[error("not an iptables command: {text}")]
    Argv {
        /// The arguments.
        text: String,
    },
}

impl NetfilterError {
    /// The same of a text that has so many more lines before it.
    pub(crate) fn further_down(mut self, by: usize) -> Self {
        match &mut self {
            Self::Line { line, .. }
            | Self::NoTable { line, .. }
            | Self::NoChain { line, .. }
            | Self::OpenQuote { line, .. } => *line += by,
            Self::Listing { .. } | Self::Incompatible { .. } | Self::Argv { .. } => {}
        }
        self
    }
}
