//! What `new` is asked.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct New {
    /// The scenario's name, lowercase letters, digits and dashes: best its symptom, as people say it
    pub(crate) name: String,
    /// Where its file goes [default: scenarios where there is such a folder, otherwise here]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
