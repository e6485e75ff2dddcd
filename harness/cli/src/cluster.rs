//! `chainbreak cluster`: what somebody's cluster has to grant.

use std::process::ExitCode;

use chainbreak_kind::existing::rights;

use crate::{
    args::cluster::{Cluster, ClusterVerb, Rbac},
    manifests,
};

/// Prints it.
pub(crate) fn cluster(args: &Cluster) -> anyhow::Result<ExitCode> {
    let ClusterVerb::Rbac(Rbac {
        name,
        namespace,
        disruption,
    }) = &args.verb;
    let head = "# What `chainbreak run --backend cluster` does in a cluster. Its pods on nodes are privileged: whoever may make such pods\n\
        # can do anything there.\n";
    let objects = rights::manifests(name, namespace, *disruption);
    crate::say_as_it_is(&manifests::document(head, &objects)?)?;
    Ok(ExitCode::SUCCESS)
}
