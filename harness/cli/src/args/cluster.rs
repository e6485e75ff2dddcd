//! The words of `cluster`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Cluster {
    #[command(subcommand)]
    pub(crate) verb: ClusterVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Print the rights that a run takes, as a service account with a cluster role, for `kubectl apply -f -`
    #[command(
        after_help = "Examples:\n  chainbreak cluster rbac | kubectl apply -f -\n  \
                            chainbreak cluster rbac --disruption --namespace ci\n\n\
                            `chainbreak doctor --kubeconfig FILE [--disruption]` says which of them are missing."
    )]
    Rbac(Rbac),
}

#[derive(Debug, Args)]
pub(crate) struct Rbac {
    /// What service account, cluster role and binding are called
    #[arg(long, default_value = "chainbreak", value_name = "NAME")]
    pub(crate) name: String,
    /// Where the service account is
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(crate) namespace: String,
    /// With what --allow-disruption takes
    #[arg(long)]
    pub(crate) disruption: bool,
}
