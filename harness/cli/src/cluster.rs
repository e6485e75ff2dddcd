//! `chainbreak cluster`: what somebody's cluster has to grant.

use std::process::ExitCode;

use anyhow::Context;
use chainbreak_kind::existing::rights;

use crate::args::cluster::{Cluster, ClusterVerb, Rbac};

/// Prints it.
pub(crate) fn cluster(args: &Cluster) -> anyhow::Result<ExitCode> {
    let ClusterVerb::Rbac(Rbac {
        name,
        namespace,
        disruption,
    }) = &args.verb;
    let mut text = "# What `chainbreak run --backend cluster` does in a cluster. Its pods on nodes are privileged: whoever may make such pods\n\
        # can do anything there.\n"
        .to_owned();
    for object in rights::manifests(name, namespace, *disruption) {
        let object = serde_yaml::to_string(&object).context("could not write YAML")?;
        text.push_str("---\n");
        text.push_str(&object);
    }
    crate::say_as_it_is(&text)?;
    Ok(ExitCode::SUCCESS)
}
