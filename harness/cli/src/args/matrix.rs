//! The words of `matrix`.

use std::num::NonZeroU16;

use clap::{Args, ValueEnum};

use super::selection::Selection;

#[derive(Debug, Args)]
pub(crate) struct Matrix {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Parts of each combination, a job each
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) shards: NonZeroU16,
    /// How the jobs are written down
    #[arg(long, value_enum, default_value = "lines")]
    pub(crate) format: Format,
    /// The same as --format github
    #[arg(long, conflicts_with = "format")]
    pub(crate) github: bool,
    #[command(flatten)]
    pub(crate) kubernetes: Kubernetes,
}

impl Matrix {
    pub(crate) fn format(&self) -> Format {
        if self.github {
            Format::Github
        } else {
            self.format
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line each: how many cases, and what `chainbreak run` is given
    Lines,
    /// `matrix={…}` for `strategy: { matrix: ${{ fromJSON(…) }} }` of GitHub Actions
    Github,
    /// An Indexed Job of Kubernetes 1.29 or later, for `kubectl apply -f -`
    Jobs,
}

/// With `--format jobs`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of --format jobs")]
pub(crate) struct Kubernetes {
    /// What the pods run: the image that `make image` builds
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Where all of it is
    #[arg(long, value_name = "NAME", default_value = "chainbreak")]
    pub(crate) namespace: String,
    /// How many pods run side by side [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) parallelism: Option<u16>,
    /// The processors that a pod has, and no more: by them it plans how many cases run side by side
    #[arg(long, value_name = "CPU", default_value = "2")]
    pub(crate) cpu: String,
    /// How much room the results have
    #[arg(long, value_name = "SIZE", default_value = "1Gi")]
    pub(crate) storage: String,
    /// Of which class, where the default one is not for several nodes at once
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_class: Option<String>,
}
