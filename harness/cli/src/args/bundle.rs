//! What `chainbreak bundle` is asked.

use std::path::PathBuf;

use clap::Args;

use super::LATEST;

#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// The run's folder, or its run.jsonl
    #[arg(value_name = "RUN", default_value = LATEST)]
    pub(crate) run: PathBuf,
    /// Only these cases, by their ids as `chainbreak list` prints them, in which `*` stands for anything
    #[arg(value_name = "CASE")]
    pub(crate) cases: Vec<String>,
    /// The file that is written [default: chainbreak-TIME.tgz in the current folder, after when the run began]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
