//! The verbs that only answer, in words or as a document.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::selection::{SCENARIOS, Selection};

/// How a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Answer {
    /// For people
    Human,
    /// The same as one JSON document
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Scenario files, or folders to search for them
    #[arg(default_value = SCENARIOS, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Answer::Human)]
    pub(crate) format: Answer,
}

/// What `list` and `plan` are asked.
#[derive(Debug, Args)]
pub(crate) struct Listing {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Answer::Human)]
    pub(crate) format: Answer,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Ask this cluster, too, whether the file's user may do there what `--backend cluster` does
    #[cfg(feature = "clusters")]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig [default: its current one]
    #[cfg(feature = "clusters")]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub(crate) context: Option<String>,
    /// With what --allow-disruption takes there
    #[cfg(feature = "clusters")]
    #[arg(long, requires = "kubeconfig")]
    pub(crate) disruption: bool,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Answer::Human)]
    pub(crate) format: Answer,
}

#[cfg(feature = "clusters")]
#[derive(Debug, Args)]
pub(crate) struct Versions {
    /// Ask the registry and the origin of Calico's manifests whether what is pinned is still so
    #[arg(long)]
    pub(crate) check: bool,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Answer::Human)]
    pub(crate) format: Answer,
}
