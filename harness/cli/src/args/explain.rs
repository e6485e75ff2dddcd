//! What `chainbreak explain` is asked.

use std::path::PathBuf;

use chainbreak_netfilter::walk::Tracking;
use clap::{Args, ValueEnum};

use super::Answer;

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Who sends it: an address, with its port if that matters; of icmp with the echo's identifier
    pub(crate) from: String,
    /// Where it is sent: an address and a port
    #[arg(value_name = "TO:PORT")]
    pub(crate) to: String,
    /// A folder of dumps of the node, or one of them; files are recognised by what is in them
    #[arg(long, required = true, value_name = "DIR")]
    pub(crate) dump: Vec<PathBuf>,
    /// The interface that it comes in by, or `node` for what a program on the node sends [default: as the routes lead
    /// to FROM]
    #[arg(long = "in", value_name = "INTERFACE")]
    pub(crate) input: Option<String>,
    /// What it carries: tcp, udp, sctp, icmp, or a number
    #[arg(long, default_value = "tcp", value_name = "NAME")]
    pub(crate) protocol: String,
    /// TCP's flags, as SYN,ACK [default: SYN]
    #[arg(long, value_name = "FLAGS")]
    pub(crate) flags: Option<String>,
    /// Its mark, as 0x4000
    #[arg(long, value_parser = mark, value_name = "MARK")]
    pub(crate) mark: Option<u32>,
    /// What conntrack makes of it [default: as its flags and `conntrack -L` say]
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Option<ExplainState>,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Answer::Human)]
    pub(crate) format: Answer,
}

/// A mark as rules have it.
fn mark(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_why| "a mark is a number, as 0x4000".to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainState {
    New,
    Established,
    Related,
    Invalid,
    Untracked,
}

impl From<ExplainState> for Tracking {
    fn from(state: ExplainState) -> Self {
        match state {
            ExplainState::New => Self::New,
            ExplainState::Established => Self::Established,
            ExplainState::Related => Self::Related,
            ExplainState::Invalid => Self::Invalid,
            ExplainState::Untracked => Self::Untracked,
        }
    }
}
