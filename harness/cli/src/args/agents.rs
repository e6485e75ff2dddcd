//! What is said of real agents.

use clap::{Args, Subcommand, ValueEnum};

/// Who plays what nobody chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Players {
    /// A model
    #[default]
    Model,
    /// The real one, where it is here; else a model, which is said
    Real,
}

#[derive(Debug, Args)]
pub(crate) struct Agents {
    #[command(subcommand)]
    pub(crate) verb: Option<AgentsVerb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsVerb {
    /// Build releases of a real kube-proxy, each once, and print their paths
    #[command(
        after_help = "Builds 1.28 and newer of upstream's Go modules, with the `go` that is there: three to five minutes of a machine \
                      with two cores the first time, less for the next ones. 1.20.2 is built of Debian's source. Programs are kept in \
                      $XDG_CACHE_HOME/chainbreak (~/.cache/chainbreak).\n\n\
                      Examples:\n  chainbreak agents build kube-proxy 1.34.2\n  \
                      chainbreak agents build kube-proxy 1.34      # its newest pinned patch\n  \
                      chainbreak agents build kube-proxy 1.28 1.36 1.20.2"
    )]
    Build {
        /// `kube-proxy`
        #[arg(value_name = "AGENT", value_parser = ["kube-proxy"])]
        agent: String,
        /// Releases, or minor versions, which mean the newest pinned patch
        #[arg(required = true, value_name = "VERSION")]
        versions: Vec<String>,
    },
}
