//! What `chainbreak explain` is asked.

use std::{path::PathBuf, time::Duration};

use chainbreak_netfilter::walk::Tracking;
use clap::{Args, ValueEnum};

use super::Answer;

/// What stands below its help.
pub(super) const HELP: &str = "Examples:\n  \
    chainbreak explain shop shop reports/out/latest --case 'calico-bpf-cleanup-fights-kube-proxy/api-moves[iptables=legacy]' --at 14.2s\n  \
    chainbreak explain pod/client test/web:80 --case short/calm --format json | jq .decided\n  \
    chainbreak explain pod/client test/web:80 --node n1 --world --trace\n  \
    chainbreak explain 10.20.1.2 10.96.0.10:53 --protocol udp --dump node-1/\n  \
    chainbreak explain 203.0.113.9 10.0.1.1:30080 --in eth0 --dump iptables-save.txt --dump routes.txt\n  \
    chainbreak explain 10.20.1.2 10.96.0.10:53 --protocol udp --kubeconfig ~/.kube/config --node ip-10-0-0-1\n  \
    chainbreak explain 10.20.2.5:80 10.20.1.2:40000 --flags SYN,ACK --dump node-1/\n\n\
    `chainbreak collect` prints the script that makes the dumps on a node.\n\n\
    Exit codes: 0 explained · 2 no such run, case, world or name, no dump, or one that is not whole";

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Who sends it: an address, with its port if that matters; of icmp with the echo's identifier. In a run and a kept world also by
    /// name, as pod/test/client, node/n1, host/outside; in a run the name of traffic
    pub(crate) from: String,
    /// Where it is sent: an address and a port; in a run and a kept world also a service and its port, as test/web:80; in a run the
    /// name of traffic
    #[arg(value_name = "TO:PORT")]
    pub(crate) to: String,
    /// A recorded run, its folder or its run.jsonl: the rules of a moment are rebuilt from its history [default: reports/out/latest]
    #[arg(value_name = "RUN", conflicts_with_all = ["dump", "world"])]
    pub(crate) run: Option<PathBuf>,
    /// The case of the run, by its id; not needed of a run with one case
    #[arg(long, value_name = "CASE", conflicts_with_all = ["dump", "world"])]
    pub(crate) case: Option<String>,
    /// The moment in the case, in its seconds as report.txt has them [default: the end of the judged time]
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with_all = ["dump", "world"])]
    pub(crate) at: Option<Duration>,
    /// The node whose rules it meets [default: the sender's, or the only one]; of dumps the one in whose folder nodes/NODE they lie
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// A world kept by `run --keep`, by the process that `chainbreak clean` names; without one, the world that `shell` looks into
    #[arg(long, value_name = "PID", num_args = 0..=1, default_missing_value = "0", conflicts_with = "dump")]
    pub(crate) world: Option<i32>,
    /// Makes a request from FROM in the kept world, and tells which rules the kernel says it met, by their counters and nft's trace
    #[arg(long, requires = "world", conflicts_with_all = ["input", "flags", "mark", "state"])]
    pub(crate) trace: bool,
    /// A folder of dumps of a node, or one of them; files are recognised by what is in them
    #[arg(long, value_name = "DIR")]
    pub(crate) dump: Vec<PathBuf>,
    /// A running cluster, whose node NODE is asked by kubectl in a pod of an agent, or another that is privileged and on the node's network; nothing
    /// is changed there
    #[arg(long, value_name = "FILE", requires = "node", conflicts_with_all = ["run", "dump", "world", "case", "at"])]
    pub(crate) kubeconfig: Option<PathBuf>,
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

/// A moment in seconds, with or without a unit.
pub(super) fn moment(text: &str) -> Result<Duration, String> {
    let seconds = || chainbreak_model::parse_duration(&format!("{text}s"));
    let moment = chainbreak_model::parse_duration(text).or_else(seconds);
    moment.ok_or_else(|| "a moment is a number of seconds, as 12.4s".to_owned())
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
